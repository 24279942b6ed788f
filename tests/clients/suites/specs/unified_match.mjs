// Whether values match those that a file in the unified test format expects.

import { BSON } from 'mongodb';

const { EJSON } = BSON;

const NUMBERS = new Set(['Int32', 'Double', 'Long']);
const isNumber = (value) => ['number', 'bigint'].includes(typeof value) || NUMBERS.has(value?._bsontype);
const isDocument = (value) => value !== null && typeof value === 'object' && !Array.isArray(value) && !value._bsontype
  && !(value instanceof Date) && !(value instanceof Uint8Array);
const TYPES = {
  string: (v) => typeof v === 'string',
  int: (v) => (typeof v === 'number' && Number.isInteger(v)) || v?._bsontype === 'Int32',
  long: (v) => typeof v === 'bigint' || v?._bsontype === 'Long' || (typeof v === 'number' && Number.isInteger(v)),
  double: (v) => typeof v === 'number' || v?._bsontype === 'Double',
  bool: (v) => typeof v === 'boolean',
  object: isDocument,
  array: Array.isArray,
  binData: (v) => v?._bsontype === 'Binary' || v instanceof Uint8Array,
  objectId: (v) => v?._bsontype === 'ObjectId',
  date: (v) => v instanceof Date,
  timestamp: (v) => v?._bsontype === 'Timestamp',
};

const SPECIAL = {
  $$exists: (expected, actual) => ((actual !== undefined) === expected ? '' : `must ${expected ? '' : 'not '}exist`),
  $$type: (expected, actual) => ([expected].flat().some((type) => TYPES[type]?.(actual)) ? '' : `is no ${expected}`),
  $$unsetOrMatches: (expected, actual, isRoot, lsids) => (actual === undefined || actual === null ? '' : mismatch(expected, actual, isRoot, lsids)),
  $$matchesHexBytes: (expected, actual) => (Buffer.from(actual).toString('hex') === expected ? '' : 'other bytes'),
  $$sessionLsid: (expected, actual, isRoot, lsids) => (EJSON.stringify(lsids.get(expected)) === EJSON.stringify(actual) ? '' : `not the session ${expected}`),
};

/**
 * Why the value does not match, or an empty string. A document at the root may have other fields, one inside may not.
 * `lsids` has the sessions by the names of their entities.
 */
export function mismatch(expected, actual, isRoot, lsids) {
  if (isDocument(expected)) {
    const keys = Object.keys(expected);
    if (keys.length === 1 && keys[0].startsWith('$$')) {
      const special = SPECIAL[keys[0]];
      if (!special) throw new Error(`no such operator: ${keys[0]}`);
      return special(expected[keys[0]], actual, isRoot, lsids);
    }
    if (!isDocument(actual)) return `${EJSON.stringify(actual)} is no document`;
    for (const key of keys) {
      const reason = mismatch(expected[key], actual[key], false, lsids);
      if (reason) return `${key}: ${reason}`;
    }
    const more = Object.keys(actual).filter((key) => !(key in expected) && actual[key] !== undefined);
    return isRoot || !more.length ? '' : `fields that are not expected: ${more}`;
  }
  if (Array.isArray(expected)) {
    if (!Array.isArray(actual)) return `${EJSON.stringify(actual)} is no array`;
    if (actual.length !== expected.length) return `${actual.length} elements, expected ${expected.length}`;
    for (const [place, element] of expected.entries()) {
      // Documents of a result are roots each.
      const reason = mismatch(element, actual[place], isRoot, lsids);
      if (reason) return `${place}: ${reason}`;
    }
    return '';
  }
  if (isNumber(expected) && isNumber(actual)) return Number(expected) === Number(actual) ? '' : `${actual}, expected ${expected}`;
  return EJSON.stringify(expected) === EJSON.stringify(actual) ? '' : `${EJSON.stringify(actual)}, expected ${EJSON.stringify(expected)}`;
}

/** Whether the value matches. */
export const matches = (expected, actual) => mismatch(expected, actual, true, new Map()) === '';
