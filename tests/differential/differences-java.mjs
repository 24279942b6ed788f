// Where mongo-java-server differs from MongoDB.
import { summary } from './compare.mjs';
import { asBag, fails, filters, isDocument, isEmpty, meetsBareArray, names, projections, some, stages, throughArray } from './inspect.mjs';

const LACKS = /Unrecognized pipeline stage name|Unrecognized expression|unknown group operator|unknown operator: \$|Unsupported modifier: \$bit|ArrayList cannot be cast to class|not yet implemented/;

const isEmptyDocument = (value) => isDocument(value) && Object.keys(value).length === 0;
// Decimals without trailing zeros.
const decimals = (outcome) => summary(outcome, false).replace(/Decimal128\(([^)]*?)\.?0*\)/g, 'Decimal128($1)');
const isFlag = (value) => typeof value === 'boolean' || value?._bsontype === 'Int32' || value?._bsontype === 'Long';

export const JAVA = [
  ['lacks an operator', (test, frond, other) => fails(other, LACKS)],
  ['ends the connection', (test, frond, other) => fails(other, /connection \d+ to .* closed/)],
  ['no lastErrorObject without a document', (test, frond, other) => test.kind === 'findAndModify' && frond.result && other.result && other.result.last === undefined && summary({ result: frond.result.value, after: frond.after }) === summary({ result: other.result.value, after: other.after })],
  ['exclusion with an operator or _id', (test, frond, other) => [31253, 31254].includes(other.error) && projections(test).some((projection) => names(projection, '$elemMatch', '$slice', '_id'))],
  ['order of fields', (test, frond, other) => frond.error === undefined && other.error === undefined && summary(frond, false, true) === summary(other, false, true)],
  ['order of groups', (test, frond, other) => stages(test, '$group', '$sortByCount') && frond.result && other.result && asBag(frond.result) === asBag(other.result)],
  ['order of distinct values', (test, frond, other) => test.kind === 'distinct' && frond.result && other.result && asBag(frond.result) === asBag(other.result)],
  ['a computed document in $addFields', (test, frond, other) => stages(test, '$addFields') && frond.error === undefined && other.error === undefined && some(test.documents, (value, name) => name !== undefined && isDocument(value)) && some(frond.result, (value, name) => name !== undefined && isDocument(value))],
  ['names with dots', (test, frond, other) => stages(test, '$addFields', '$project', '$lookup', '$unwind', '$facet') && some(other.result, (_, name) => name?.includes('.')) && !some(frond.result, (_, name) => name?.includes('.'))],
  ['an empty document equals a missing field', (test) => filters(test).some((filter) => some(filter, (value, name) => name !== undefined && isEmptyDocument(value)))],
  ['parallel arrays', (test, frond, other) => fails(frond, /cannot sort with keys that are parallel arrays/) && other.error === undefined],
  ['expressions inside of arrays', (test, frond, other) => frond.error !== undefined && some(other.result, (value, name) => name?.startsWith('$'))],
  ['one element of $in or $all in an upsert', (test) => test.upsert && some(test.filter, (value, name) => (name === '$in' || name === '$all') && value?.length === 1)],
  ['regular expressions match more than text', (test) => filters(test).some((filter) => some(filter, (value, name) => name === '$regex' || value?._bsontype === 'BSONRegExp')) && some(test.documents, (value) => value?._bsontype !== undefined || value instanceof Date)],
  ['only $slice in a projection', (test) => [test.projection, test.fields].some((projection) => projection && Object.values(projection).every((value) => isDocument(value) && '$slice' in value))],
  ['$multiply and $add with other than two operands', (test, frond, other) => fails(other, /Expression \$(multiply|add) takes exactly 2 arguments|Expression \$log takes exactly 1/)],
  ['a null in the way of a path', (test, frond, other) => frond.error === 28 && /\{\w+: null\}/.test(frond.message) && other.error === undefined],
  ['collisions of paths in a projection', (test, frond, other) => [31249, 31250].includes(frond.error) && other.error === undefined],
  ['$rename to itself', (test, frond, other) => fails(frond, /The source and target field for \$rename must/)],
  ['paths in filters through arrays without documents, or by number', (test) => filters(test).some((filter) => some(filter, (_, name) => test.documents.some((doc) => meetsBareArray(doc, name))))],
  ['-0', (test, frond, other) => names(test.update, '$mul', '$inc') && frond.error === undefined && other.error === undefined && write0(frond) === write0(other)],
  ['operands of expressions that are missing', (test, frond, other) => fails(other, /found: missing/)],
  ['comparisons with arrays', (test) => filters(test).some((filter) => some(filter, (value, name) => (/^\$([gl]te?|ne|eq)$/.test(name ?? '') && Array.isArray(value)) || (['$in', '$nin', '$all'].includes(name) && Array.isArray(value) && value.some(Array.isArray))))],
  ['sort of empty and nested arrays', (test) => (test.sort || stages(test, '$sort')) && some(test.documents, (value) => Array.isArray(value) && (value.length === 0 || value.some(Array.isArray)))],
  ['$facet without documents', (test) => stages(test, '$facet')],
  ['$toLower of a missing field', (test) => some(test.pipeline, (_, name) => name === '$toLower' || name === '$toUpper')],
  ['$bucket of an array', (test) => stages(test, '$bucket')],
  ['$lookup of arrays', (test) => stages(test, '$lookup')],
  ['paths through arrays in expressions', (test, frond) => stages(test, '$addFields', '$project', '$group', '$replaceRoot') && some(test.pipeline, (value) => typeof value === 'string' && /^\$\w+\.\w/.test(value)) && some(test.documents, Array.isArray)],
  ['$position behind an end', (test, frond, other) => fails(other, /Unknown error: Index: -?\d+, Size/)],
  ['an empty document in a projection', (test) => projections(test).some((projection) => some(projection, (value, name) => name === '$literal' && isEmptyDocument(value)))],
  ['arrays in arrays in a projection', (test) => projections(test).some((projection) => some(projection, (_, name) => name?.includes('.'))) && some(test.documents, (value) => Array.isArray(value) && value.some(Array.isArray))],
  ['$elemMatch of values in a projection', (test, frond, other) => fails(other, /unknown top level operator/)],
  ['groups by arrays', (test, frond) => stages(test, '$group', '$sortByCount') && some(frond.result, (value, name) => name === '_id' && Array.isArray(value))],
  ['null and missing in expressions', (test) => some([test.pipeline, filters(test)], (value, name) => /^\$(n?eq?|cmp|[gl]te?)$/.test(name ?? '')) && some(test.documents, (value) => value === null)],
  ['$mod of large numbers', (test) => filters(test).some((filter) => names(filter, '$mod')) && some(test.documents, (value) => ['Double', 'Long', 'Decimal128'].includes(value?._bsontype) && Math.abs(Number(value)) > 2 ** 53)],
  ['conflicts of paths in an update', (test, frond, other) => frond.error === 40 && other.error === undefined],
  ['updates below an array without an index', (test, frond, other) => some(test.update, (_, name) => test.documents.some((doc) => throughArray(doc, name))) && other.error === undefined],
  ['digits of a double in a decimal', (test, frond, other) => frond.error === undefined && other.error === undefined && decimals(frond) === decimals(other)],
  ['$setOnInsert with a positional path', (test, frond, other) => fails(frond, /positional operator did not find|must exist in the document/) && names(test.update, '$setOnInsert')],
  ['$unwind with a nested index', (test, frond, other) => stages(test, '$unwind') && fails(other, /Cannot create field 'i'/)],
  ['equalities beside other operators in an upsert', (test) => test.upsert && some(test.filter, (value) => isDocument(value) && '$eq' in value && Object.keys(value).length > 1)],
  ['computed fields in a projection of find', (test) => [test.projection, test.fields].some((projection) => some(projection, (value, name) => ['x', 'y', 'z', 'a.z'].includes(name) && !isFlag(value)))],
  ['$inc and $mul of null', (test, frond, other) => frond.error === 14 && /of non-numeric type null/.test(frond.message) && other.error === undefined],
  ['$project below empty documents and arrays', (test) => stages(test, '$project') && some(test.pipeline.map((stage) => stage.$project), (_, name) => name?.includes('.')) && some(test.documents, (value, name) => name !== undefined && (isEmptyDocument(value) || Array.isArray(value)))],
  ['a value in the way of $pull and $pop', (test, frond, other) => fails(frond, /Cannot use the part/) && other.error === undefined],
  ['$rename below a missing element of an array', (test, frond, other) => fails(other, /cannot traverse element/) && frond.error === undefined && names(test.update, '$rename') && some(test.documents, Array.isArray)],
  ['an empty document in $addFields', (test) => some(test.pipeline, (value, name) => (name === '$addFields' || name === '$project') && some(value, (inner) => isEmptyDocument(inner)))],
  ['$dayOfWeek begins on Monday', (test) => some(test.pipeline, (_, name) => name === '$dayOfWeek')],
  ['$push and $addToSet to null', (test, frond, other) => frond.error === 2 && /must be an array but is of type null|non-array (field|value)/.test(frond.message) && other.error === undefined],
  ['types of numbers of $mod, $divide, $size and others', (test, frond, other) => test.pipeline && frond.error === undefined && other.error === undefined && summary(frond, true) === summary(other, true)],
  ['missing values of $arrayElemAt and others below a new document', (test, frond) => stages(test, '$addFields', '$project', '$replaceRoot') && summary(frond, false).includes('{}')],
  ['computes operands that are not needed', (test, frond, other) => other.error !== undefined && frond.error === undefined && some(test.pipeline, (_, name) => ['$ifNull', '$or', '$and', '$cond'].includes(name))],
  ['comparisons with null', (test) => filters(test).some((filter) => some(filter, (value, name) => /^\$[gl]te?$/.test(name ?? '') && value === null))],
  ['sort by the number of an element', (test) => [test.sort, ...(test.pipeline ?? []).map((stage) => stage.$sort)].some((sort) => some(sort, (_, name) => /\.\d/.test(name ?? '')))],
  ['a document in an array equals one with an array', (test) => filters(test).some((filter) => some(filter, isDocument)) && some(test.documents, (value) => Array.isArray(value) && value.some(isDocument))],
  ['$all with null', (test) => filters(test).some((filter) => some(filter, (value, name) => name === '$all' && Array.isArray(value) && value.includes(null)))],
  ['a new type of the same number is no change', (test, frond, other) => test.update && frond.result && other.result && summary({ result: frond.after }) === summary({ result: other.after }) && Number(frond.result.nModified) > Number(other.result.nModified)],
  ['$sqrt of a negative number', (test, frond, other) => frond.error === 28714 && other.error === undefined],
  ['checks nothing before it meets a document', (test, frond, other) => frond.error !== undefined && isEmpty(other)],
];

const write0 = (outcome) => summary(outcome, false).replaceAll('Double(-0)', 'Double(0)');
