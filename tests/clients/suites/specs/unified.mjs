// Runs files in MongoDB's unified test format with the Node.js driver: as much of the format as the specifications of
// transactions, sessions, retries, causal consistency, change streams, server discovery and concerns need. Prints a line of JSON for
// each test.
//
//   node unified.mjs FILE...     against FROND_URI

import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { finished } from 'node:stream/promises';
import { BSON, ChangeStream, GridFSBucket, MongoBulkWriteError, MongoClient, MongoServerError, ReadPreference } from 'mongodb';

import { count, observe } from './unified_events.mjs';
import { matches, mismatch } from './unified_match.mjs';

const { EJSON } = BSON;
const SECONDS_MAX = 30;
const WAIT_MS_MAX = 10_000;
const uri = process.env.FROND_URI;

// The tests count connections that are checked out: `connect` must not check out one itself.
const OPTIONS = { monitorCommands: true, __skipPingOnConnect: true };
// For tests of commands. Those of discovery get the driver's own pace.
const QUICK = { minHeartbeatFrequencyMS: 50 };

/** A test that this driver or server cannot run, with the reason. */
class Skip extends Error {}

/** The driver's options for those of the format. */
function options({ readPreference, defaultTransactionOptions, returnDocument, ...rest }) {
  const converted = { ...rest };
  if (readPreference) converted.readPreference = ReadPreference.fromOptions({ readPreference });
  if (defaultTransactionOptions) converted.defaultTransactionOptions = options(defaultTransactionOptions);
  if (returnDocument) converted.returnDocument = returnDocument.toLowerCase();
  return converted;
}

/** Whether the server meets one of the requirements of a file or test. */
function isMet(requirements, server) {
  const parts = (version) => version.split('.').map(Number);
  const compare = (a, b) => {
    for (let i = 0; i < 3; i += 1) if ((a[i] ?? 0) !== (b[i] ?? 0)) return (a[i] ?? 0) - (b[i] ?? 0);
    return 0;
  };
  return requirements.some((one) => (!one.minServerVersion || compare(server.version, parts(one.minServerVersion)) >= 0)
    && (!one.maxServerVersion || compare(server.version, parts(one.maxServerVersion)) <= 0)
    && (!one.topologies || one.topologies.includes('replicaset'))
    && (!one.serverParameters || Object.entries(one.serverParameters).every(([name, value]) => matches(value, server.parameters[name])))
    && (one.auth === undefined || one.auth === uri.includes('@')) && !one.csfle && one.serverless !== 'require');
}

/** The entities of one test. */
class Entities {
  constructor() {
    this.all = new Map();
    this.events = new Map();
    this.lsids = new Map();
  }

  get(id) {
    if (!this.all.has(id)) throw new Error(`no entity ${id}`);
    return this.all.get(id);
  }

  async create(description) {
    const [[kind, spec]] = Object.entries(description);
    const make = { client: 'client', database: 'database', collection: 'collection', session: 'session', bucket: 'bucket', thread: 'thread' }[kind];
    if (!make) throw new Skip(`entities of the kind ${kind} are not used in these specifications`);
    this.all.set(spec.id, await this[make](spec));
  }

  async client({ id, uriOptions = {}, observeEvents = [], ignoreCommandMonitoringEvents = [], observeLogMessages }) {
    if (observeLogMessages) throw new Skip('messages of the driver\'s log are not observed by this runner');
    // The class URL does not know several hosts.
    const [hosts, query] = uri.split('?');
    const parameters = new URLSearchParams(query);
    for (const [name, value] of Object.entries(uriOptions)) parameters.set(name, value);
    const isQuick = observeEvents.every((name) => name.startsWith('command'));
    const client = new MongoClient(`${hosts}?${parameters}`, { ...OPTIONS, ...(isQuick && QUICK) });
    const { seen, unknown } = observe(client, observeEvents, ignoreCommandMonitoringEvents);
    if (unknown.length) throw new Skip(`events of the kinds ${unknown} are not observed by this runner`);
    this.events.set(id, seen);
    await client.connect();
    return client;
  }

