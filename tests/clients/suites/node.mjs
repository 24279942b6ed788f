// The newest Node.js driver, as a web application uses it.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { Readable } from 'node:stream';
import { Binary, Decimal128, GridFSBucket, Long, MongoClient, ObjectId, Timestamp } from 'mongodb';
import { failure, run, test, waitUntil } from '../harness/tap.mjs';

const uri = process.env.FROND_URI;
const client = new MongoClient(uri, { serverSelectionTimeoutMS: 60_000 });

/** An empty database. */
async function fresh(name) {
  const db = client.db(name);
  await db.dropDatabase();
  return db;
}

test('the server introduces itself', async () => {
  const hello = await client.db('admin').command({ hello: 1 });
  assert.equal(hello.isWritablePrimary, true);
  assert.equal((await client.db('admin').command({ ping: 1 })).ok, 1);
  const info = await client.db('admin').admin().buildInfo();
  assert.match(info.version, /^8\./);
});

test('insert, index, query with sort and limit', async () => {
  const c = (await fresh('node')).collection('c');
  assert.equal(await c.createIndex({ k: -1, s: 1 }), 'k_-1_s_1');
  const one = await c.insertOne({ k: -1 });
  assert.ok(one.insertedId instanceof ObjectId);
  const many = await c.insertMany(Array.from({ length: 100 }, (_, n) => ({ _id: n, k: n % 10, s: `${n}` })));
  assert.equal(many.insertedCount, 100);
  const found = await c.find({ k: { $gte: 8 } }, { projection: { s: 0 } })
    .sort({ k: -1, _id: 1 }).limit(3).toArray();
  assert.deepEqual(found, [{ _id: 9, k: 9 }, { _id: 19, k: 9 }, { _id: 29, k: 9 }]);
  assert.equal((await c.findOne({ s: '42' }))._id, 42);
  assert.equal(await c.findOne({ s: 'none' }), null);
  assert.equal(await c.countDocuments({ k: { $in: [1, 2] } }), 20);
  assert.equal(await c.estimatedDocumentCount(), 101);
  assert.deepEqual((await c.distinct('k', { _id: { $lt: 3 } })).sort(), [0, 1, 2]);
  assert.deepEqual((await c.indexes()).map((index) => index.name), ['_id_', 'k_-1_s_1']);
});

test('values keep their types', async () => {
  const c = (await fresh('node')).collection('types');
  const document = {
    _id: new ObjectId(),
    date: new Date('2012-08-23T12:30:00.123Z'),
    long: Long.fromString('9007199254740993'),
    decimal: Decimal128.fromString('1.50'),
    binary: new Binary(Buffer.from([0, 255]), 0),
    timestamp: new Timestamp({ t: 5, i: 6 }),
    regex: /^a.*b$/i,
    nothing: null,
    nested: { list: [1, 'two', { three: 3 }], double: 1.5 },
  };
  await c.insertOne(document);
  const found = await c.findOne({}, { promoteLongs: false, promoteBuffers: false });
  assert.equal(found.long.toString(), '9007199254740993');
  assert.equal(found.decimal.toString(), '1.50');
  assert.deepEqual([found.date, found.regex, found.nothing], [document.date, document.regex, null]);
  assert.deepEqual(found.timestamp.toString(), document.timestamp.toString());
  assert.equal(found.nested.list[2].three.valueOf(), 3);
});

