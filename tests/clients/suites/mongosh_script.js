// Runs inside mongosh (--file): commands of a first interactive session, and of scripts.
// Prints TAP without numbers; mongosh.py numbers and counts.

/* global Mongo, db: writable, process, sh, print, use, EJSON, ObjectId, ISODate, NumberLong, NumberDecimal */

let shell = db.getSiblingDB('shell');

function equal(got, expected) {
  const a = EJSON.stringify(got);
  const b = EJSON.stringify(expected);
  if (a !== b) throw new Error(`got ${a}, expected ${b}`);
}

function failure(run) {
  try {
    run();
  } catch (error) {
    return error;
  }
  throw new Error('no error');
}

function test(name, run) {
  try {
    shell.dropDatabase();
    run();
    print(`ok - ${name}`);
  } catch (error) {
    print(`not ok - ${name}`);
    print(`  # ${error}`);
  }
}

/** A test of what each server has for itself, on the first one. */
function testOfOneServer(name, run) {
  const all = db;
  db = new Mongo(`mongodb://127.0.0.1:${process.env.FROND_PORT}`).getDB('test');
  shell = db.getSiblingDB('shell');
  test(name, run);
  db = all;
  shell = db.getSiblingDB('shell');
}

test('insert, index, query with sort and limit', () => {
  equal(shell.c.insertOne({ _id: 1, k: 1 }), { acknowledged: true, insertedId: 1 });
  shell.c.insertMany([{ _id: 2, k: 5 }, { _id: 3, k: 3 }, { _id: 4, k: 4, when: ISODate('2020-01-01') }]);
  equal(shell.c.createIndex({ k: -1 }), 'k_-1');
  equal(shell.c.find({ k: { $gt: 1 } }, { k: 1 }).sort({ k: -1 }).limit(2).toArray(), [{ _id: 2, k: 5 }, { _id: 4, k: 4 }]);
  equal(shell.c.findOne({ _id: 4 }).when, ISODate('2020-01-01'));
  equal(shell.c.countDocuments({ k: { $gte: 3 } }), 3);
  equal(shell.c.estimatedDocumentCount(), 4);
  equal(shell.c.distinct('k'), [1, 3, 4, 5]);
  equal(shell.c.getIndexes().map((index) => index.name), ['_id_', 'k_-1']);
});

test('update, upsert, delete, find and modify', () => {
  shell.c.insertOne({ _id: 1, n: 1, list: ['a'] });
  equal(shell.c.updateOne({ _id: 1 }, { $inc: { n: 1 }, $push: { list: 'b' } }).modifiedCount, 1);
  equal(shell.c.findOne(), { _id: 1, n: 2, list: ['a', 'b'] });
  const upsert = shell.c.updateOne({ _id: 2 }, { $set: { x: NumberDecimal('1.10') } }, { upsert: true });
  equal([upsert.upsertedCount, upsert.insertedId], [1, 2]);
  equal(shell.c.findOne({ _id: 2 }).x.toString(), '1.10');
  equal(shell.c.replaceOne({ _id: 2 }, { y: NumberLong('9007199254740993') }).modifiedCount, 1);
  equal(shell.c.findOne({ _id: 2 }).y.toString(), '9007199254740993');
  equal(shell.c.findOneAndUpdate({ _id: 1 }, { $unset: { list: 1 } }, { returnDocument: 'after' }), { _id: 1, n: 2 });
  equal(shell.c.findAndModify({ query: { _id: 1 }, update: { $inc: { n: 1 } }, new: true }), { _id: 1, n: 3 });
  equal(shell.c.deleteOne({ _id: 1 }).deletedCount, 1);
  equal(shell.c.deleteMany({}).deletedCount, 1);
});

test('ten thousand documents page by page', () => {
  const documents = [];
  for (let n = 0; n < 10000; n += 1) documents.push({ _id: n });
  shell.c.insertMany(documents);
  let expected = 0;
  shell.c.find().sort({ _id: 1 }).batchSize(200).forEach((document) => {
    equal(document._id, expected);
    expected += 1;
  });
  equal(expected, 10000);
});

test('a duplicate is error 11000', () => {
  shell.c.insertOne({ _id: 1 });
  const error = failure(() => shell.c.insertOne({ _id: 1 }));
  equal([error.code, /E11000 duplicate key error/.test(error.message)], [11000, true]);
  const bulk = failure(() => shell.c.insertMany([{ _id: 5 }, { _id: 1 }, { _id: 6 }], { ordered: false }));
  equal(bulk.writeErrors.map((e) => [e.index, e.code]), [[1, 11000]]);
});

test('aggregate', () => {
  shell.c.insertMany([{ g: 1, n: 2 }, { g: 1, n: 3 }, { g: 2, n: 4 }]);
  equal(
    shell.c.aggregate([{ $group: { _id: '$g', sum: { $sum: '$n' } } }, { $sort: { _id: 1 } }]).toArray(),
    [{ _id: 1, sum: 5 }, { _id: 2, sum: 4 }]);
});

test('bulk write', () => {
  const result = shell.c.bulkWrite([
    { insertOne: { document: { _id: 1 } } },
    { updateOne: { filter: { _id: 1 }, update: { $set: { x: 1 } } } },
    { deleteOne: { filter: { _id: 9 } } },
  ]);
  equal([result.insertedCount, result.modifiedCount, result.deletedCount], [1, 1, 0]);
});