  /** Operations that run one after the other, beside those of the test. */
  thread() {
    return { last: Promise.resolve() };
  }

  database({ client, databaseName, databaseOptions = {} }) {
    return this.get(client).db(databaseName, options(databaseOptions));
  }

  collection({ database, collectionName, collectionOptions = {} }) {
    return this.get(database).collection(collectionName, options(collectionOptions));
  }

  session({ id, client, sessionOptions = {} }) {
    const session = this.get(client).startSession(options(sessionOptions));
    this.lsids.set(id, session.id);
    // It goes back to the pool at the session's end.
    session.kept = session.serverSession;
    return session;
  }

  bucket({ database }) {
    return new GridFSBucket(this.get(database));
  }

  async close() {
    for (const entity of this.all.values()) if (entity instanceof ChangeStream) await entity.close();
    for (const entity of this.all.values()) if (entity.constructor.name === 'ClientSession') await entity.endSession();
    for (const entity of this.all.values()) if (entity instanceof MongoClient) await entity.close();
  }
}

const collect = async (stream) => {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
};

const write = (model) => {
  const [[name, { arrayFilters, ...rest }]] = Object.entries(model);
  return { [name]: { ...rest, ...(arrayFilters && { arrayFilters }) } };
};

// The results of single writes, without a field that the specification does not have.
const plain = (results) => (results instanceof Map
  ? Object.fromEntries([...results].map(([place, { didUpsert, ...rest }]) => [place, rest])) : results);

/** Opens a change stream at once, as the format demands; the driver would do so when it is read. */
async function watch(entity, { pipeline, ...rest }) {
  const stream = entity.watch(pipeline, rest);
  await stream.cursor.cursorInit();
  return stream;
}