test('update operators, upsert, replace', async () => {
  const c = (await fresh('node')).collection('u');
  await c.insertOne({ _id: 1, n: 1, list: [1, 2, 3], old: 'x' });
  const result = await c.updateOne({ _id: 1 }, {
    $inc: { n: 4 }, $mul: { m: 3 }, $push: { list: 4 }, $rename: { old: 'new' },
    $set: { 'deep.er': true }, $max: { top: 7 }, $currentDate: { at: true },
  });
  assert.deepEqual([result.matchedCount, result.modifiedCount], [1, 1]);
  const { at, ...found } = await c.findOne();
  assert.ok(Math.abs(Date.now() - at) < 60_000);
  assert.deepEqual(found, { _id: 1, n: 5, list: [1, 2, 3, 4], m: 0, new: 'x', deep: { er: true }, top: 7 });
  await c.updateOne({ _id: 1 }, { $pull: { list: { $gt: 2 } }, $unset: { deep: '' } });
  await c.updateOne({ _id: 1 }, { $addToSet: { list: { $each: [2, 9] } } });
  assert.deepEqual((await c.findOne()).list, [1, 2, 9]);
  const upsert = await c.updateOne({ k: 'v' }, { $setOnInsert: { made: 1 } }, { upsert: true });
  assert.equal(upsert.upsertedCount, 1);
  assert.deepEqual(await c.findOne({ _id: upsert.upsertedId }), { _id: upsert.upsertedId, k: 'v', made: 1 });
  assert.equal((await c.updateMany({}, { $set: { all: true } })).modifiedCount, 2);
  assert.equal((await c.replaceOne({ _id: 1 }, { r: 1 })).modifiedCount, 1);
  assert.deepEqual(await c.findOne({ _id: 1 }), { _id: 1, r: 1 });
});

test('find one and update, replace, delete', async () => {
  const c = (await fresh('node')).collection('fam');
  await c.insertMany([{ _id: 1, v: 5 }, { _id: 2, v: 3 }]);
  assert.deepEqual(await c.findOneAndUpdate({}, { $inc: { v: 10 } }, { sort: { v: 1 } }), { _id: 2, v: 3 });
  assert.deepEqual(
    await c.findOneAndUpdate({ _id: 2 }, { $inc: { v: 1 } }, { returnDocument: 'after' }), { _id: 2, v: 14 });
  assert.deepEqual(await c.findOneAndReplace({ _id: 1 }, { w: 1 }), { _id: 1, v: 5 });
  assert.deepEqual(await c.findOneAndDelete({ v: 14 }), { _id: 2, v: 14 });
  assert.equal(await c.findOneAndDelete({ v: 14 }), null);
  const full = await c.findOneAndUpdate({ _id: 9 }, { $set: { a: 1 } }, { upsert: true, includeResultMetadata: true });
  assert.equal(full.lastErrorObject.upserted, 9);
});

test('delete', async () => {
  const c = (await fresh('node')).collection('d');
  await c.insertMany(Array.from({ length: 10 }, (_, n) => ({ n })));
  assert.equal((await c.deleteOne({ n: { $gt: 3 } })).deletedCount, 1);
  assert.equal((await c.deleteMany({ n: { $lt: 3 } })).deletedCount, 3);
  assert.equal(await c.countDocuments(), 6);
});

test('ten thousand documents page by page', async () => {
  const c = (await fresh('node')).collection('pages');
  await c.insertMany(Array.from({ length: 10_000 }, (_, n) => ({ _id: n, k: (n * 7919) % 10_000 })));
  await c.createIndex({ k: 1 });
  let expected = 0;
  for await (const document of c.find().sort({ k: 1 }).batchSize(128)) {
    assert.equal(document.k, expected);
    expected += 1;
  }
  assert.equal(expected, 10_000);
  const cursor = c.find().batchSize(5);
  await cursor.next();
  const id = cursor.id;
  await cursor.close();
  const error = await failure(client.db('node').command({ getMore: id, collection: 'pages' }));
  assert.equal(error.code, 43);
});

