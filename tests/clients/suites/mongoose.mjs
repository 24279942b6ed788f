// Mongoose, newest, as the shop and the blog of one web application use it.

import assert from 'node:assert/strict';
import mongoose from 'mongoose';
import { failure, run, test } from '../harness/tap.mjs';

const { Schema, Types } = mongoose;

const addressSchema = new Schema({
  street: { type: String, required: true },
  city: { type: String, required: true, index: true },
  zip: { type: String, match: /^\d{5}$/ },
}, { _id: false });

const userSchema = new Schema({
  email: { type: String, required: true, unique: true, lowercase: true, trim: true },
  name: { first: { type: String, required: true }, last: String },
  age: { type: Number, min: [18, 'too young: {VALUE}'], max: 120 },
  role: { type: String, enum: ['reader', 'author', 'admin'], default: 'reader' },
  addresses: [addressSchema],
  settings: { type: Map, of: String },
  logins: { type: [Date], default: undefined },
}, { timestamps: true });
userSchema.virtual('fullName')
  .get(function get() { return `${this.name.first} ${this.name.last}`; })
  .set(function set(text) { [this.name.first, this.name.last] = text.split(' '); });
userSchema.virtual('posts', { ref: 'Post', localField: '_id', foreignField: 'author' });
userSchema.virtual('postCount', { ref: 'Post', localField: '_id', foreignField: 'author', count: true });
userSchema.methods.promote = function promote() { this.role = 'author'; return this.save(); };
userSchema.statics.byCity = function byCity(city) { return this.find({ 'addresses.city': city }).sort({ email: 1 }); };
userSchema.query.grown = function grown() { return this.where('age').gte(21); };

const commentSchema = new Schema({
  by: { type: Schema.Types.ObjectId, ref: 'User' },
  text: { type: String, maxlength: 200 },
  votes: { type: Number, default: 0 },
}, { timestamps: true });

const postSchema = new Schema({
  author: { type: Schema.Types.ObjectId, ref: 'User', required: true, index: true },
  title: { type: String, required: true },
  slug: { type: String, unique: true, sparse: true },
  tags: { type: [String], index: true },
  comments: [commentSchema],
  published: Date,
  views: { type: Number, default: 0 },
}, { timestamps: true, optimisticConcurrency: true });
postSchema.index({ author: 1, published: -1 }, { name: 'newest' });
postSchema.index({ title: 1 }, { partialFilterExpression: { views: { $gt: 100 } } });
const hooks = [];
postSchema.pre('save', function pre() { hooks.push(`save ${this.title}`); });
postSchema.post('findOneAndUpdate', (found) => { hooks.push(`changed ${found?.title}`); });

const productSchema = new Schema({
  sku: { type: String, required: true },
  shop: { type: String, required: true },
  price: Schema.Types.Decimal128,
  stock: { type: Number, validate: { validator: Number.isInteger, message: 'stock must be whole' } },
  weight: Schema.Types.BigInt,
  picture: Buffer,
  uuid: Schema.Types.UUID,
  ratio: Schema.Types.Double,
  count32: Schema.Types.Int32,
  extra: Schema.Types.Mixed,
}, { discriminatorKey: 'kind' });
productSchema.index({ shop: 1, sku: 1 }, { unique: true });

const User = mongoose.model('User', userSchema);
const Post = mongoose.model('Post', postSchema);
const Product = mongoose.model('Product', productSchema);
const Book = Product.discriminator('Book', new Schema({ isbn: String, pages: Number }));
const Shirt = Product.discriminator('Shirt', new Schema({ size: { type: String, enum: ['S', 'M', 'L'] } }));

await mongoose.connect(process.env.FROND_URI, { dbName: 'mongoose', serverSelectionTimeoutMS: 60_000 });
await mongoose.connection.dropDatabase();