/** The driver's calls by the kind of the entity and the name of the operation. */
const OPERATIONS = {
  MongoClient: {
    listDatabases: (client, a) => client.db('admin').admin().listDatabases(a).then(({ databases }) => databases),
    listDatabaseNames: (client, a) => client.db('admin').admin().listDatabases({ ...a, nameOnly: true }).then(({ databases }) => databases.map(({ name }) => name)),
    dropDatabase: (client, { database, ...a }) => client.db(database).dropDatabase(a),
    createChangeStream: watch,
    close: (client) => client.close(),
    clientBulkWrite: async (client, { models, ...a }) => {
      const calls = models.map((model) => { const [[name, spec]] = Object.entries(model); return { name, ...spec }; });
      const result = await client.bulkWrite(calls, a);
      return { ...result, insertResults: plain(result.insertResults), updateResults: plain(result.updateResults), deleteResults: plain(result.deleteResults) };
    },
  },
  Db: {
    runCommand: (db, { command, readPreference, commandName, ...a }) => db.command(command, { ...a, ...(readPreference && options({ readPreference })) }),
    aggregate: (db, { pipeline, ...a }) => db.aggregate(pipeline, a).toArray(),
    createCollection: (db, { collection, ...a }) => db.createCollection(collection, a).then(() => undefined),
    dropCollection: (db, { collection, ...a }) => db.dropCollection(collection, a),
    listCollections: (db, { filter = {}, ...a }) => db.listCollections(filter, a).toArray(),
    listCollectionNames: (db, { filter = {}, ...a }) => db.listCollections(filter, { ...a, nameOnly: true }).toArray(),
    createChangeStream: watch,
  },
  Collection: {
    aggregate: (c, { pipeline, ...a }) => c.aggregate(pipeline, a).toArray(),
    bulkWrite: (c, { requests, ...a }) => c.bulkWrite(requests.map(write), a),
    countDocuments: (c, { filter, ...a }) => c.countDocuments(filter, a),
    createIndex: (c, { keys, ...a }) => c.createIndex(keys, a),
    createChangeStream: watch,
    deleteMany: (c, { filter, ...a }) => c.deleteMany(filter, a),
    deleteOne: (c, { filter, ...a }) => c.deleteOne(filter, a),
    distinct: (c, { fieldName, filter = {}, ...a }) => c.distinct(fieldName, filter, a),
    dropIndex: (c, { name, ...a }) => c.dropIndex(name, a),
    dropIndexes: (c, a) => c.dropIndexes(a),
    estimatedDocumentCount: (c, a) => c.estimatedDocumentCount(a),
    find: (c, { filter, ...a }) => c.find(filter, a).toArray(),
    findOne: (c, { filter, ...a }) => c.findOne(filter, a),
    findOneAndDelete: (c, { filter, ...a }) => c.findOneAndDelete(filter, a),
    findOneAndReplace: (c, { filter, replacement, ...a }) => c.findOneAndReplace(filter, replacement, options(a)),
    findOneAndUpdate: (c, { filter, update, ...a }) => c.findOneAndUpdate(filter, update, options(a)),
    insertMany: (c, { documents, ...a }) => c.insertMany(documents, a),
    insertOne: (c, { document, ...a }) => c.insertOne(document, a),
    listIndexes: (c, a) => c.listIndexes(a).toArray(),
    listIndexNames: (c, a) => c.listIndexes(a).toArray().then((indexes) => indexes.map(({ name }) => name)),
    rename: (c, { to, ...a }) => c.rename(to, a).then(() => undefined),
    replaceOne: (c, { filter, replacement, ...a }) => c.replaceOne(filter, replacement, a),
    updateMany: (c, { filter, update, ...a }) => c.updateMany(filter, update, a),
    updateOne: (c, { filter, update, ...a }) => c.updateOne(filter, update, a),
  },
  ChangeStream: {
    iterateUntilDocumentOrError: (stream) => stream.next(),
  },
  ClientSession: {
    startTransaction: (s, a) => s.startTransaction(options(a)),
    commitTransaction: (s) => s.commitTransaction(),
    abortTransaction: (s) => s.abortTransaction(),
    endSession: (s) => s.endSession(),
    withTransaction: (s, { callback, ...a }, test) => s.withTransaction(async () => {
      for (const operation of callback) await test.operation(operation, true);
    }, options(a)).then(() => undefined),
  },
  GridFSBucket: {
    download: (b, { id, ...a }) => collect(b.openDownloadStream(id, a)),
    downloadByName: (b, { filename, ...a }) => collect(b.openDownloadStreamByName(filename, a)),
    upload: (b, { filename, source, ...a }) => finished(b.openUploadStream(filename, a).end(Buffer.from(source.$$hexBytes, 'hex'))),
    delete: (b, { id, ...a }) => b.delete(id, a),
    rename: (b, { id, newFilename }) => b.rename(id, newFilename),
  },
};

const STATES = { NO_TRANSACTION: 'none', STARTING_TRANSACTION: 'starting', TRANSACTION_IN_PROGRESS: 'in_progress', TRANSACTION_COMMITTED: 'committed', TRANSACTION_COMMITTED_EMPTY: 'committed', TRANSACTION_ABORTED: 'aborted' };

/** The address of the primary that a client knows. */
const primaryOf = (topology) => [...topology.servers.values()].find(({ type }) => type === 'RSPrimary')?.address;

/** Waits for a condition. */
async function waitUntil(what, holds, limit = WAIT_MS_MAX) {
  const until = performance.now() + limit;
  while (!holds()) {
    if (performance.now() > until) throw new Error(`${what}: not within ${limit} ms`);
    await new Promise((resolve) => { setTimeout(resolve, 10); });
  }
}

/** One test of a file. */
class Test {
  constructor(server) {
    this.server = server;
    this.entities = new Entities();
    this.failPoints = [];
  }

