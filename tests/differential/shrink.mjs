// Reduces a failing case as far as it still fails.
import { Int32 } from 'mongodb';

const KEPT = new Set(['seed', 'number', 'plain', 'kind']);

function isTree(value) {
  return value !== null && typeof value === 'object' && !value._bsontype && !(value instanceof Date);
}

/** Values that are a little smaller than this one. */
function* smaller(value) {
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i += 1) yield [...value.slice(0, i), ...value.slice(i + 1)];
    for (let i = 0; i < value.length; i += 1) {
      for (const item of smaller(value[i])) yield [...value.slice(0, i), item, ...value.slice(i + 1)];
    }
    for (const item of value) if (isTree(item)) yield item;
  } else if (isTree(value)) {
    const entries = Object.entries(value);
    for (const [name] of entries) {
      if (!KEPT.has(name) || value.kind === undefined) {
        yield Object.fromEntries(entries.filter(([other]) => other !== name));
      }
    }
    for (const [name, inner] of entries) {
      if (value.kind !== undefined && KEPT.has(name)) continue;
      for (const item of smaller(inner)) {
        yield Object.fromEntries(entries.map(([other, old]) => [other, other === name ? item : old]));
      }
    }
    if (value.kind === undefined) for (const [, inner] of entries) if (isTree(inner)) yield inner;
  } else if (typeof value === 'number') {
    if (value > 1) yield 1;
  } else if (value instanceof Int32 ? Math.abs(value.value) > 1 : value !== null && typeof value !== 'boolean' && value !== 'a' && value !== '') {
    yield new Int32(1);
    if (typeof value === 'string' && !value.startsWith('$')) yield 'a';
  }
}

/** Whether a case still has the parts that its kind needs. */
function isWhole(test) {
  const isObject = (value) => isTree(value) && !Array.isArray(value);
  const optional = (value, check) => value === undefined || check(value);
  return Array.isArray(test.documents)
    && test.documents.every((doc) => isObject(doc) && doc._id instanceof Int32)
    && new Set(test.documents.map((doc) => doc._id.value)).size === test.documents.length
    && optional(test.filter, isObject) && optional(test.sort, isObject) && optional(test.projection, isObject)
    && (['find', 'count', 'distinct', 'aggregate'].includes(test.kind) || test.filter !== undefined)
    // Without a total order two correct results can differ.
    && optional(test.sort, (sort) => '_id' in sort)
    && optional(test.fields, isObject)
    && (test.kind !== 'update' || (isTree(test.update) && Object.keys(test.update).length > 0 && typeof test.multi === 'boolean'))
    && (test.kind !== 'findAndModify' || test.remove || isTree(test.update))
    && (test.kind !== 'aggregate' || (Array.isArray(test.pipeline) && test.pipeline.every((stage, at) => isObject(stage)
      && (!stage.$lookup || stage.$lookup.from === '{own}')
      && (!(stage.$group || stage.$sortByCount) || test.pipeline[at + 1]?.$sort))))
    && (test.kind !== 'distinct' || typeof test.path === 'string')
    && (test.kind !== 'delete' || typeof test.limit === 'number')
    && optional(test.skip, (value) => typeof value === 'number') && optional(test.limit, (value) => typeof value === 'number')
    && optional(test.arrayFilters, (value) => Array.isArray(value) && value.every(isObject));
}

/** A reduced case for which `fails` is still true. */
export async function shrink(test, fails, tries = 400) {
  let best = test;
  let left = tries;
  for (let again = true; again; ) {
    again = false;
    for (const candidate of smaller(best)) {
      if (left === 0) return best;
      if (!isWhole(candidate)) continue;
      left -= 1;
      if (await fails(candidate)) {
        best = candidate;
        again = true;
        break;
      }
    }
  }
  return best;
}