test('autoIndex makes the indexes of the schemas', async () => {
  await Promise.all([User.init(), Post.init(), Product.init()]);
  const users = await User.collection.indexes();
  assert.deepEqual(users.map(({ name }) => name).sort(), ['_id_', 'addresses.city_1', 'email_1']);
  assert.equal(users.find(({ name }) => name === 'email_1').unique, true);
  const posts = await Post.listIndexes();
  assert.deepEqual(posts.map(({ name }) => name).sort(),
    ['_id_', 'author_1', 'newest', 'slug_1', 'tags_1', 'title_1']);
  assert.deepEqual(posts.find(({ name }) => name === 'title_1').partialFilterExpression, { views: { $gt: 100 } });
  assert.deepEqual(posts.find(({ name }) => name === 'newest').key, { author: 1, published: -1 });
});

test('syncIndexes and diffIndexes see no difference, and mend one', async () => {
  assert.deepEqual(await Post.diffIndexes(), { toDrop: [], toCreate: [] });
  await Post.collection.dropIndex('newest');
  await Post.collection.createIndex({ views: 1 });
  assert.deepEqual((await Post.diffIndexes()).toDrop, ['views_1']);
  assert.deepEqual(await Post.syncIndexes(), ['views_1']);
  assert.deepEqual(await Post.diffIndexes(), { toDrop: [], toCreate: [] });
});

test('ensureIndexes again changes nothing', async () => {
  await User.ensureIndexes();
  await Post.createIndexes();
  assert.equal((await Post.listIndexes()).length, 6);
});

test('create fills in defaults and timestamps', async () => {
  const user = await User.create({
    email: '  Ann@Example.com ', name: { first: 'Ann', last: 'Lee' }, age: 30,
    addresses: [{ street: 'Oak 1', city: 'Rome', zip: '12345' }, { street: 'Elm 2', city: 'Oslo' }],
    settings: { theme: 'dark', 'mail_me': 'no' },
  });
  const stored = await User.collection.findOne({ _id: user._id });
  assert.deepEqual(Object.keys(stored).sort(),
    ['__v', '_id', 'addresses', 'age', 'createdAt', 'email', 'name', 'role', 'settings', 'updatedAt']);
  assert.equal(stored.email, 'ann@example.com');
  assert.equal(stored.role, 'reader');
  assert.deepEqual(stored.settings, { theme: 'dark', mail_me: 'no' });
  assert.ok(stored.createdAt instanceof Date);
  assert.equal(stored.logins, undefined);
  assert.equal(user.fullName, 'Ann Lee');
});

test('validation stops a document before it is sent', async () => {
  const error = await failure(User.create({ email: 'x@x', name: {}, age: 5, role: 'king', addresses: [{ city: 'a', zip: '1' }] }));
  assert.equal(error.name, 'ValidationError');
  assert.deepEqual(Object.keys(error.errors).sort(),
    ['addresses.0.street', 'addresses.0.zip', 'age', 'name.first', 'role']);
  assert.equal(error.errors.age.message, 'too young: 5');
  assert.equal(await User.countDocuments({ email: 'x@x' }), 0);
});

test('a duplicate is the error of the server, with the key', async () => {
  const error = await failure(User.create({ email: 'ann@example.com', name: { first: 'Other' } }));
  assert.equal(error.name, 'MongoServerError');
  assert.equal(error.code, 11000);
  assert.deepEqual([error.keyPattern, error.keyValue], [{ email: 1 }, { email: 'ann@example.com' }]);
  assert.match(error.message, /^E11000 duplicate key error collection: mongoose\.users index: email_1 dup key: \{ email: "ann@example\.com" \}$/);
});

test('insertMany, also with some that fail', async () => {
  const many = await User.insertMany(Array.from({ length: 50 }, (_, n) => ({
    email: `user${n}@example.com`, name: { first: `U${n}`, last: 'Many' }, age: 18 + n,
    addresses: [{ street: `S ${n}`, city: ['Rome', 'Oslo', 'Bern'][n % 3] }],
  })));
  assert.equal(many.length, 50);
  const error = await failure(User.insertMany([
    { email: 'new1@example.com', name: { first: 'N' } },
    { email: 'user7@example.com', name: { first: 'Dup' } },
    { email: 'bad', age: 3, name: { first: 'B' } },
    { email: 'new2@example.com', name: { first: 'N' } },
  ], { ordered: false }));
  assert.deepEqual([error.code, error.writeErrors.length, error.insertedDocs.length], [11000, 1, 2]);
  assert.equal(error.writeErrors[0].err.errmsg.includes('user7@example.com'), true);
  assert.equal(await User.countDocuments(), 53);
});