  async run(file, { operations, expectEvents = [], outcome = [] }) {
    for (const { databaseName, collectionName, documents } of file.initialData ?? []) {
      const collection = this.server.client.db(databaseName).collection(collectionName, { writeConcern: { w: 'majority' } });
      await collection.drop();
      if (documents.length) await collection.insertMany(documents);
      else await this.server.client.db(databaseName).createCollection(collectionName);
    }
    try {
      for (const entity of file.createEntities ?? []) await this.entities.create(entity);
      for (const operation of operations) await this.operation(operation);
      for (const expected of expectEvents) this.checkEvents(expected);
    } finally {
      for (const name of this.failPoints) await this.server.client.db('admin').command({ configureFailPoint: name, mode: 'off' });
      await this.entities.close();
    }
    for (const { databaseName, collectionName, documents } of outcome) {
      const found = await this.server.client.db(databaseName).collection(collectionName).find({}, { sort: { _id: 1 } }).toArray();
      this.check(documents, found, `the outcome in ${collectionName}`, false);
    }
  }

  check(expected, actual, what, isRoot = true) {
    const reason = mismatch(expected, actual, isRoot, this.entities.lsids);
    if (reason) throw new Error(`${what}: ${reason}\nexpected ${EJSON.stringify(expected)}\ngot ${EJSON.stringify(actual)}`);
  }

  /** Runs an operation, and checks its result. Inside a callback an expected error goes on to the driver. */
  async operation({ name, object, arguments: given = {}, expectError, expectResult, saveResultAsEntity, ignoreResultAndError }, inCallback = false) {
    let result;
    try {
      result = object === 'testRunner' ? await this.special(name, given) : await this.call(name, object, given);
    } catch (error) {
      if (error instanceof Skip || (!expectError && !ignoreResultAndError)) throw error;
      if (ignoreResultAndError) {
        if (inCallback) throw error;
        return;
      }
      this.checkError(expectError, error, name);
      if (inCallback) throw error;
      return;
    }
    if (expectError) throw new Error(`${name}: no error, expected ${JSON.stringify(expectError)}; got ${EJSON.stringify(result)}`);
    if (saveResultAsEntity) this.entities.all.set(saveResultAsEntity, result);
    if (expectResult !== undefined) this.check(expectResult, result ?? null, name);
  }

  call(name, object, { session, ...rest }) {
    const entity = this.entities.get(object);
    const kind = entity.constructor.name;
    const call = OPERATIONS[kind]?.[name];
    if (!call) throw new Skip(`the driver has no ${name}`);
    const own = session && { session: this.entities.get(session) };
    // The driver would count its own documents, so that those of the file stay as they are.
    return Promise.resolve(call(entity, { ...structuredCloneOf(rest), ...own }, this));
  }

