// The Node.js driver tails the oplog as Meteor does: its query, its regular expressions, its reading of entries. A cache that is
// kept by the entries alone must equal the collections.

import assert from 'node:assert/strict';
import { MongoClient } from 'mongodb';
import { PATIENCE_MS, run, test, waitUntil } from '../harness/tap.mjs';

const DATABASE = 'meteor';
const uri = process.env.FROND_URI;
const client = await MongoClient.connect(uri, { serverSelectionTimeoutMS: 60_000 });
const db = client.db(DATABASE);

const escape = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

/** The selector of a tail; `only` and `never` are lists of collections. */
function selectorOf(after, { only, never } = {}) {
  const criteria = [{
    $or: [
      { op: { $in: ['i', 'u', 'd'] } },
      { op: 'c', 'o.drop': { $exists: true } },
      { op: 'c', 'o.dropDatabase': 1 },
      { op: 'c', 'o.applyOps': { $exists: true } },
    ],
  }];
  const ns = new RegExp(`^(?:${[`${DATABASE}.`, 'admin.$cmd'].map(escape).join('|')})`);
  const full = (names) => names.map((name) => `${DATABASE}.${name}`);
  if (never) criteria.push({ ns: { $regex: ns, $nin: full(never) } });
  else if (only) criteria.push({ $or: [{ ns: /^admin\.\$cmd/ }, { ns: { $in: full(only) } }] });
  else criteria.push({ ns });
  if (after) criteria.push({ ts: { $gt: after } });
  return { $and: criteria };
}

/** Tails the oplog on connections of its own, and opens a new cursor after the last entry when one is lost. */
class Tail {
  constructor(collections) {
    this.collections = collections;
    this.entries = [];
    this.opened = 0;
    this.stopped = false;
    this.waiters = [];
  }

  async start() {
    const local = uri.replace('/?', '/local?');
    const options = { maxPoolSize: 1, minPoolSize: 1, serverSelectionTimeoutMS: 60_000 };
    this.tailing = await MongoClient.connect(local, options);
    this.asking = await MongoClient.connect(local, options);
    const { setName } = await this.asking.db('admin').command({ ismaster: 1 });
    assert.equal(setName, 'rs0');
    this.oplog = this.asking.db().collection('oplog.rs');
    const last = await this.oplog.findOne({}, { sort: { $natural: -1 }, projection: { ts: 1 } });
    assert.deepEqual(Object.keys(last), ['ts'], 'the oplog has no _id');
    this.last = last.ts;
    this.loop = this.follow();
    return this;
  }

  async follow() {
    const oplog = this.tailing.db().collection('oplog.rs');
    while (!this.stopped) {
      this.opened += 1;
      this.cursor = oplog.find(selectorOf(this.last, this.collections), { tailable: true, awaitData: true, oplogReplay: true });
      try {
        for await (const entry of this.cursor) {
          this.last = entry.ts;
          this.entries.push(entry);
          this.waiters = this.waiters.filter(({ ts, resolve }) => entry.ts.lessThan(ts) || resolve());
        }
      } catch (error) {
        if (!this.stopped && ![43, 237].includes(error.code)) throw error;
      }
      await new Promise((resolve) => { setTimeout(resolve, 100); });
    }
  }

  /** Waits until the tail has what was written before, as Meteor's write fence does, and returns all entries so far. */
  async caughtUp() {
    const entry = await this.oplog.findOne(selectorOf(undefined, this.collections), { projection: { ts: 1 }, sort: { $natural: -1 } });
    if (entry && this.last.lessThan(entry.ts)) {
      let late;
      const arrived = new Promise((resolve, reject) => {
        late = setTimeout(() => reject(new Error(`${entry.ts} did not come`)), PATIENCE_MS);
        this.waiters.push({ ts: entry.ts, resolve });
      });
      await Promise.race([arrived, this.loop]);
      clearTimeout(late);
    }
    return this.entries;
  }

  async stop() {
    this.stopped = true;
    await this.cursor.close();
    await this.loop;
    await this.tailing.close();
    await this.asking.close();
  }
}

/** The changes of an entry's difference as `$set` and `$unset`, as Meteor reads it: it knows no shortened arrays. */
function changesOf(diff, prefix = '', sets = {}, unsets = []) {
  const join = (key) => (prefix ? `${prefix}.${key}` : key);
  for (const [key, value] of Object.entries(diff)) {
    if (key === 'd') unsets.push(...Object.keys(value).map(join));
    else if (key === 'i' || key === 'u') for (const [name, field] of Object.entries(value)) sets[join(name)] = field;
    else if (key.startsWith('s') && value.a === true) {
      for (const [position, inner] of Object.entries(value)) {
        if (position === 'a') continue;
        assert.match(position, /^[su]\d+$/, `a part of an array that Meteor does not know, in ${JSON.stringify(diff)}`);
        const path = join(`${key.slice(1)}.${position.slice(1)}`);
        if (position[0] === 's') changesOf(inner, path, sets, unsets);
        else sets[path] = inner;
      }
    } else if (key.startsWith('s')) changesOf(value, join(key.slice(1)), sets, unsets);
    else assert.fail(`an unknown part ${key} in ${JSON.stringify(diff)}`);
  }
  return { sets, unsets };
}