test('aggregate', async () => {
  const c = (await fresh('node')).collection('a');
  await c.insertMany([{ g: 'x', n: 1, t: ['p', 'q'] }, { g: 'y', n: 2, t: ['q'] }, { g: 'x', n: 3, t: [] }]);
  assert.deepEqual(
    await c.aggregate([
      { $match: { n: { $gt: 0 } } },
      { $group: { _id: '$g', sum: { $sum: '$n' }, avg: { $avg: '$n' }, all: { $push: '$n' } } },
      { $sort: { _id: 1 } },
    ]).toArray(),
    [{ _id: 'x', sum: 4, avg: 2, all: [1, 3] }, { _id: 'y', sum: 2, avg: 2, all: [2] }]);
  assert.deepEqual(
    await c.aggregate([{ $unwind: '$t' }, { $group: { _id: '$t', n: { $sum: 1 } } }, { $sort: { n: -1 } }]).toArray(),
    [{ _id: 'q', n: 2 }, { _id: 'p', n: 1 }]);
  const error = await failure(c.aggregate([{ $nosuch: 1 }]).toArray());
  assert.equal(error.code, 40324);
  assert.match(error.message, /Unrecognized pipeline stage name: '\$nosuch'/);
});

test('duplicates name their key, and bulks their documents', async () => {
  const c = (await fresh('node')).collection('dup');
  await c.createIndex({ u: 1 }, { unique: true });
  await c.insertOne({ _id: 1, u: 'a' });
  const error = await failure(c.insertOne({ _id: 2, u: 'a' }));
  assert.deepEqual([error.code, error.keyPattern, error.keyValue], [11000, { u: 1 }, { u: 'a' }]);
  const bulk = await failure(c.insertMany(
    [{ _id: 3, u: 3 }, { _id: 4, u: 3 }, { _id: 5, u: 5 }], { ordered: false }));
  assert.deepEqual(bulk.writeErrors.map((e) => [e.index, e.code]), [[1, 11000]]);
  assert.equal(bulk.insertedCount, 2);
  const ordered = await failure(c.bulkWrite([
    { insertOne: { document: { _id: 6, u: 6 } } },
    { updateOne: { filter: { _id: 1 }, update: { $set: { ok: 1 } } } },
    { insertOne: { document: { _id: 6, u: 7 } } },
    { deleteOne: { filter: { _id: 1 } } },
  ]));
  assert.deepEqual(ordered.writeErrors.map((e) => e.index), [2]);
  assert.deepEqual([ordered.result.insertedCount, ordered.result.modifiedCount, ordered.result.deletedCount], [1, 1, 0]);
});

test('a bulk write of the client, for wire version 25', async () => {
  const db = await fresh('node');
  const result = await client.bulkWrite([
    { name: 'insertOne', namespace: 'node.c', document: { _id: 1, a: 1 } },
    { name: 'insertOne', namespace: 'node.d', document: { _id: 1, a: 2 } },
    { name: 'updateOne', namespace: 'node.c', filter: {}, update: { $set: { a: 3 } }, sort: { a: -1 } },
    { name: 'deleteMany', namespace: 'node.d', filter: { a: 2 } },
  ]);
  assert.deepEqual([result.insertedCount, result.modifiedCount, result.deletedCount], [2, 1, 1]);
  assert.deepEqual(await db.collection('c').findOne(), { _id: 1, a: 3 });
});

test('errors carry codes', async () => {
  const db = await fresh('node');
  const unknown = await failure(db.command({ nosuch: 1 }));
  assert.deepEqual([unknown.code, unknown.codeName], [59, 'CommandNotFound']);
  assert.equal((await failure(db.collection('x').find({ a: { $nosuch: 1 } }).toArray())).code, 2);
});

test('collections and databases', async () => {
  const db = await fresh('nodecat');
  await db.createCollection('a');
  await db.collection('b').insertOne({});
  assert.deepEqual((await db.listCollections().toArray()).map((c) => c.name).sort(), ['a', 'b']);
  await db.collection('b').rename('c');
  await db.collection('a').drop();
  assert.deepEqual((await db.collections()).map((c) => c.collectionName), ['c']);
  const listed = await client.db().admin().listDatabases();
  assert.ok(listed.databases.some((d) => d.name === 'nodecat'));
  assert.equal((await db.stats()).collections, 1);
});