test('queries: chain, where, or, regex, lean, select, statics and helpers', async () => {
  assert.equal((await User.byCity('Rome')).length, 18);
  assert.equal(await User.find().grown().countDocuments(), 48);
  const found = await User.find({ 'name.last': 'Many' }).where('age').gt(60).lt(65)
    .sort('-age').select('age -_id').lean();
  assert.deepEqual(found, [{ age: 64 }, { age: 63 }, { age: 62 }, { age: 61 }]);
  assert.equal(await User.countDocuments({ email: /^USER1\d@/i }), 10);
  assert.equal(await User.countDocuments().or([{ age: 20 }, { age: 21 }, { 'name.first': 'Ann' }]), 3);
  assert.equal((await User.find().sort({ age: 1 }).skip(5).limit(2).lean()).length, 2);
  assert.deepEqual((await User.distinct('addresses.city')).sort(), ['Bern', 'Oslo', 'Rome']);
  assert.ok(await User.exists({ age: 30 }));
  assert.equal(await User.exists({ age: 3000 }), null);
  assert.equal(await User.estimatedDocumentCount(), 53);
  const maybe = await User.findOne({ age: { $in: ['19', 20] } }).sort('age');
  assert.equal(maybe.age, 19);
  assert.equal((await failure(User.findOne({ age: 'old' }).exec())).name, 'CastError');
  assert.equal((await failure(User.findById('nonsense').orFail().exec())).name, 'CastError');
  assert.equal((await failure(User.findById(new Types.ObjectId()).orFail().exec())).name, 'DocumentNotFoundError');
});

test('maps, setters and methods save only what changed', async () => {
  const user = await User.findOne({ email: 'ann@example.com' });
  user.settings.set('theme', 'light');
  user.fullName = 'Anna Li';
  assert.deepEqual(user.modifiedPaths().filter((p) => p.startsWith('name') || p.startsWith('settings')).sort(),
    ['name', 'name.first', 'name.last', 'settings', 'settings.theme']);
  await user.save();
  await user.promote();
  const stored = await User.collection.findOne({ _id: user._id });
  assert.deepEqual([stored.name, stored.settings.theme, stored.role], [{ first: 'Anna', last: 'Li' }, 'light', 'author']);
  assert.ok(stored.updatedAt > stored.createdAt);
});

test('arrays: push, pull, set by index, splice, subdocuments by id', async () => {
  const ann = await User.findOne({ email: 'ann@example.com' });
  const post = await Post.create({ author: ann, title: 'First', slug: 'first', tags: ['a', 'b'] });
  post.tags.push('c', 'd');
  post.comments.push({ by: ann, text: 'one' }, { by: ann, text: 'two' });
  await post.save();
  post.tags.pull('b');
  await post.save();
  post.tags.set(0, 'z');
  post.comments[1].votes = 5;
  post.comments.id(post.comments[0]._id).deleteOne();
  await post.save();
  post.tags.addToSet('z', 'q');
  await post.save();
  post.tags.splice(1, 1);
  post.markModified('tags');
  await post.save();
  const stored = await Post.collection.findOne({ _id: post._id });
  assert.deepEqual(stored.tags, ['z', 'd', 'q']);
  assert.deepEqual(stored.comments.map(({ text, votes }) => [text, votes]), [['two', 5]]);
  assert.ok(stored.comments[0]._id.equals(post.comments[0]._id));
  assert.ok(hooks.includes('save First'));
});

test('two who save the same version: the second learns of it', async () => {
  const [mine, theirs] = [await Post.findOne({ slug: 'first' }), await Post.findOne({ slug: 'first' })];
  mine.title = 'Mine';
  await mine.save();
  theirs.title = 'Theirs';
  const error = await failure(theirs.save());
  assert.equal(error.name, 'VersionError');
  assert.equal((await Post.findOne({ slug: 'first' })).title, 'Mine');
});

