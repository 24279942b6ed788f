// Random stages and expressions of the aggregation framework.
import { Int32 } from 'mongodb';

const UNARY = {
  number: ['$abs', '$ceil', '$floor', '$trunc', '$sqrt', '$exp', '$ln', '$log10', '$round'],
  any: ['$isArray', '$not', '$type', '$toBool', '$toString', '$isNumber', '$toInt', '$toDouble', '$toLong'],
  array: ['$size', '$reverseArray', '$arrayToObject', '$anyElementTrue', '$allElementsTrue', '$first', '$last', '$min', '$max', '$sum', '$avg'],
  text: ['$toUpper', '$toLower', '$strLenCP', '$strLenBytes'],
  date: ['$year', '$month', '$dayOfMonth', '$hour', '$minute', '$second', '$dayOfWeek', '$dayOfYear', '$millisecond'],
};
const BINARY = {
  number: ['$subtract', '$divide', '$mod', '$pow', '$log'],
  any: ['$eq', '$ne', '$gt', '$gte', '$lt', '$lte', '$cmp'],
  set: ['$setDifference', '$setIsSubset', '$setIntersection', '$setUnion', '$setEquals', '$concatArrays'],
};

export class Pipelines {
  constructor(queries) {
    this.queries = queries;
    this.values = queries.values;
    this.random = queries.random;
  }

  field() {
    return `$${this.values.path()}`;
  }

  leaf() {
    const { random: r, values } = this;
    return r.choose(5, () => this.field(), 2, () => ({ $literal: values.value(1) }), 1, () => values.number());
  }

  number(depth) {
    const { random: r, values } = this;
    return r.choose(2, () => values.number(), 2, () => this.field(), depth > 0 ? 1 : 0, () => ({ $size: this.array(depth - 1) }));
  }

  array(depth) {
    const { random: r, values } = this;
    return r.choose(
      2, () => ({ $literal: values.array(1) }),
      1, () => r.times(r.below(3), () => this.expression(Math.max(0, depth - 1))),
      2, () => ({ $ifNull: [this.field(), { $literal: values.array(1) }] }),
      2, () => this.field(),
    );
  }

  text() {
    return this.random.choose(2, () => this.random.pick(['', 'a', 'abc', 'b']), 1, () => this.field());
  }

  expression(depth) {
    const { random: r, values } = this;
    if (depth === 0) return this.leaf();
    const inner = () => this.expression(depth - 1);
    const int = (from, to) => new Int32(from + r.below(to - from));
    return r.choose(
      3, () => this.leaf(),
      3, () => ({ [r.pick(['$add', '$multiply'])]: r.times(1 + r.below(3), () => this.number(depth - 1)) }),
      3, () => ({ [r.pick(BINARY.number)]: [this.number(depth - 1), this.number(depth - 1)] }),
      2, () => ({ [r.pick(UNARY.number)]: this.number(depth - 1) }),
      3, () => ({ [r.pick(UNARY.any)]: inner() }),
      3, () => ({ [r.pick(UNARY.array)]: this.array(depth) }),
      2, () => ({ [r.pick(UNARY.text)]: this.text() }),
      1, () => ({ [r.pick(UNARY.date)]: new Date(r.pick([0, 1700000000000])) }),
      4, () => ({ [r.pick(BINARY.any)]: [inner(), inner()] }),
      2, () => ({ [r.pick(BINARY.set)]: [this.array(depth), this.array(depth)] }),
      2, () => ({ [r.pick(['$and', '$or'])]: r.times(r.below(3), inner) }),
      2, () => ({ $cond: [inner(), inner(), inner()] }),
      2, () => ({ $ifNull: [inner(), inner()] }),
      1, () => ({ $switch: { branches: [{ case: inner(), then: inner() }], default: inner() } }),
      2, () => ({ $arrayElemAt: [this.array(depth), int(-3, 3)] }),
      2, () => ({ $slice: r.oneIn(2) ? [this.array(depth), int(-2, 3)] : [this.array(depth), int(-2, 3), int(1, 3)] }),
      1, () => ({ $in: [inner(), this.array(depth)] }),
      1, () => ({ $indexOfArray: [this.array(depth), inner()] }),
      2, () => ({ $map: { input: this.array(depth), as: 'e', in: r.pick(['$$e', '$$e.b', { $add: ['$$e', 1] }, { $eq: ['$$e', 1] }]) } }),
      2, () => ({ $filter: { input: this.array(depth), as: 'e', cond: { [r.pick(BINARY.any)]: ['$$e', inner()] } } }),
      1, () => ({ $reduce: { input: this.array(depth), initialValue: new Int32(0), in: { $cond: [{ $gt: ['$$this', '$$value'] }, '$$this', '$$value'] } } }),
      1, () => ({ $range: [int(-2, 3), int(-2, 6), int(1, 3)] }),
      1, () => ({ $let: { vars: { v: inner() }, in: { $eq: ['$$v', inner()] } } }),
      2, () => ({ $mergeObjects: r.times(1 + r.below(2), () => r.oneIn(2) ? this.field() : { $literal: values.object(1) }) }),
      1, () => ({ $objectToArray: r.oneIn(2) ? this.field() : { $literal: values.object(1) } }),
      1, () => ({ $concat: r.times(1 + r.below(2), () => this.text()) }),
      1, () => ({ $split: [this.text(), r.pick(['a', 'b', 'bc'])] }),
      1, () => ({ $substrCP: [this.text(), int(0, 3), int(0, 3)] }),
      1, () => ({ $indexOfCP: [this.text(), r.pick(['a', 'b', ''])] }),
      1, () => ({ $trim: { input: this.text(), chars: 'a' } }),
      1, () => ({ $strcasecmp: [this.text(), this.text()] }),
      1, () => ({ $zip: { inputs: [this.array(depth), this.array(depth)], useLongestLength: r.oneIn(2) } }),
      1, () => ({ $sortArray: { input: this.array(depth), sortBy: r.oneIn(2) ? new Int32(1) : { a: new Int32(-1) } } }),
      1, () => ({ $getField: { field: r.pick(['a', 'b']), input: r.oneIn(2) ? this.field() : { $literal: values.object(1) } } }),
      1, () => ({ [r.pick(['$firstN', '$lastN', '$minN', '$maxN'])]: { input: this.array(depth), n: int(1, 3) } }),
      1, () => ({ [r.pick(['a', 'b'])]: inner(), c: inner() }),
    );
  }