/** The collections as the entries tell. */
function replay(entries) {
  const collections = new Map();
  const of = (name) => collections.get(name) ?? collections.set(name, new Map()).get(name);
  const at = (document, path) => {
    const names = path.split('.');
    const last = names.pop();
    return [names.reduce((inner, name) => { inner[name] ??= {}; return inner[name]; }, document), last];
  };
  const take = ({ op, ns, o, o2 }) => {
    if (ns === 'admin.$cmd') {
      assert.ok(o.applyOps, `an unknown command ${JSON.stringify(o)}`);
      o.applyOps.forEach(take);
      return;
    }
    const name = ns.slice(DATABASE.length + 1);
    if (name === '$cmd') {
      if (o.dropDatabase) collections.clear();
      else if ('drop' in o) collections.delete(o.drop);
      else assert.ok('create' in o && 'idIndex' in o, `an unknown command ${JSON.stringify(o)}`);
      return;
    }
    const documents = of(name);
    if (op === 'i') documents.set(String(o._id), structuredClone(o));
    else if (op === 'd') assert.ok(documents.delete(String(o._id)), `${o._id} was not there`);
    else if (op === 'u' && o.$v === 2 && o.diff) {
      const document = documents.get(String(o2._id));
      const { sets, unsets } = changesOf(o.diff);
      for (const [path, value] of Object.entries(sets)) { const [inner, last] = at(document, path); inner[last] = structuredClone(value); }
      for (const path of unsets) { const [inner, last] = at(document, path); delete inner[last]; }
    } else if (op === 'u') documents.set(String(o2._id), structuredClone(o));
    else assert.fail(`an unknown entry ${op}`);
  };
  entries.forEach(take);
  return collections;
}

async function compare(tail, names) {
  const copy = replay(await tail.caughtUp());
  for (const name of names) {
    const there = await db.collection(name).find().sort({ _id: 1 }).toArray();
    const got = [...copy.get(name)?.values() ?? []];
    got.sort((a, b) => (a._id < b._id ? -1 : 1));
    assert.deepEqual(got, there, name);
  }
}

async function fresh() {
  await db.dropDatabase();
}

test('inserts, updates, multi-updates and removals', async () => {
  await fresh();
  const tail = await new Tail().start();
  const posts = db.collection('posts');
  await posts.insertMany(Array.from({ length: 50 }, (_, n) => ({ _id: n, title: `post ${n}`, likes: 0, tags: ['a', 'b', 'c'], meta: { views: 0, by: { name: 'x' } } })));
  await posts.updateOne({ _id: 1 }, { $set: { title: 'changed', 'meta.by.name': 'y' }, $unset: { likes: 1 } });
  await posts.updateMany({ _id: { $gte: 10 } }, { $inc: { likes: 1, 'meta.views': 5 }, $push: { tags: 'new' } });
  await posts.updateMany({ _id: { $lt: 5 } }, { $pull: { tags: 'b' } });
  await posts.updateOne({ _id: 6 }, { $set: { 'tags.1': 'x' }, $addToSet: { list: 1 } });
  await posts.updateOne({ _id: 7 }, { $pop: { tags: -1 } });
  await posts.replaceOne({ _id: 8 }, { title: 'replaced' });
  await posts.updateOne({ _id: 'upserted' }, { $set: { title: 'u' } }, { upsert: true });
  await posts.deleteOne({ _id: 9 });
  await posts.deleteMany({ _id: { $gt: 40 } });
  await posts.findOneAndUpdate({ _id: 11 }, { $set: { found: true } });
  await compare(tail, ['posts']);
  const entries = tail.entries.filter(({ ns }) => ns === `${DATABASE}.posts`);
  assert.equal(entries.length, 50 + 1 + 40 + 5 + 1 + 1 + 1 + 1 + 1 + 9 + 1, 'an entry for each document that changed');
  for (const [place, entry] of entries.entries()) {
    assert.ok(entry.ui && entry.ts && entry.wall instanceof Date && Number(entry.v) === 2 && entry.t !== undefined, JSON.stringify(entry));
    if (place) assert.ok(entries[place - 1].ts.lessThan(entry.ts), 'times go up');
    if (entry.op === 'd') assert.deepEqual(Object.keys(entry.o), ['_id']);
    if (entry.op === 'u') assert.deepEqual(Object.keys(entry.o2), ['_id']);
  }
  assert.equal(tail.opened, 1, 'one cursor for all');
  await tail.stop();
});