  async special(name, a) {
    const commands = () => this.entities.events.get(a.client).filter(({ kind }) => kind === 'commandStartedEvent').slice(-2);
    const lsids = () => commands().map(({ event }) => EJSON.stringify(event.command.lsid));
    const names = async () => (await this.server.client.db(a.databaseName).listCollections({ name: a.collectionName }).toArray()).length;
    const indexes = async () => (await names()) && (await this.server.client.db(a.databaseName).collection(a.collectionName).indexes()).filter(({ name: n }) => n === a.indexName).length;
    const seen = (event) => count(this.entities.events.get(a.client), event);
    const topology = () => this.entities.get(a.client).topology.description;
    const must = (truth) => { if (!truth) throw new Error(`${name} ${JSON.stringify(a)} is not true`); };
    switch (name) {
      case 'failPoint':
        this.failPoints.push(a.failPoint.configureFailPoint);
        await this.entities.get(a.client).db('admin').command(a.failPoint);
        return;
      case 'createEntities':
        for (const entity of a.entities) await this.entities.create(entity);
        return;
      case 'assertSameLsidOnLastTwoCommands': must(new Set(lsids()).size === 1 && lsids().length === 2); return;
      case 'assertDifferentLsidOnLastTwoCommands': must(new Set(lsids()).size === 2); return;
      case 'assertSessionDirty': must(this.entities.get(a.session).kept.isDirty); return;
      case 'assertSessionNotDirty': must(!this.entities.get(a.session).kept.isDirty); return;
      case 'assertSessionPinned': must(this.entities.get(a.session).isPinned); return;
      case 'assertSessionUnpinned': must(!this.entities.get(a.session).isPinned); return;
      case 'assertSessionTransactionState': must(STATES[this.entities.get(a.session).transaction.state] === a.state); return;
      case 'assertCollectionExists': must(await names()); return;
      case 'assertCollectionNotExists': must(!(await names())); return;
      case 'assertIndexExists': must(await indexes()); return;
      case 'assertIndexNotExists': must(!(await indexes())); return;
      case 'assertEventCount': {
        const found = this.entities.events.get(a.client).filter(({ kind }) => kind in a.event);
        if (seen(a.event) !== a.count) throw new Error(`${name}: ${JSON.stringify(a)} is not true of ${JSON.stringify(found)}`);
        return;
      }
      case 'waitForEvent': await waitUntil(`${a.count} of ${JSON.stringify(a.event)}`, () => seen(a.event) >= a.count); return;
      case 'wait': await new Promise((resolve) => { setTimeout(resolve, a.ms); }); return;
      case 'runOnThread': {
        const thread = this.entities.get(a.thread);
        thread.last = thread.last.then(() => this.operation(a.operation));
        // Its error is that of the wait for it.
        thread.last.catch(() => {});
        return;
      }
      case 'waitForThread': await this.entities.get(a.thread).last; return;
      case 'recordTopologyDescription': this.entities.all.set(a.id, topology()); return;
      case 'assertTopologyType': must(this.entities.get(a.topologyDescription).type === a.topologyType); return;
      case 'waitForPrimaryChange': {
        const before = primaryOf(this.entities.get(a.priorTopologyDescription));
        await waitUntil('another primary', () => ![undefined, before].includes(primaryOf(topology())), a.timeoutMS);
        return;
      }
      default: throw new Skip(`${name} is not used in these specifications`);
    }
  }

  checkError(expected, error, name) {
    const fail = (text) => { throw new Error(`${name}: ${text}\n${error.stack}`); };
    const known = ['isError', 'isClientError', 'errorContains', 'errorCode', 'errorCodeName', 'errorLabelsContain', 'errorLabelsOmit', 'expectResult', 'writeConcernErrors'];
    for (const key of Object.keys(expected)) if (!known.includes(key)) throw new Skip(`${key} of an error is not used in these specifications`);
    const fromServer = error instanceof MongoServerError;
    if (expected.isClientError !== undefined && expected.isClientError === fromServer) fail(`expected ${expected.isClientError ? 'an error of the client' : 'one of the server'}`);
    if (expected.errorContains && !error.message.toLowerCase().includes(expected.errorContains.toLowerCase())) fail(`no '${expected.errorContains}' in it`);
    const codes = [error.code, error.cause?.code, error.errorResponse?.code];
    if (expected.errorCode && !codes.includes(expected.errorCode)) fail(`expected the code ${expected.errorCode}`);
    const codeNames = [error.codeName, error.errorResponse?.codeName, error.result?.writeConcernError?.codeName, error.result?.getWriteConcernError?.()?.codeName];
    if (expected.errorCodeName && !codeNames.includes(expected.errorCodeName)) fail(`expected the code ${expected.errorCodeName}, not ${codeNames}`);
    const has = (label) => Boolean(error.hasErrorLabel?.(label) || error.cause?.hasErrorLabel?.(label));
    for (const label of expected.errorLabelsContain ?? []) if (!has(label)) fail(`no label ${label}`);
    for (const label of expected.errorLabelsOmit ?? []) if (has(label)) fail(`the label ${label}`);
    if (expected.expectResult) {
      const result = error instanceof MongoBulkWriteError ? error.result : error.partialResult ?? error.errorResponse;
      this.check(expected.expectResult, result, `${name}: the error's result`);
    }
    if (expected.writeConcernErrors && expected.writeConcernErrors.length !== (error.writeConcernErrors?.length ?? 0)) fail('other write concern errors');
  }