test('populate: one, many, nested, virtual, counted, with a match', async () => {
  const ann = await User.findOne({ email: 'ann@example.com' });
  const other = await User.findOne({ email: 'user1@example.com' });
  await Post.create(Array.from({ length: 6 }, (_, n) => ({
    author: n % 2 ? ann : other, title: `P${n}`, tags: [`t${n % 3}`], views: n * 100,
    published: new Date(2024, n, 1), comments: [{ by: other, text: 'hi' }],
  })));
  const post = await Post.findOne({ title: 'P1' }).populate('author', 'email').populate('comments.by', 'name');
  assert.equal(post.author.email, 'ann@example.com');
  assert.equal(post.author.age, undefined);
  assert.equal(post.comments[0].by.name.first, 'U1');
  const user = await User.findOne({ _id: ann._id })
    .populate({ path: 'posts', match: { views: { $gte: 100 } }, options: { sort: { views: -1 } } }).populate('postCount');
  assert.deepEqual(user.posts.map(({ title }) => title), ['P5', 'P3', 'P1']);
  assert.equal(user.postCount, 4);
  const deep = await Post.find({ title: /^P/ }).sort('title').populate({ path: 'author', populate: { path: 'posts' } });
  assert.equal(deep[1].author.posts.length, 4);
});

test('findOneAndUpdate: old, new, upsert, array filters, hooks', async () => {
  const old = await Post.findOneAndUpdate({ title: 'P0' }, { $inc: { views: 1 } });
  assert.equal(old.views, 0);
  const fresh = await Post.findOneAndUpdate({ title: 'P0' }, { views: 7 }, { returnDocument: 'after', runValidators: true });
  assert.equal(fresh.views, 7);
  assert.ok(hooks.includes('changed P0'));
  const made = await User.findOneAndUpdate(
    { email: 'up@example.com' }, { 'name.first': 'Up' }, { upsert: true, returnDocument: 'after', setDefaultsOnInsert: true });
  assert.equal(made.role, 'reader');
  const raw = await User.findOneAndUpdate({ email: 'up2@example.com' }, { 'name.first': 'U2' },
    { upsert: true, includeResultMetadata: true });
  assert.equal(raw.lastErrorObject.updatedExisting, false);
  await Post.updateOne({ title: 'P1' }, { $push: { comments: { $each: [{ text: 'x', votes: 9 }, { text: 'y', votes: 1 }] } } });
  const voted = await Post.findOneAndUpdate({ title: 'P1' }, { $set: { 'comments.$[c].text': 'top' } },
    { arrayFilters: [{ 'c.votes': { $gt: 5 } }], returnDocument: 'after' });
  assert.deepEqual(voted.comments.map(({ text }) => text), ['hi', 'top', 'y']);
  const error = await failure(User.findOneAndUpdate({ email: 'up@example.com' }, { age: 1 }, { runValidators: true }));
  assert.equal(error.name, 'ValidationError');
  assert.equal((await failure(User.findOneAndUpdate({ email: 'up@example.com' }, { email: 'ann@example.com' }))).code, 11000);
});

test('updateMany, replaceOne, findOneAndReplace, deletes', async () => {
  const many = await User.updateMany({ age: { $lt: 25 } }, { $set: { role: 'admin' }, $push: { logins: new Date() } });
  assert.deepEqual([many.acknowledged, many.matchedCount, many.modifiedCount, many.upsertedCount], [true, 7, 7, 0]);
  assert.equal((await User.updateMany({ age: { $lt: 25 } }, { $set: { role: 'admin' } }, { timestamps: false })).modifiedCount, 0);
  await User.replaceOne({ email: 'up@example.com' }, { email: 'up@example.com', name: { first: 'Re' } });
  assert.equal((await User.findOne({ email: 'up@example.com' })).name.first, 'Re');
  const gone = await User.findOneAndDelete({ email: 'up@example.com' });
  assert.equal(gone.name.first, 'Re');
  assert.equal((await User.deleteOne({ email: 'up2@example.com' })).deletedCount, 1);
  assert.equal((await User.deleteMany({ age: { $gt: 66 } })).deletedCount, 1);
  const positional = await Post.updateOne({ 'comments.text': 'y' }, { $inc: { 'comments.$.votes': 10 } });
  assert.equal(positional.modifiedCount, 1);
  await Post.updateMany({}, [{ $set: { commentCount: { $size: '$comments' } } }], { updatePipeline: true, strict: false });
  assert.equal((await Post.collection.findOne({ title: 'P1' })).commentCount, 3);
});