  accumulator() {
    const r = this.random;
    return r.choose(
      6, () => ({ [r.pick(['$sum', '$avg', '$min', '$max', '$push', '$first', '$last'])]: this.expression(1) }),
      1, () => ({ $sum: 1 }),
      1, () => ({ $count: {} }),
      1, () => ({ $addToSet: this.field() }),
      1, () => ({ $mergeObjects: this.field() }),
      1, () => ({ [r.pick(['$firstN', '$lastN', '$minN', '$maxN'])]: { input: this.field(), n: new Int32(2) } }),
      1, () => ({ [r.pick(['$top', '$bottom'])]: { output: this.field(), sortBy: this.queries.sort() } }),
      1, () => ({ [r.pick(['$stdDevPop', '$stdDevSamp'])]: this.field() }),
    );
  }

  stage() {
    const { random: r, queries, values } = this;
    return r.choose(
      4, () => ({ $match: queries.filter(1) }),
      4, () => ({ $project: r.oneIn(2) ? queries.projection() : { [r.pick(['x', 'a', 'y.z'])]: this.expression(2), [r.pick(['b', 'c'])]: new Int32(1) } }),
      8, () => ({ [r.pick(['$addFields', '$set'])]: { [r.pick(['x', 'y', 'a', 'b', 'a.b', 'a.x'])]: this.expression(2) } }),
      4, () => ({ $group: { _id: r.oneIn(4) ? null : this.expression(1), n: this.accumulator(), m: this.accumulator() } }),
      2, () => ({ $sort: queries.sort() }),
      1, () => ({ $skip: new Int32(r.below(3)) }),
      1, () => ({ $limit: new Int32(1 + r.below(3)) }),
      3, () => ({ $unwind: r.oneIn(2) ? this.field() : { path: this.field(), preserveNullAndEmptyArrays: r.oneIn(2), includeArrayIndex: r.pick(['i', 'a.i']) } }),
      1, () => ({ $unset: r.some(['a', 'b', 'a.b', 'c.a']) }),
      1, () => ({ $replaceRoot: { newRoot: r.oneIn(2) ? { $mergeObjects: [{ x: this.expression(1) }, '$$ROOT'] } : { x: this.expression(1), _id: '$_id' } } }),
      1, () => ({ $count: 'n' }),
      1, () => ({ $sortByCount: this.field() }),
      1, () => ({ $bucket: { groupBy: this.field(), boundaries: [new Int32(0), new Int32(1), new Int32(3)], default: 'other', output: { n: { $sum: 1 } } } }),
      1, () => ({ $facet: { f: [{ $match: queries.filter(0) }], g: [{ $count: 'n' }] } }),
      1, () => ({ $lookup: { from: '{own}', localField: values.path(), foreignField: values.path(), as: r.pick(['x', 'a', 'a.x']) } }),
    );
  }

  pipeline() {
    // Groups come in any order; what follows them must not depend on it.
    return this.random.times(1 + this.random.below(3), () => this.stage()).flatMap((stage) => (
      stage.$group || stage.$sortByCount ? [stage, { $sort: { _id: new Int32(1) } }] : [stage]
    ));
  }
}
