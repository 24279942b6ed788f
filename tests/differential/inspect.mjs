// Inspects cases and outcomes, for the classes of differences.
import { write } from './compare.mjs';

export function isDocument(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value) && !value._bsontype && !(value instanceof Date) && !(value instanceof RegExp);
}

/** Whether anything inside a value, with its name, passes a test. */
export function some(value, test, name) {
  if (value === undefined) return false;
  if (test(value, name)) return true;
  if (Array.isArray(value)) return value.some((item) => some(item, test, name));
  if (isDocument(value)) return Object.entries(value).some(([inner, item]) => some(item, test, inner));
  return false;
}

/** Whether a name occurs in a value. */
export function names(value, ...wanted) {
  return some(value, (_, name) => wanted.includes(name));
}

/** The stages of a pipeline, with those of its facets. */
export function stages(test, ...wanted) {
  return (test.pipeline ?? []).some((stage) => wanted.some((name) => name in stage));
}

/** All filters in a case. */
export function filters(test) {
  const found = [test.filter, test.arrayFilters];
  for (const stage of test.pipeline ?? []) {
    if (stage.$match) found.push(stage.$match);
    if (stage.$facet) found.push(stage.$facet.f?.[0]?.$match);
  }
  for (const [operator, fields] of Object.entries(test.update ?? {})) if (operator === '$pull') found.push(fields);
  for (const projection of [test.projection, test.fields, ...(test.pipeline ?? []).map((stage) => stage.$project)]) {
    for (const value of Object.values(projection ?? {})) if (value?.$elemMatch) found.push(value.$elemMatch);
  }
  return found.filter(Boolean);
}

/** Whether a result has no documents. */
export function isEmpty(outcome) {
  const { result } = outcome;
  return outcome.error === undefined && ((Array.isArray(result) && result.length === 0) || result?.n?.value === 0 || result?.n === 0 || result?.value === null || result?.value === 0 || result === 0);
}

/** Whether a failure's message matches. */
export function fails(outcome, pattern) {
  return outcome.error !== undefined && pattern.test(outcome.message);
}

/** The projections of a case. */
export function projections(test) {
  return [test.projection, test.fields, ...(test.pipeline ?? []).map((stage) => stage.$project)].filter(Boolean);
}

/** A list as a text that depends neither on its order nor on that of nested lists. */
export function asBag(value) {
  if (Array.isArray(value)) return `[${value.map(asBag).sort().join()}]`;
  if (isDocument(value)) return `{${Object.entries(value).map(([name, inner]) => `${name}:${asBag(inner)}`).sort().join()}}`;
  return write(value);
}

/** Whether a path leads, in a document, to an array with elements that are not documents, or names an element of it. */
export function meetsBareArray(value, path) {
  const names = (path ?? '').split('.');
  const walk = (here, at) => {
    if (at === names.length) return false;
    if (Array.isArray(here)) {
      return /^\d+$/.test(names[at]) || here.length === 0 || !here.every(isDocument) || here.some((item) => walk(item, at));
    }
    return isDocument(here) && names[at] in here && walk(here[names[at]], at + 1);
  };
  return names.length > 1 && walk(value, 0);
}

/** Whether a path enters an array of a document by a name that is not an index. */
export function throughArray(doc, path) {
  let here = doc;
  for (const name of (path ?? '').split('.')) {
    if (Array.isArray(here) && !/^\d+$/.test(name)) return !name.startsWith('$');
    if (here === null || typeof here !== 'object') return false;
    here = here[name];
  }
  return false;
}