test('cursors stream, for await, eachAsync, and close early', async () => {
  let count = 0;
  for await (const user of User.find().sort({ age: 1 }).batchSize(7)) count += user.email ? 1 : 0;
  assert.equal(count, 52);
  const seen = [];
  await User.find({ age: { $lt: 40 } }).cursor({ batchSize: 3 }).eachAsync((user) => { seen.push(user.age); }, { parallel: 4 });
  assert.equal(seen.length, 23);
  const cursor = Post.find().cursor({ batchSize: 2 });
  await cursor.next();
  await cursor.close();
  const aggregated = [];
  for await (const row of User.aggregate([{ $sort: { age: -1 } }, { $project: { age: 1 } }]).cursor({ batchSize: 10 })) aggregated.push(row);
  assert.equal(aggregated.length, 52);
});

test('aggregation: unwind, group, lookup, facet, bucket', async () => {
  const tags = await Post.aggregate().match({ title: /^P/ }).unwind('tags')
    .group({ _id: '$tags', views: { $sum: '$views' }, titles: { $push: '$title' } }).sort('_id');
  assert.deepEqual(tags.map(({ _id, views, titles }) => [_id, views, titles.length]), [['t0', 307, 2], ['t1', 500, 2], ['t2', 700, 2]]);
  const joined = await Post.aggregate([
    { $match: { title: /^P[01]$/ } },
    { $lookup: { from: 'users', localField: 'author', foreignField: '_id', as: 'who' } },
    { $unwind: '$who' }, { $sort: { title: 1 } },
    { $project: { _id: 0, title: 1, email: '$who.email', year: { $year: '$published' } } },
  ]);
  assert.deepEqual(joined, [
    { title: 'P0', email: 'user1@example.com', year: new Date(2024, 0, 1).getUTCFullYear() },
    { title: 'P1', email: 'ann@example.com', year: 2024 }]);
  const [facets] = await User.aggregate().facet({
    roles: [{ $sortByCount: '$role' }],
    ages: [{ $bucket: { groupBy: '$age', boundaries: [0, 30, 50, 100], default: 'none', output: { n: { $sum: 1 } } } }],
  });
  assert.equal(facets.roles.reduce((sum, { count }) => sum + count, 0), 52);
  assert.deepEqual(facets.ages.map(({ _id }) => _id), [0, 30, 50, 'none']);
  const totals = await Post.aggregate([{ $match: { author: (await User.findOne({ email: 'ann@example.com' }))._id } }, { $count: 'n' }]);
  assert.deepEqual(totals, [{ n: 4 }]);
});

test('discriminators share a collection, and know their kind', async () => {
  await Book.create({ sku: 'b1', shop: 's', isbn: '123', pages: 300 });
  await Shirt.create({ sku: 's1', shop: 's', size: 'M' });
  assert.equal((await failure(Shirt.create({ sku: 's2', shop: 's', size: 'XXL' }))).name, 'ValidationError');
  assert.deepEqual((await Product.find().sort('sku')).map((p) => p.constructor.modelName), ['Book', 'Shirt']);
  assert.equal(await Book.countDocuments(), 1);
  assert.equal((await Product.findOne({ sku: 'b1' })).pages, 300);
  const error = await failure(Book.create({ sku: 's1', shop: 's' }));
  assert.deepEqual([error.code, error.keyValue], [11000, { shop: 's', sku: 's1' }]);
});

