// Random filters, sorts and projections.
import { Int32, Long } from 'mongodb';

const COMPARE = ['$eq', '$ne', '$gt', '$gte', '$lt', '$lte'];
const TYPES = ['double', 'string', 'object', 'array', 'bool', 'date', 'null', 'int', 'number', 'long', 'decimal', 'objectId'];

export class Queries {
  constructor(values) {
    this.values = values;
    this.random = values.random;
  }

  list() {
    return this.random.times(1 + this.random.below(3), () => this.values.value(1));
  }

  /** One operator with its operand. */
  operator(depth) {
    const { random: r, values } = this;
    return r.choose(
      10, () => ({ [r.pick(COMPARE)]: values.value(1) }),
      2, () => ({ $in: r.oneIn(6) ? [...this.list(), values.regex()] : this.list() }),
      2, () => ({ $nin: this.list() }),
      2, () => ({ $exists: r.oneIn(2) }),
      2, () => ({ $type: r.pick(TYPES) }),
      1, () => ({ $size: new Int32(r.below(4)) }),
      1, () => ({ $mod: [new Int32(1 + r.below(3)), new Int32(r.below(2))] }),
      1, () => ({ $regex: values.regex().pattern, $options: r.pick(['', 'i']) }),
      1, () => ({ $all: this.list() }),
      1, () => ({ [r.pick(['$bitsAllSet', '$bitsAnySet', '$bitsAllClear', '$bitsAnyClear'])]: new Int32(r.below(5)) }),
      depth > 0 ? 2 : 0, () => ({ $not: this.condition(depth - 1) }),
      depth > 0 ? 2 : 0, () => ({ $elemMatch: r.oneIn(2) ? this.condition(depth - 1) : this.filter(depth - 1) }),
      depth > 0 ? 1 : 0, () => ({ $all: [{ $elemMatch: this.condition(0) }, { $elemMatch: this.filter(0) }] }),
    );
  }

  condition(depth) {
    const made = this.operator(depth);
    return this.random.oneIn(4) ? { ...made, ...this.operator(depth) } : made;
  }

  filter(depth) {
    const { random: r, values } = this;
    const made = {};
    const count = r.choose(1, () => 0, 6, () => 1, 3, () => 2);
    for (let i = 0; i < count; i += 1) {
      r.choose(
        3, () => { made[values.path()] = values.value(1); },
        6, () => { made[values.path()] = this.condition(depth); },
        1, () => { made[values.path()] = values.regex(); },
        depth > 0 ? 2 : 0, () => {
          made[r.pick(['$and', '$or', '$nor'])] = r.times(1 + r.below(2), () => this.filter(depth - 1));
        },
        1, () => { made._id = r.oneIn(2) ? new Int32(1 + r.below(4)) : { [r.pick(COMPARE)]: new Int32(r.below(5)) }; },
        1, () => {
          const op = r.pick(['$eq', '$gt', '$lte', '$ne']);
          made.$expr = { [op]: [`$${values.path()}`, r.oneIn(2) ? `$${values.path()}` : { $literal: values.value(1) }] };
        },
      );
    }
    return made;
  }

  sort() {
    const { random: r } = this;
    const made = {};
    for (let i = r.below(3); i > 0; i -= 1) made[this.values.path()] = new Int32(r.oneIn(2) ? 1 : -1);
    made._id = new Int32(r.oneIn(2) ? 1 : -1);
    return made;
  }

  projection() {
    const { random: r, values } = this;
    const made = {};
    const including = r.oneIn(2);
    const show = () => r.choose(3, () => new Int32(including ? 1 : 0), 1, () => including, 1, () => Long.fromNumber(including ? 1 : 0));
    for (let i = 1 + r.below(3); i > 0; i -= 1) {
      r.choose(
        8, () => { made[values.path()] = show(); },
        1, () => { made[values.path()] = { $slice: r.oneIn(2) ? new Int32(r.below(5) - 2) : [new Int32(r.below(4) - 2), new Int32(1 + r.below(2))] }; },
        1, () => { made[r.pick(['a', 'b', 'c'])] = { $elemMatch: r.oneIn(2) ? this.condition(0) : this.filter(0) }; },
        including ? 1 : 0, () => { made[r.pick(['x', 'y', 'a.z'])] = r.oneIn(2) ? `$${values.path()}` : { $literal: values.value(1) }; },
      );
    }
    if (r.oneIn(4)) made._id = new Int32(r.oneIn(2) ? 1 : 0);
    return made;
  }
}
