// Runs cases in mingo, within this process.
import { BSONRegExp, Double, Int32, Long } from 'mongodb';
import { aggregate, find, updateMany, updateOne } from 'mingo';

/** BSON values as JavaScript values. */
export function loosen(value) {
  if (value instanceof Int32 || value instanceof Double) return value.valueOf();
  if (value instanceof Long) return value.toNumber();
  if (value instanceof BSONRegExp) return new RegExp(value.pattern, value.options);
  if (value instanceof Date) return new Date(value);
  if (Array.isArray(value)) return value.map(loosen);
  if (value !== null && typeof value === 'object' && !value._bsontype) {
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, loosen(inner)]));
  }
  return value;
}

export class Memory {
  constructor() {
    this.name = 'mingo';
  }

  /** Whether mingo has the operation. */
  has(test) {
    if (!test.plain) return false;
    switch (test.kind) {
      case 'find':
      case 'aggregate':
      case 'count':
        return true;
      case 'update':
        return !test.upsert && (Array.isArray(test.update) || Object.keys(test.update)[0]?.startsWith('$')) && !test.update.$setOnInsert;
      default:
        return false;
    }
  }

  run(test) {
    const documents = loosen(test.documents);
    const filter = loosen(test.filter ?? {});
    try {
      switch (test.kind) {
        case 'find': {
          const cursor = find(documents, filter, loosen(test.projection ?? {}));
          if (test.sort) cursor.sort(loosen(test.sort));
          if (test.skip) cursor.skip(test.skip);
          if (test.limit) cursor.limit(test.limit);
          return { result: cursor.all() };
        }
        case 'count': {
          let n = find(documents, filter).all().length - (test.skip ?? 0);
          if (test.limit) n = Math.min(n, test.limit);
          return { result: Math.max(n, 0) };
        }
        case 'aggregate':
          return { result: aggregate(documents, loosen(test.pipeline), { collectionResolver: () => loosen(test.documents) }) };
        default: {
          const run = test.multi ? updateMany : updateOne;
          const { matchedCount, modifiedCount } = run(documents, filter, loosen(test.update), { arrayFilters: loosen(test.arrayFilters ?? []) });
          return { result: { n: matchedCount, nModified: modifiedCount, upserted: [] }, after: documents };
        }
      }
    } catch (error) {
      return { error: 'mingo', message: error.message };
    }
  }
}