test('values of every schema type come back as they were', async () => {
  const uuid = new Types.UUID();
  const made = await Product.create({
    sku: 'types', shop: 's', price: '19.90', stock: 4, weight: 9007199254740993n, picture: Buffer.from('png'), uuid,
    ratio: 2, count32: 7, extra: { deep: [{ er: null }], date: new Date(0) },
  });
  const found = await Product.findById(made._id);
  assert.equal(found.price.toString(), '19.90');
  assert.equal(found.weight, 9007199254740993n);
  assert.equal(found.picture.toString(), 'png');
  assert.equal(found.uuid.toString(), uuid.toString());
  assert.deepEqual(found.extra, { deep: [{ er: null }], date: new Date(0) });
  assert.equal(await Product.countDocuments({ weight: { $type: 'long' }, ratio: { $type: 'double' }, count32: { $type: 'int' }, price: { $type: 'decimal' } }), 1);
  await Product.updateOne({ sku: 'types' }, { $inc: { price: Types.Decimal128.fromString('0.10') }, $unset: { extra: 1 } });
  assert.equal((await Product.findById(made._id)).price.toString(), '20.00');
  found.set('extra.deep', 5);
  found.markModified('extra');
  await found.save();
  assert.equal((await Product.collection.findOne({ _id: made._id })).extra.deep, 5);
  assert.equal((await failure(Product.create({ sku: 'half', shop: 's', stock: 1.5 }))).errors.stock.message, 'stock must be whole');
});

test('bulkWrite and bulkSave', async () => {
  const result = await Product.bulkWrite([
    { insertOne: { document: { sku: 'k1', shop: 'bulk', stock: 1 } } },
    { insertOne: { document: { sku: 'k2', shop: 'bulk', stock: 2 } } },
    { updateOne: { filter: { sku: 'k1', shop: 'bulk' }, update: { $inc: { stock: 10 } } } },
    { updateMany: { filter: { shop: 'bulk' }, update: { $set: { ratio: 0.5 } } } },
    { replaceOne: { filter: { sku: 'k3', shop: 'bulk' }, replacement: { sku: 'k3', shop: 'bulk', stock: 3 }, upsert: true } },
    { deleteOne: { filter: { sku: 'k2', shop: 'bulk' } } },
  ]);
  assert.deepEqual(
    [result.insertedCount, result.matchedCount, result.modifiedCount, result.upsertedCount, result.deletedCount], [2, 3, 3, 1, 1]);
  const products = await Product.find({ shop: 'bulk' }).sort('sku');
  products.forEach((product) => { product.stock += 1; });
  await Product.bulkSave(products);
  assert.deepEqual((await Product.find({ shop: 'bulk' }).sort('sku')).map(({ stock }) => stock), [12, 4]);
  const error = await failure(Product.bulkWrite([
    { insertOne: { document: { sku: 'k4', shop: 'bulk' } } },
    { insertOne: { document: { sku: 'k1', shop: 'bulk' } } },
    { insertOne: { document: { sku: 'k5', shop: 'bulk' } } }], { ordered: false }));
  assert.deepEqual([error.code, error.writeErrors.map(({ index }) => index), error.result.insertedCount], [11000, [1], 2]);
});

test('sessions without transactions order reads after writes', async () => {
  const session = await mongoose.startSession({ causalConsistency: true });
  await User.create([{ email: 's@example.com', name: { first: 'S' } }], { session });
  const user = await User.findOne({ email: 's@example.com' }).session(session);
  user.age = 44;
  await user.save({ session });
  assert.equal(await User.countDocuments({ email: 's@example.com', age: 44 }).session(session), 1);
  await session.endSession();
});

test('a transaction is committed or aborted as a whole', async () => {
  await mongoose.connection.transaction(async (session) => {
    await User.create([{ email: 'tx@example.com', name: { first: 'T' } }], { session });
    await User.updateOne({ email: 'tx@example.com' }, { age: 7 }, { session });
  });
  assert.equal(await User.countDocuments({ email: 'tx@example.com', age: 7 }), 1);
  const error = await failure(mongoose.connection.transaction(async (session) => {
    await User.deleteOne({ email: 'tx@example.com' }, { session });
    throw new Error('no');
  }));
  assert.equal(error.message, 'no');
  assert.equal(await User.countDocuments({ email: 'tx@example.com' }), 1);
});

test('explain, hint, maxTimeMS, comment', async () => {
  const plan = await User.find({ email: 'ann@example.com' }).explain('executionStats');
  assert.equal(plan.executionStats.nReturned, 1);
  assert.equal(plan.executionStats.totalDocsExamined, 1);
  assert.equal((await Post.find({ tags: 't1' }).hint('tags_1').maxTimeMS(5000).comment('why')).length, 2);
  assert.equal((await failure(Post.find({}).hint('nosuch'))).code, 2);
});

