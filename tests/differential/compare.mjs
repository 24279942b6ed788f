// Writes values as text, so that equal values have equal texts.
import { ObjectId } from 'mongodb';

import { loosen } from './memory.mjs';
import { OBJECT_IDS } from './values.mjs';

const KNOWN_IDS = new Set(OBJECT_IDS.map(String));

/** A value with its types. `sorted`: whether the order of fields does not matter. */
export function write(value, sorted = false) {
  if (value === undefined) return 'undefined';
  if (value === null) return 'null';
  if (Array.isArray(value)) return `[${value.map((item) => write(item, sorted)).join(', ')}]`;
  if (value instanceof Date) return `Date(${value.getTime()})`;
  if (value instanceof RegExp) return `/${value.source}/${value.flags}`;
  switch (typeof value) {
    case 'number':
      return Object.is(value, -0) ? '-0' : String(value);
    case 'string':
      return JSON.stringify(value);
    case 'boolean':
      return String(value);
    default:
  }
  switch (value._bsontype) {
    case 'Int32':
      return String(value.value);
    case 'Double':
      return `Double(${Object.is(value.value, -0) ? '-0' : value.value})`;
    case 'Long':
    case 'Decimal128':
      return `${value._bsontype}(${value})`;
    case 'ObjectId':
      return KNOWN_IDS.has(String(value)) ? `ObjectId(${value})` : 'ObjectId(new)';
    case 'Timestamp':
      return `Timestamp(${value.high}, ${value.low})`;
    case 'Binary':
      return `Binary(${value.toString('hex')})`;
    case 'BSONRegExp':
      return `/${value.pattern}/${value.options}`;
    case undefined: {
      let fields = Object.entries(value);
      if (sorted) fields = fields.sort(([a], [b]) => (a < b ? -1 : 1));
      return `{${fields.map(([name, inner]) => `${name}: ${write(inner, sorted)}`).join(', ')}}`;
    }
    default:
      return `${value._bsontype}()`;
  }
}

/** The parts of an outcome to compare; for mingo without the types of numbers. */
export function summary(outcome, loose, sorted = false) {
  if (outcome.error !== undefined) return `error ${loose ? '' : outcome.error}`;
  const value = (part) => write(loose ? loosen(part) : part, sorted);
  return outcome.after === undefined ? value(outcome.result) : `${value(outcome.result)} after ${value(outcome.after)}`;
}