test('a bulk write of the connection, which the shell has from 8.0 on', () => {
  const result = db.getMongo().bulkWrite([
    { name: 'insertOne', namespace: 'shell.c', document: { _id: 1 } },
    { name: 'insertOne', namespace: 'shell.d', document: { _id: 1 } },
    { name: 'updateOne', namespace: 'shell.d', filter: {}, update: { $set: { x: 1 } } },
  ]);
  equal([result.insertedCount, result.modifiedCount], [2, 1]);
  equal(shell.d.findOne(), { _id: 1, x: 1 });
});

test('explain has plain numbers', () => {
  shell.c.insertOne({ _id: 1 });
  const stats = shell.c.find({ _id: { $gt: 0 } }).explain('executionStats').executionStats;
  equal([stats.nReturned, stats.totalKeysExamined, stats.executionStages.inputStage.seeks], [1, 1, 1]);
});

test('databases and collections', () => {
  shell.createCollection('empty');
  shell.c.insertOne({});
  equal(shell.getCollectionNames().sort(), ['c', 'empty']);
  equal(shell.getCollectionInfos({ name: 'c' })[0].type, 'collection');
  equal(db.adminCommand({ listDatabases: 1, nameOnly: true }).databases.some((d) => d.name === 'shell'), true);
  shell.c.renameCollection('d');
  equal(shell.d.drop(), true);
  equal(shell.getCollectionNames(), ['empty']);
});

test('statistics and server information', () => {
  shell.c.insertOne({ pad: 'x' });
  equal(shell.c.stats().count, 1);
  equal(shell.stats().collections, 1);
  equal(shell.c.validate().valid, true);
  equal(db.hello().isWritablePrimary, true);
  equal(db.serverStatus().ok, 1);
  equal(/^8\./.test(db.version()), true);
  equal(db.hostInfo().ok, 1);
  equal(db.serverBuildInfo().ok, 1);
});

testOfOneServer('what runs now, and the log', () => {
  const here = db.currentOp().inprog.find((one) => one.command.aggregate === 1);
  equal(here.command.pipeline[0].$currentOp.truncateOps, false);
  equal(db.currentOp({ 'command.nosuch': 1 }).inprog, []);
  equal(db.currentOp(true).inprog.length > 0, true);
  db.setLogLevel(1);
  equal(db.getLogComponents().verbosity, 1);
  db.setLogLevel(0);
  db.setLogLevel(1, 'query');
  equal([db.getLogComponents().verbosity, db.getLogComponents().query.verbosity], [0, 1]);
  db.setLogLevel(-1, 'query');
  equal(failure(() => db.setLogLevel(1, 'sharding')).code, 238);
  equal(db.commandHelp('find').length > 0, true);
});

testOfOneServer('the profiler, by the helpers of the shell', () => {
  shell.c.insertMany([{ _id: 1, a: 1 }, { _id: 2, a: 2 }]);
  equal(shell.setProfilingLevel(2, { slowms: 50, sampleRate: 0.5 }).was, 0);
  const status = shell.getProfilingStatus();
  equal([status.was, status.slowms, status.sampleRate], [2, 50, 0.5]);
  equal(shell.c.find({ a: 2 }).comment('mine').toArray().length, 1);
  const entry = shell.system.profile.find({ 'command.comment': 'mine' }).toArray()[0];
  equal([entry.op, entry.ns, entry.planSummary, entry.docsExamined, entry.nreturned], ['query', 'shell.c', 'COLLSCAN', 2, 1]);
  equal(shell.setProfilingLevel(1, { filter: { op: 'query' } }).was, 2);
  equal(shell.getProfilingStatus().filter, { op: 'query' });
  shell.setProfilingLevel(0, { slowms: 100, sampleRate: 1, filter: 'unset' });
  equal(shell.getProfilingStatus().was, 0);
});

testOfOneServer('helpers that show figures', () => {
  shell.c.insertMany([{ _id: 1, a: 1 }, { _id: 2, a: 2 }]);
  shell.c.find({ _id: 1 }).toArray();
  const [latency] = shell.c.latencyStats({ histograms: true });
  equal([latency.latencyStats.reads.ops > 0, latency.latencyStats.writes.histogram.length > 0], [true, true]);
  equal(shell.c.dataSize() > 0, true);
  // The sizes of files in a TiKV cluster are not known.
  const known = db.hello().msg !== 'isdbgrid';
  equal([shell.c.totalSize() > 0, shell.c.storageSize() > 0, shell.c.totalIndexSize() > 0], [known, known, known]);
  equal([shell.stats().objects, shell.stats().dataSize > 0, shell.stats().indexes], [2, true, 1]);
  equal(db.adminCommand({ top: 1 }).totals['shell.c'].total.count > 0, true);
  const status = db.serverStatus();
  equal([status.connections.current > 0, status.mem.resident > 0, status.opcounters.insert > 0], [true, true, true]);
  equal(db.hostInfo().system.memSizeMB > 0, true);
  equal(typeof shell.printCollectionStats(), 'object');
  equal(db.getMongo().getDB('admin').adminCommand({ getLog: 'startupWarnings' }).ok, 1);
});

test('unknown commands are refused', () => {
  const error = failure(() => shell.runCommand({ nosuch: 1 }));
  equal([error.code, error.codeName], [59, 'CommandNotFound']);
  equal(failure(() => shell.c.find({ a: { $nosuch: 1 } }).toArray()).code, 2);
});

test('explain shows the plan', () => {
  shell.c.createIndex({ a: 1 });
  shell.c.insertOne({ a: 1 });
  equal(/IXSCAN/.test(EJSON.stringify(shell.c.find({ a: 1 }).explain())), true);
});
