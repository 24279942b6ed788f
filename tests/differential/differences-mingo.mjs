// Where mingo differs from MongoDB.
import { summary } from './compare.mjs';
import { asBag, fails, filters, isDocument, isEmpty, meetsBareArray, names, projections, some, stages } from './inspect.mjs';
import { loosen } from './memory.mjs';

const COMPARISONS = /^\$(eq|ne|cmp|[gl]te?)$/;
const expressions = (test) => [test.pipeline, test.update, ...filters(test).map((filter) => filter.$expr)];
const isEmptyDocument = (value) => isDocument(value) && Object.keys(value).length === 0;

export const MINGO = [
  ['refuses operands that MongoDB takes', (test, frond, other) => fails(other, /is not registered|must resolve to|expects|unknown top level operator|Cannot read properties|must be|Invalid|requires|not iterable|is not a function|undefined/) && frond.error === undefined],
  ['undefined in a result', (test, frond, other) => summary(other, true).includes('undefined')],
  ['takes operands that MongoDB refuses', (test, frond, other) => test.kind !== 'find' && (test.pipeline || Array.isArray(test.update)) && frond.error !== undefined && other.error === undefined],
  ['paths of $set, $addFields and $unwind through scalars and arrays', (test) => some([test.pipeline, Array.isArray(test.update) ? test.update : []], (value, name) => ['$set', '$addFields', '$project', '$unwind'].includes(name) && (/\./.test(value.path ?? value) || (isDocument(value) && Object.keys(value).some((path) => path.includes('.')))))],
  ['types of numbers', (test) => filters(test).some((filter) => names(filter, '$type', '$mod', '$bitsAllSet', '$bitsAnySet', '$bitsAllClear', '$bitsAnyClear')) || some(expressions(test), (_, name) => ['$type', '$toString', '$divide', '$toInt', '$toLong', '$toDouble', '$round', '$trunc'].includes(name))],
  ['the order of arrays and documents in $min and $max', (test) => some([test.update, test.pipeline], (_, name) => /^\$(min|max|sortArray|minN|maxN)$/.test(name ?? ''))],
  ['paths through arrays in expressions', (test) => some(expressions(test), (value) => typeof value === 'string' && /^\$\$?\w+\.\w/.test(value)) && some(test.documents, Array.isArray)],
  ['a replacement is no update', (test, frond, other) => fails(other, /Unknown update operator/)],
  ['numbers in projections are indexes', (test) => projections(test).some((projection) => some(projection, (_, name) => /\.\d/.test(name ?? '')))],
  ['paths through two arrays', (test) => filters(test).some((filter) => names(filter, '$size', '$elemMatch', '$all'))],
  ['an object in $set or $addFields over an array', (test) => some([test.pipeline, Array.isArray(test.update) ? test.update : []], (value, name) => ['$set', '$addFields', '$project'].includes(name) && Object.values(value).some(isDocument)) && some(test.documents, Array.isArray)],
  ['$unwind of an empty document', (test) => stages(test, '$unwind') && some(test.documents, isEmptyDocument)],
  ['holes in arrays', (test, frond, other) => some(other.after, (value) => Array.isArray(value) && Object.keys(value).length < value.length)],
  ['$lookup through arrays', (test) => stages(test, '$lookup') && some(test.documents, Array.isArray)],
  ['an error of its own', (test, frond, other) => fails(other, /^bug:/)],
  ['$sort of mixed types and $slice of 0 in $push', (test) => names(test.update, '$push') && names(test.update, '$sort', '$slice')],
  ['conditions on computed arrays', (test, frond) => test.pipeline?.length > 1 && stages(test, '$match') && frond.error === undefined && some(test.pipeline, (_, name) => ['$objectToArray', '$split', '$range', '$map', '$filter', '$zip'].includes(name))],
  ['an empty text is false', (test) => some(expressions(test), (_, name) => ['$not', '$and', '$or', '$cond', '$toBool', '$switch', '$anyElementTrue', '$allElementsTrue', '$filter'].includes(name)) && some([test.pipeline, test.documents, test.update], (value) => value === '')],
  ['$unset through nested arrays', (test) => stages(test, '$unset') && some(test.documents, (value) => Array.isArray(value) && value.some(Array.isArray))],
  ['order of sets', (test, frond, other) => some(expressions(test), (_, name) => /^\$set(Union|Difference|Intersection)$/.test(name ?? '')) && frond.error === undefined && other.error === undefined && asBag(loosen([frond.result, frond.after])) === asBag([other.result, other.after])],
  ['checks nothing before it meets a document', (test, frond, other) => frond.error !== undefined && isEmpty(other)],
  ['order of fields', (test, frond, other) => frond.error === undefined && other.error === undefined && summary(frond, true, true) === summary(other, true, true)],
  ['order of groups', (test, frond, other) => stages(test, '$group', '$sortByCount') && frond.result && other.result && asBag(loosen(frond.result)) === asBag(other.result)],
  ['exclusion with an operator or _id', (test, frond, other) => fails(other, /exclusion and inclusion/) && projections(test).some((projection) => names(projection, '$elemMatch', '$slice', '_id'))],
  ['a scalar in the way of an update', (test, frond, other) => frond.error === 28 && other.error === undefined],
  ['the checks of an update', (test, frond, other) => test.kind === 'update' && [2, 9, 14, 40, 52, 54, 56, 66].includes(frond.error) && other.error === undefined],
  ['$count and $bucket of nothing', (test) => stages(test, '$count', '$bucket', '$facet')],
  ['comparisons with missing values', (test) => some(expressions(test), (_, name) => COMPARISONS.test(name ?? ''))],
  ['the order of arrays and documents', (test) => (test.sort || stages(test, '$sort') || filters(test).some((filter) => some(filter, (_, name) => /^\$[gl]te?$/.test(name ?? '')))) && some([test.documents, filters(test)], (value, name) => name !== undefined && (Array.isArray(value) || isDocument(value)))],
  ['$top and $bottom give lists', (test) => some(test.pipeline, (_, name) => name === '$top' || name === '$bottom')],
  ['$addToSet and $push of missing values', (test) => stages(test, '$group') && some(test.pipeline, (_, name) => ['$addToSet', '$push', '$firstN', '$lastN', '$minN', '$maxN'].includes(name))],
  ['names with dots', (test, frond, other) => some(other.result, (_, name) => name?.includes('.')) && !some(frond.result, (_, name) => name?.includes('.'))],
  ['paths in filters through arrays without documents, or by number', (test) => filters(test).some((filter) => some(filter, (_, name) => test.documents.some((doc) => meetsBareArray(doc, name) || /\.\d/.test(name ?? ''))))],
];