test('compression and the Unix socket', async () => {
  for (const options of ['compressors=zlib', 'compressors=zlib&zlibCompressionLevel=9']) {
    const other = new MongoClient(`${uri}${uri.includes('?') ? '&' : '/?'}${options}`);
    const c = other.db('node').collection('packed');
    await c.drop();
    await c.insertMany(Array.from({ length: 500 }, (_, n) => ({ _id: n, text: 'again and '.repeat(50) })));
    assert.equal((await c.find().toArray()).length, 500);
    await other.close();
  }
  const local = new MongoClient(`mongodb://${encodeURIComponent(process.env.FROND_SOCKET)}`);
  assert.equal(await local.db('node').collection('packed').countDocuments(), 500);
  await local.close();
});

test('sessions, retryable writes and unacknowledged writes', async () => {
  const db = await fresh('node');
  const c = db.collection('s');
  const session = client.startSession();
  await c.insertOne({ _id: 1 }, { session });
  assert.deepEqual(await c.findOne({}, { session }), { _id: 1 });
  await session.endSession();
  const silent = db.collection('s', { writeConcern: { w: 0 } });
  for (let n = 10; n < 210; n += 1) await silent.insertOne({ _id: n });
  await waitUntil('all documents', async () => (await c.countDocuments()) === 201);
});

test('many operations at once', async () => {
  const c = (await fresh('node')).collection('parallel');
  await c.insertOne({ _id: 'counter', n: 0 });
  await Promise.all(Array.from({ length: 500 }, (_, n) =>
    n % 2 ? c.insertOne({ _id: n }) : c.updateOne({ _id: 'counter' }, { $inc: { n: 1 } })));
  assert.equal((await c.findOne({ _id: 'counter' })).n, 250);
  assert.equal(await c.countDocuments(), 251);
});

test('GridFS: streams in and out, ranges, revisions, rename, delete', async () => {
  const bucket = new GridFSBucket(await fresh('nodefiles'), { bucketName: 'media', chunkSizeBytes: 1000 });
  const read = async (stream) => Buffer.concat(await stream.toArray());
  const text = Buffer.from(Array.from({ length: 10_500 }, (_, n) => n % 251));
  const upload = bucket.openUploadStream('a.bin', { metadata: { owner: 'ann' } });
  await pipeline(Readable.from([text.subarray(0, 999), text.subarray(999, 4000), text.subarray(4000)]), upload);
  const [file] = await bucket.find({ 'metadata.owner': 'ann' }).toArray();
  assert.deepEqual([file.length, file.chunkSize, file.filename], [10_500, 1000, 'a.bin']);
  assert.deepEqual(await read(bucket.openDownloadStream(upload.id)), text);
  assert.deepEqual(await read(bucket.openDownloadStream(upload.id, { start: 1998, end: 3003 })), text.subarray(1998, 3003));
  const second = bucket.openUploadStream('a.bin');
  second.end(Buffer.from('second'));
  await once(second, 'finish');
  assert.equal(String(await read(bucket.openDownloadStreamByName('a.bin'))), 'second');
  assert.deepEqual(await read(bucket.openDownloadStreamByName('a.bin', { revision: 0 })), text);
  await bucket.rename(second.id, 'b.bin');
  await bucket.delete(upload.id);
  assert.equal((await failure(read(bucket.openDownloadStreamByName('a.bin')))).code, 'ENOENT');
  const db = client.db('nodefiles');
  assert.equal(await db.collection('media.chunks').countDocuments(), 1);
  assert.deepEqual((await db.collection('media.chunks').indexes()).map(({ name, unique }) => [name, unique]),
    [['_id_', undefined], ['files_id_1_n_1', true]]);
  await bucket.drop();
  assert.deepEqual(await db.listCollections().toArray(), []);
});

await run(() => client.close());
