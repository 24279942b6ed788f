// Mongoose, newest, on a replica set of one, or on servers of a cluster: transactions as a shop uses them.

import assert from 'node:assert/strict';
import mongoose from 'mongoose';
import { failure, run, test } from '../harness/tap.mjs';

const { Schema } = mongoose;

const Customer = mongoose.model('Customer', new Schema({
  email: { type: String, required: true, unique: true },
  credit: { type: Number, default: 0, min: 0 },
  tags: { type: [String], index: true },
}, { timestamps: true, optimisticConcurrency: true }));

const Product = mongoose.model('Product', new Schema({
  _id: String,
  stock: { type: Number, required: true, min: [0, 'sold out'] },
  price: { type: Number, required: true },
}));

const Order = mongoose.model('Order', new Schema({
  customer: { type: Schema.Types.ObjectId, ref: 'Customer', index: true },
  lines: [{ product: { type: String, ref: 'Product' }, count: Number, _id: false }],
  total: Number,
}, { timestamps: true }));

await mongoose.connect(process.env.FROND_URI, { dbName: 'shop', serverSelectionTimeoutMS: 60_000 });
await mongoose.connection.dropDatabase();
await Promise.all([Customer, Product, Order].map((model) => model.init()));

let ada;
let bob;

/** What everybody sees outside of the transaction. */
const state = async () => ({
  orders: await Order.countDocuments(),
  stock: Object.fromEntries((await Product.find().sort('_id').lean()).map(({ _id, stock }) => [_id, stock])),
  credit: (await Customer.findById(ada._id).lean()).credit,
});

/** Sells one kind of product to a customer, in the caller's session. */
async function sell(customerId, sku, count, session) {
  const product = await Product.findById(sku).session(session).orFail();
  product.stock -= count;
  await product.save();
  const customer = await Customer.findById(customerId).session(session).orFail();
  const total = product.price * count;
  customer.credit -= total;
  await customer.save();
  const [order] = await Order.create([{ customer: customerId, lines: [{ product: sku, count }], total }], { session });
  return order;
}

test('the connection is one to a replica set or to a cluster', async () => {
  const { description } = mongoose.connection.getClient().topology;
  assert.ok(['ReplicaSetWithPrimary', 'Sharded'].includes(description.type));
  assert.equal(description.setName, description.type === 'Sharded' ? null : 'rs0');
  [ada, bob] = await Customer.create([{ email: 'ada@shop', credit: 100, tags: ['new'] }, { email: 'bob@shop', credit: 50 }]);
  await Product.insertMany([{ _id: 'tea', stock: 10, price: 5 }, { _id: 'cup', stock: 3, price: 8 }]);
});

test('withTransaction commits all or nothing', async () => {
  const session = await mongoose.startSession();
  try {
    const order = await session.withTransaction(() => sell(ada._id, 'tea', 4, session));
    assert.equal(order.total, 20);
    assert.deepEqual(await state(), { orders: 1, stock: { cup: 3, tea: 6 }, credit: 80 });
    // The order is refused by a validator after the stock was changed.
    const error = await failure(session.withTransaction(() => sell(bob._id, 'cup', 7, session)));
    assert.equal(error.name, 'ValidationError');
    await failure(session.withTransaction(async () => {
      await sell(ada._id, 'cup', 1, session);
      throw new Error('the customer changed their mind');
    }));
    assert.deepEqual(await state(), { orders: 1, stock: { cup: 3, tea: 6 }, credit: 80 });
  } finally {
    await session.endSession();
  }
});

test('connection.transaction resets documents when it aborts', async () => {
  const cup = await Product.findById('cup');
  const pot = new Product({ _id: 'pot', stock: 1, price: 30 });
  await failure(mongoose.connection.transaction(async (session) => {
    cup.stock = 2;
    await cup.save({ session });
    await pot.save({ session });
    assert.equal(pot.isNew, false);
    throw new Error('no');
  }));
  assert.equal(pot.isNew, true);
  assert.equal(cup.isModified('stock'), true);
  await mongoose.connection.transaction(async (session) => {
    await cup.save({ session });
    await pot.save({ session });
  });
  assert.deepEqual((await state()).stock, { cup: 2, pot: 1, tea: 6 });
});

