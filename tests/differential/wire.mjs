// Runs cases on a server over the wire.
import { MongoClient } from 'mongodb';

const TYPED = { promoteValues: false, promoteLongs: false, promoteBuffers: false, bsonRegExp: true };

/** The command of a case. */
export function commandOf(test, collection) {
  const given = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  const own = (value) => (value === '{own}' ? collection : value);
  switch (test.kind) {
    case 'find':
      return given({ find: collection, filter: test.filter, sort: test.sort, projection: test.projection, skip: test.skip, limit: test.limit, batchSize: 1000 });
    case 'count':
      return given({ count: collection, query: test.filter, skip: test.skip, limit: test.limit });
    case 'distinct':
      return given({ distinct: collection, key: test.path, query: test.filter });
    case 'update':
      return { update: collection, updates: [given({ q: test.filter, u: test.update, multi: test.multi, upsert: test.upsert, arrayFilters: test.arrayFilters })] };
    case 'findAndModify':
      return given({ findAndModify: collection, query: test.filter, sort: test.sort, remove: test.remove, update: test.update, new: test.new, upsert: test.upsert, fields: test.fields, arrayFilters: test.arrayFilters });
    case 'delete':
      return { delete: collection, deletes: [{ q: test.filter, limit: test.limit }] };
    case 'aggregate':
      return {
        aggregate: collection,
        pipeline: test.pipeline.map((stage) => (stage.$lookup ? { $lookup: { ...stage.$lookup, from: own(stage.$lookup.from) } } : stage)),
        cursor: { batchSize: 1000 },
      };
    default:
      throw new Error(`no such kind: ${test.kind}`);
  }
}

/** Whether a case changes documents. */
export function writes(test) {
  return ['update', 'findAndModify', 'delete'].includes(test.kind);
}

export class Wire {
  constructor(name, uri) {
    this.name = name;
    this.client = new MongoClient(uri, { retryWrites: false, retryReads: false, maxPoolSize: 1, serverSelectionTimeoutMS: 60_000 });
    this.documents = undefined;
  }

  async open() {
    await this.client.connect();
    this.db = this.client.db('differential');
  }

  close() {
    return this.client.close(true);
  }

  command(command) {
    return this.db.command(command, TYPED);
  }

  /** The outcome of a case: `{error, message}`, or its result and, for a write, the documents after it. */
  async run(test) {
    try {
      if (this.documents !== test.documents) {
        this.documents = undefined;
        // The other server would put new documents at the positions of deleted ones.
        if (this.name === 'java') await this.command({ drop: 'c' }).catch(() => {});
        else await this.command({ delete: 'c', deletes: [{ q: {}, limit: 0 }] });
        if (test.documents.length) {
          const reply = await this.command({ insert: 'c', documents: test.documents });
          if (reply.writeErrors) return { error: 'insert', message: reply.writeErrors[0].errmsg };
        }
        this.documents = test.documents;
      }
      if (writes(test)) this.documents = undefined;
      const reply = await this.command(commandOf(test, 'c'));
      const failed = reply.writeErrors?.[0];
      if (failed) return { error: Number(failed.code), message: failed.errmsg };
      const outcome = resultOf(test, reply);
      if (writes(test)) {
        const after = await this.command({ find: 'c', filter: {}, sort: { _id: 1 }, batchSize: 1000 });
        outcome.after = after.cursor.firstBatch;
      }
      return outcome;
    } catch (error) {
      if (error.code === undefined) return { error: 'none', message: `${error}` };
      return { error: Number(error.code), message: error.message };
    }
  }
}

function resultOf(test, reply) {
  switch (test.kind) {
    case 'find':
    case 'aggregate':
      return { result: reply.cursor.firstBatch };
    case 'count':
      return { result: reply.n };
    case 'distinct':
      return { result: reply.values };
    case 'update':
      return { result: { n: reply.n, nModified: reply.nModified, upserted: reply.upserted ?? [] } };
    case 'delete':
      return { result: { n: reply.n } };
    default:
      return { result: { value: reply.value, last: reply.lastErrorObject } };
  }
}