test('other databases are not seen, and lists of collections are kept', async () => {
  await fresh();
  const [all, only, never] = await Promise.all([{}, { only: ['a'] }, { never: ['a'] }].map((lists) => new Tail(lists).start()));
  for (let n = 0; n < 10; n += 1) {
    await client.db('meteor_other').collection('a').insertOne({ n });
    await client.db('meteorites').collection('a').insertOne({ n });
    await db.collection('a').insertOne({ _id: n });
    await db.collection('b').insertOne({ _id: n });
  }
  const names = async (tail) => [...new Set((await tail.caughtUp()).map(({ ns }) => ns))].sort();
  assert.deepEqual(await names(all), ['meteor.a', 'meteor.b']);
  assert.deepEqual(await names(only), ['meteor.a']);
  assert.deepEqual(await names(never), ['meteor.b']);
  assert.deepEqual([all, only, never].map(({ entries }) => entries.length), [20, 10, 10]);
  await Promise.all([all, only, never].map((tail) => tail.stop()));
});

test('dropped collections and databases', async () => {
  await fresh();
  const tail = await new Tail().start();
  await db.collection('a').insertOne({ _id: 1 });
  await db.collection('b').insertOne({ _id: 1 });
  await db.collection('a').drop();
  await db.collection('a').insertOne({ _id: 2 });
  await compare(tail, ['a', 'b']);
  await db.dropDatabase();
  await db.collection('b').insertOne({ _id: 3 });
  await compare(tail, ['a', 'b']);
  const commands = tail.entries.filter(({ op }) => op === 'c').map(({ ns, o }) => [ns, o]);
  assert.deepEqual(commands[0], ['meteor.$cmd', { drop: 'a' }]);
  assert.ok(commands.some(([ns, o]) => ns === 'meteor.$cmd' && o.dropDatabase === 1), JSON.stringify(commands));
  await tail.stop();
});

test('transactions', async () => {
  await fresh();
  const tail = await new Tail().start();
  await db.collection('a').insertOne({ _id: 0, n: 0 });
  await client.withSession((session) => session.withTransaction(async () => {
    await db.collection('a').insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 2 }], { session });
    await db.collection('a').updateMany({}, { $inc: { n: 10 } }, { session });
    await db.collection('made').insertOne({ _id: 1 }, { session });
    await db.collection('a').deleteOne({ _id: 2 }, { session });
  }));
  await client.withSession(async (session) => {
    session.startTransaction();
    await db.collection('a').insertOne({ _id: 'aborted' }, { session });
    await session.abortTransaction();
  });
  await db.collection('a').insertOne({ _id: 3 });
  await compare(tail, ['a', 'made']);
  const whole = tail.entries.filter(({ ns }) => ns === 'admin.$cmd');
  assert.equal(whole.length, 1);
  assert.ok(whole[0].lsid && whole[0].txnNumber !== undefined && whole[0].prevOpTime, JSON.stringify(whole[0]));
  await tail.stop();
});

test('a fence after each write is quick', async () => {
  await fresh();
  const tail = await new Tail().start();
  let n = 0;
  const fence = async () => {
    const began = Date.now();
    await db.collection('fenced').insertOne({ _id: n });
    const entries = await tail.caughtUp();
    assert.equal(entries.at(-1).o._id, n);
    n += 1;
    return Date.now() - began;
  };
  for (let times = 0; times < 40; times += 1) await fence();
  // A busy machine may delay some. If an entry came only when the wait of the server is over, none would be quick.
  await waitUntil('a quick fence', async () => (await fence()) < 250);
  await tail.stop();
});

test('a tail that is far behind gets everything', async () => {
  await fresh();
  const tail = await new Tail().start();
  const many = db.collection('many');
  await many.insertMany(Array.from({ length: 5000 }, (_, n) => ({ _id: n, n, text: 'x'.repeat(100) })));
  await many.updateMany({}, { $inc: { n: 1 } });
  await many.deleteMany({ _id: { $gte: 100 } });
  await compare(tail, ['many']);
  assert.equal(tail.entries.length, 5000 + 5000 + 4900);
  await tail.stop();
});

test('a tail whose cursor is lost goes on after the last entry', async () => {
  await fresh();
  const tail = await new Tail().start();
  const documents = db.collection('lost');
  for (let n = 0; n < 5; n += 1) {
    await documents.insertOne({ _id: n, n: 0 });
    await tail.caughtUp();
    await client.db('local').command({ killCursors: 'oplog.rs', cursors: [tail.cursor.id] });
    await documents.updateMany({}, { $inc: { n: 1 } });
  }
  await compare(tail, ['lost']);
  assert.equal(tail.entries.length, 5 + 1 + 2 + 3 + 4 + 5);
  assert.ok(tail.opened >= 4, `${tail.opened} cursors`);
  await tail.stop();
});

await run(async () => {
  await db.dropDatabase();
  await client.close();
});