test('others do not see a transaction before its commit', async () => {
  const session = await mongoose.startSession();
  session.startTransaction();
  await Product.create([{ _id: 'jam', stock: 9, price: 3 }], { session });
  await Product.updateOne({ _id: 'tea' }, { $inc: { stock: 100 } }, { session });
  assert.equal(await Product.findById('jam'), null);
  assert.equal((await Product.findById('tea')).stock, 6);
  assert.equal(await Product.countDocuments().session(session), 4);
  assert.equal((await Product.findById('tea').session(session)).stock, 106);
  assert.deepEqual(await Product.distinct('_id').session(session), ['cup', 'jam', 'pot', 'tea']);
  await session.abortTransaction();
  assert.equal(await Product.countDocuments(), 3);
  session.startTransaction();
  await Product.deleteOne({ _id: 'pot' }, { session });
  assert.equal(await Product.countDocuments(), 3);
  await session.commitTransaction();
  await session.endSession();
  assert.equal(await Product.countDocuments(), 2);
});

test('queries, populate and aggregations see the writes of their transaction', async () => {
  await mongoose.connection.transaction(async (session) => {
    const order = await sell(ada._id, 'cup', 1, session);
    const found = await Order.findById(order._id).populate('customer').populate('lines.product').session(session);
    assert.equal(found.customer.credit, 72);
    assert.equal(found.lines[0].product.stock, 1);
    await Customer.updateOne({ _id: ada._id }, { $push: { tags: { $each: ['gold', 'tea'] } } }).session(session);
    assert.equal(await Customer.countDocuments({ tags: 'gold' }).session(session), 1);
    const rows = await Order.aggregate([
      { $match: { customer: ada._id } },
      { $lookup: { from: 'customers', localField: 'customer', foreignField: '_id', as: 'who' } },
      { $group: { _id: { $first: '$who.email' }, spent: { $sum: '$total' }, tags: { $max: { $size: { $first: '$who.tags' } } } } },
    ]).session(session);
    assert.deepEqual(rows, [{ _id: 'ada@shop', spent: 28, tags: 3 }]);
    const upserted = await Product.findOneAndUpdate({ _id: 'pie' }, { $inc: { stock: 2 }, $setOnInsert: { price: 4 } },
      { session, upsert: true, returnDocument: 'after' });
    assert.equal(upserted.stock, 2);
    const bulk = await Product.bulkWrite([
      { updateOne: { filter: { _id: 'pie' }, update: { $inc: { stock: 1 } } } },
      { insertOne: { document: { _id: 'bun', stock: 1, price: 1 } } },
      { deleteOne: { filter: { _id: 'bun' } } },
    ], { session });
    assert.deepEqual([bulk.modifiedCount, bulk.insertedCount, bulk.deletedCount], [1, 1, 1]);
  });
  assert.deepEqual(await state(), { orders: 2, stock: { cup: 1, pie: 3, tea: 6 }, credit: 72 });
  assert.deepEqual((await Customer.findById(ada._id)).tags, ['new', 'gold', 'tea']);
});

test('a cursor reads the snapshot of its transaction', async () => {
  await mongoose.connection.transaction(async (session) => {
    const names = [];
    for await (const product of Product.find().sort('_id').session(session).cursor({ batchSize: 1 })) {
      names.push(product._id);
      await Product.updateOne({ _id: 'late' }, { $set: { stock: 1, price: 1 } }, { upsert: true });
    }
    assert.deepEqual(names, ['cup', 'pie', 'tea']);
    assert.equal(await Product.findById('late').session(session), null);
  });
  await Product.deleteOne({ _id: 'late' });
});