test('plugins of the connection: collections, models, drop', async () => {
  const names = (await mongoose.connection.listCollections()).map(({ name }) => name).sort();
  assert.deepEqual(names, ['posts', 'products', 'users']);
  const Temp = mongoose.model('Temp', new Schema({ a: Number }, { collection: 'temporary', versionKey: false }));
  await Temp.createCollection();
  await new Temp({ a: 1 }).save();
  assert.deepEqual(Object.keys(await Temp.findOne().lean()).sort(), ['_id', 'a']);
  await Temp.collection.drop();
  await mongoose.connection.createCollection('made');
  assert.equal((await mongoose.connection.listCollections()).some(({ name }) => name === 'made'), true);
});

test('places: a 2dsphere index, near and within', async () => {
  const placeSchema = new Schema({ name: String, at: { type: { type: String, enum: ['Point'] }, coordinates: [Number] } });
  placeSchema.index({ at: '2dsphere' });
  const Place = mongoose.model('Place', placeSchema);
  await Place.init();
  await Place.create([['Rome', 12.5, 41.9], ['Oslo', 10.75, 59.9], ['Bern', 7.45, 46.95]]
    .map(([name, ...coordinates]) => ({ name, at: { type: 'Point', coordinates } })));
  const milan = { type: 'Point', coordinates: [9.19, 45.46] };
  assert.deepEqual((await Place.find({ at: { $near: { $geometry: milan } } })).map(({ name }) => name), ['Bern', 'Rome', 'Oslo']);
  const close = await Place.find().where('at').near({ center: milan, maxDistance: 300_000, spherical: true });
  assert.deepEqual(close.map(({ name }) => name), ['Bern']);
  const box = [[[5, 40], [15, 40], [15, 50], [5, 50], [5, 40]]];
  assert.equal(await Place.countDocuments().where('at').within({ type: 'Polygon', coordinates: box }), 2);
  const [nearest] = await Place.aggregate().near({ near: milan, distanceField: 'far', spherical: true }).limit(1);
  assert.deepEqual([nearest.name, Math.round(nearest.far / 10_000)], ['Bern', 21]);
});

test('expiring documents, capped collections, validators, views', async () => {
  const tokenSchema = new Schema({ made: { type: Date, expires: '1h' } }, { capped: false });
  const Token = mongoose.model('Token', tokenSchema);
  await Token.init();
  assert.equal((await Token.listIndexes()).find(({ name }) => name === 'made_1').expireAfterSeconds, 3600);
  const Log = mongoose.model('Log', new Schema({ n: Number }, { capped: { size: 4096, max: 3 }, autoCreate: false }));
  await Log.createCollection();
  for (let n = 0; n < 5; n += 1) await Log.create({ n });
  assert.deepEqual((await Log.find()).map(({ n }) => n), [2, 3, 4]);
  const db = mongoose.connection;
  await db.createCollection('strict', { validator: { $jsonSchema: { required: ['name'] } } });
  const error = await failure(db.collection('strict').insertOne({ other: 1 }));
  assert.deepEqual([error.code, error.errInfo.details.operatorName], [121, '$jsonSchema']);
  const Grown = mongoose.model('Grown', new Schema({ age: Number, email: String }, { collection: 'grown', autoCreate: false }));
  await Grown.createCollection({ viewOn: 'users', pipeline: [{ $match: { age: { $gte: 60 } } }] });
  assert.equal(await Grown.countDocuments(), await User.countDocuments({ age: { $gte: 60 } }));
  assert.equal((await failure(Grown.create({ age: 70 }))).code, 166);
});

test('hundred saves at once', async () => {
  await Promise.all(Array.from({ length: 100 }, (_, n) => new Product({ sku: `p${n}`, shop: 'many', stock: n }).save()));
  assert.equal(await Product.countDocuments({ shop: 'many' }), 100);
  const [{ sum }] = await Product.aggregate([{ $match: { shop: 'many' } }, { $group: { _id: null, sum: { $sum: '$stock' } } }]);
  assert.equal(sum, 4950);
});

await run(() => mongoose.disconnect());