  checkEvents({ client, eventType = 'command', events, ignoreExtraEvents }) {
    const seen = this.entities.events.get(client).filter(({ type }) => type === eventType);
    if (ignoreExtraEvents ? seen.length < events.length : seen.length !== events.length) {
      const names = seen.map(({ kind, event }) => `${kind} ${event.commandName ?? ''}`);
      throw new Error(`${client}: expected ${events.length} events, got ${names.join(', ')}`);
    }
    events.forEach((expected, place) => {
      const [[kind, fields]] = Object.entries(expected);
      const { kind: got, event } = seen[place];
      const what = `event ${place} of ${client}`;
      if (got !== kind) throw new Error(`${what}: ${got}, expected ${kind}`);
      if (fields.commandName) this.check(fields.commandName, event.commandName, what);
      if (fields.databaseName) this.check(fields.databaseName, event.databaseName, what);
      if (fields.command) {
        const { command } = event;
        // The driver adds a time limit of its own to the write concern at the end of a transaction.
        const isEnd = command.commitTransaction || command.abortTransaction;
        if (isEnd && command.writeConcern?.wtimeout === 10_000 && !fields.command.writeConcern?.wtimeout) delete command.writeConcern.wtimeout;
        this.check(fields.command, command, what);
      }
      if (fields.reply) this.check(fields.reply, event.reply, what);
      if (eventType !== 'command') this.check(fields, event, what);
    });
  }
}

/** A copy of plain values; those of BSON are never changed. */
function structuredCloneOf(value) {
  if (Array.isArray(value)) return value.map(structuredCloneOf);
  if (value && Object.getPrototypeOf(value) === Object.prototype) {
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, structuredCloneOf(inner)]));
  }
  return value;
}

/** What a promise becomes, or an error if that takes too long: a stream may wait for an event that does not come. */
async function inTime(promise) {
  let timer;
  const late = new Promise((resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`still running after ${SECONDS_MAX} s`)), SECONDS_MAX * 1000);
  });
  await Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function main(files) {
  const client = await MongoClient.connect(uri, { writeConcern: { w: 'majority' } });
  const admin = client.db('admin');
  const server = {
    client,
    version: (await admin.command({ buildInfo: 1 })).versionArray,
    parameters: await admin.command({ getParameter: '*' }),
  };
  for (const name of files) {
    const file = EJSON.parse(await readFile(name, 'utf8'), { relaxed: true });
    for (const test of file.tests) {
      const began = performance.now();
      const label = `${path.basename(name)}/${test.description}`;
      let outcome = 'passed';
      let detail = '';
      try {
        for (const { runOnRequirements } of [file, test]) {
          if (runOnRequirements && !isMet(runOnRequirements, server)) throw new Skip('its requirements are not met');
        }
        if (test.skipReason) throw new Skip(test.skipReason);
        await inTime(new Test(server).run(file, test));
      } catch (error) {
        outcome = error instanceof Skip ? 'skipped' : 'failed';
        detail = error instanceof Skip ? error.message : String(error.stack);
        if (outcome === 'failed') await admin.command({ killAllSessions: [] });
      }
      console.log(JSON.stringify({ name: label, outcome, seconds: (performance.now() - began) / 1000, detail }));
    }
  }
  await client.close();
}

await main(process.argv.slice(2));
