// Change streams of the Node.js driver, newest, as applications use them: events of an emitter, iteration, closing, resuming.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { MongoClient, Timestamp } from 'mongodb';
import { failure, run, test, waitUntil } from '../harness/tap.mjs';

const client = await MongoClient.connect(process.env.FROND_URI, { serverSelectionTimeoutMS: 60_000 });
const db = client.db('node_streams');
const { msg } = await db.admin().command({ hello: 1 });
const quick = { maxAwaitTimeMS: 100 };

/** Calls `body` with an open stream of a target. */
async function watching(target, pipeline, options, body) {
  const stream = target.watch(pipeline, { ...quick, ...options });
  try {
    // The driver opens a stream when it is first read.
    assert.equal(await stream.tryNext(), null);
    await body(stream);
  } finally {
    await stream.close();
  }
}

async function take(stream, count) {
  const events = [];
  while (events.length < count) events.push(await stream.next());
  return events;
}

async function fresh(...names) {
  await db.dropDatabase();
  for (const name of names) await db.createCollection(name);
  return names.map((name) => db.collection(name));
}

test('an emitter tells of changes until it is closed', async () => {
  const [posts] = await fresh('posts');
  const stream = posts.watch([], quick);
  const seen = [];
  stream.on('change', (event) => seen.push(event));
  // The first empty batch has a token.
  await once(stream, 'resumeTokenChanged');
  for (let n = 0; n < 20; n += 1) await posts.insertOne({ _id: n });
  await waitUntil('20 events', () => seen.length >= 20);
  assert.deepEqual(seen.map(({ documentKey }) => documentKey._id), Array.from({ length: 20 }, (_, n) => n));
  const closed = once(stream, 'close');
  await stream.close();
  await closed;
  await posts.insertOne({ _id: 'after' });
  assert.equal(seen.length, 20);
});

test('a cache is kept by iteration', async () => {
  const [items] = await fresh('items');
  await watching(items, [{ $match: { operationType: { $ne: 'drop' } } }], { fullDocument: 'updateLookup' }, async (stream) => {
    const cache = new Map();
    const keeping = (async () => {
      for await (const { operationType, documentKey, fullDocument } of stream) {
        if (documentKey._id === 'end') return;
        if (operationType === 'delete' || !fullDocument) cache.delete(documentKey._id);
        else cache.set(documentKey._id, fullDocument);
      }
    })();
    await items.insertMany(Array.from({ length: 100 }, (_, n) => ({ _id: n, n })));
    await items.updateMany({ n: { $lt: 50 } }, { $inc: { n: 1000 }, $set: { 'sub.x': 1 } });
    await items.deleteMany({ n: { $gte: 90, $lt: 100 } });
    await items.replaceOne({ _id: 5 }, { replaced: true });
    await items.bulkWrite([{ insertOne: { document: { _id: 'a' } } }, { updateOne: { filter: { _id: 'b' }, update: { $set: { u: 1 } }, upsert: true } }, { deleteOne: { filter: { _id: 'a' } } }]);
    await items.insertOne({ _id: 'end' });
    await keeping;
    const there = await items.find({ _id: { $ne: 'end' } }).toArray();
    assert.equal(cache.size, there.length);
    for (const document of there) assert.deepEqual(cache.get(document._id), document);
  });
});

test('an iteration goes on when its cursor is killed', async () => {
  const [c] = await fresh('c');
  await watching(c, [], {}, async (stream) => {
    for (let n = 0; n < 4; n += 1) {
      await c.insertOne({ _id: n });
      assert.equal((await stream.next()).documentKey._id, n);
      await db.command({ killCursors: 'c', cursors: [stream.cursor.id] });
    }
  });
});

test('streams go on by token, after an invalidation, and from a time', async () => {
  const [c] = await fresh('c');
  let events;
  await watching(c, [], {}, async (stream) => {
    await c.insertMany([{ _id: 1 }, { _id: 2 }, { _id: 3 }]);
    events = await take(stream, 3);
    // Servers of a TiKV cluster may have looked further than the last event already.
    if (msg !== 'isdbgrid') assert.deepEqual(stream.resumeToken, events[2]._id);
    assert.ok(events[0].clusterTime instanceof Timestamp && events[0].wallTime instanceof Date);
  });
  for (const [options, expected] of [
    [{ resumeAfter: events[0]._id }, [2, 3]],
    [{ startAfter: events[1]._id }, [3]],
    [{ startAtOperationTime: events[1].clusterTime }, [2, 3]],
  ]) {
    const stream = c.watch([], { ...quick, ...options });
    assert.deepEqual((await take(stream, expected.length)).map(({ documentKey }) => documentKey._id), expected);
    await stream.close();
  }
  await watching(c, [], {}, async (stream) => {
    await c.drop();
    const [drop, invalidate] = await take(stream, 2);
    assert.deepEqual([drop.operationType, invalidate.operationType], ['drop', 'invalidate']);
    assert.equal((await failure(c.watch([], { ...quick, resumeAfter: invalidate._id }).next())).code, 260);
    await c.insertOne({ _id: 'again' });
    const after = c.watch([], { ...quick, startAfter: invalidate._id });
    assert.equal((await after.next()).documentKey._id, 'again');
    await after.close();
  });
});

test('databases, the cluster, transactions and images', async () => {
  await fresh();
  const before = await db.createCollection('before', { changeStreamPreAndPostImages: { enabled: true } });
  const images = { fullDocumentBeforeChange: 'required', fullDocument: 'required' };
  await before.insertOne({ _id: 1, n: 1 });
  await watching(db, [], {}, (wide) => watching(client, [{ $match: { 'ns.db': 'node_streams' } }], {}, (widest) => watching(before, [], images, async (stream) => {
    await client.withSession((session) => session.withTransaction(async () => {
      await before.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session });
      await before.deleteOne({ _id: 1 }, { session });
      await before.insertOne({ _id: 2 }, { session });
    }));
    const [update, remove, insert] = await take(stream, 3);
    assert.deepEqual([update.fullDocumentBeforeChange, update.fullDocument], [{ _id: 1, n: 1 }, { _id: 1, n: 2 }]);
    assert.deepEqual(remove.fullDocumentBeforeChange, { _id: 1, n: 2 });
    assert.deepEqual(insert.fullDocument, { _id: 2 });
    for (const other of [wide, widest]) {
      const events = await take(other, 3);
      assert.deepEqual(events.map(({ _id }) => _id), [update, remove, insert].map(({ _id }) => _id));
      assert.ok(events.every(({ lsid, txnNumber }) => lsid && txnNumber !== undefined));
    }
  })));
});

await run(async () => {
  await db.dropDatabase();
  await client.close();
});