test('a duplicate aborts the transaction', async () => {
  const session = await mongoose.startSession();
  session.startTransaction();
  await Product.updateOne({ _id: 'tea' }, { $inc: { stock: -1 } }, { session });
  const error = await failure(Customer.create([{ email: 'ada@shop' }], { session }));
  assert.equal(error.code, 11000);
  const after = await failure(Product.findById('tea').session(session).exec());
  assert.equal(after.code, 251);
  await session.abortTransaction();
  await session.endSession();
  assert.equal((await Product.findById('tea')).stock, 6);
});

test('a transaction that lost a conflict is tried again', async () => {
  let tries = 0;
  const session = await mongoose.startSession();
  await session.withTransaction(async () => {
    tries += 1;
    const tea = await Product.findById('tea').session(session);
    // Somebody else sells between the read and the write of the first try.
    if (tries === 1) await Product.updateOne({ _id: 'tea' }, { $inc: { stock: -2 } });
    tea.stock -= 1;
    await tea.save();
  });
  await session.endSession();
  assert.equal(tries, 2);
  assert.equal((await Product.findById('tea')).stock, 3);
});

test('of many that sell the same, each sale counts once', async () => {
  await Product.create({ _id: 'pen', stock: 40, price: 0 });
  const before = await Order.countDocuments();
  await Promise.all(Array.from({ length: 20 }, () => mongoose.connection.transaction(
    (session) => sell(bob._id, 'pen', 2, session),
  )));
  assert.equal((await Product.findById('pen')).stock, 0);
  assert.equal(await Order.countDocuments(), before + 20);
  const error = await failure(mongoose.connection.transaction((session) => sell(bob._id, 'pen', 1, session)));
  assert.match(error.message, /sold out/);
});

test('a collection is created inside a transaction', async () => {
  const Audit = mongoose.model('Audit', new Schema({ text: { type: String } }, { autoCreate: false, autoIndex: false }));
  await failure(mongoose.connection.transaction(async (session) => {
    await Audit.create([{ text: 'one' }], { session });
    throw new Error('no');
  }));
  assert.equal((await mongoose.connection.db.listCollections({ name: 'audits' }).toArray()).length, 0);
  await mongoose.connection.transaction(async (session) => {
    await Audit.createCollection({ session });
    await Audit.create([{ text: 'two' }, { text: 'three' }], { session, ordered: true });
  });
  assert.equal(await Audit.countDocuments(), 2);
});

test('sessions by asynchronous context', async () => {
  mongoose.set('transactionAsyncLocalStorage', true);
  try {
    await failure(mongoose.connection.transaction(async () => {
      await Product.updateOne({ _id: 'pie' }, { $inc: { stock: 5 } });
      assert.equal((await Product.findById('pie')).stock, 8);
      throw new Error('no');
    }));
  } finally {
    mongoose.set('transactionAsyncLocalStorage', false);
  }
  assert.equal((await Product.findById('pie')).stock, 3);
});

test('a causally consistent session reads its own writes at the majority', async () => {
  const session = await mongoose.startSession({ causalConsistency: true });
  await Product.updateOne({ _id: 'pie' }, { $inc: { stock: 1 } }, { session, writeConcern: { w: 'majority' } });
  const pie = await Product.findById('pie').session(session).read('secondaryPreferred').readConcern('majority');
  assert.equal(pie.stock, 4);
  assert.ok(session.operationTime);
  await session.endSession();
});

test('a snapshot session reads one moment', async () => {
  const session = await mongoose.startSession({ snapshot: true });
  assert.equal((await Product.findById('pie').session(session)).stock, 4);
  await Product.updateOne({ _id: 'pie' }, { $inc: { stock: 1 } });
  assert.equal((await Product.findById('pie').session(session)).stock, 4);
  await session.endSession();
  assert.equal((await Product.findById('pie')).stock, 5);
});

await run(() => mongoose.disconnect());
