// Random updates: operators, replacements and pipelines, with filters for elements of arrays.
import { Int32, Long } from 'mongodb';

const POSITIONAL = ['a.$', 'a.$.b', 'b.$', 'a.$[]', 'a.$[].b', 'b.$[]', 'a.$[e]', 'a.$[e].b', 'b.$[e]', 'a.b.$[e]', 'a.$[].b.$[e]'];

export class Updates {
  constructor(queries) {
    this.queries = queries;
    this.values = queries.values;
    this.random = queries.random;
  }

  /** A path to change. */
  target() {
    const r = this.random;
    return r.oneIn(4) ? r.pick(POSITIONAL) : this.values.path();
  }

  fields(make) {
    const made = {};
    const count = this.random.oneIn(4) ? 2 : 1;
    for (let i = 0; i < count; i += 1) made[this.target()] = make();
    return made;
  }

  push() {
    const { random: r, values } = this;
    if (r.oneIn(2)) return values.value(1);
    const made = { $each: values.array(1) };
    if (r.oneIn(2)) made.$position = new Int32(r.below(5) - 2);
    if (r.oneIn(2)) made.$slice = new Int32(r.below(5) - 2);
    if (r.oneIn(3)) {
      made.$sort = r.oneIn(2) ? new Int32(r.oneIn(2) ? 1 : -1) : { [r.pick(['a', 'b', 'a.b'])]: new Int32(r.oneIn(2) ? 1 : -1) };
    }
    return made;
  }

  operator() {
    const { random: r, values, queries } = this;
    return r.choose(
      6, () => ({ $set: this.fields(() => values.value(1)) }),
      3, () => ({ $unset: this.fields(() => '') }),
      3, () => ({ $inc: this.fields(() => values.number()) }),
      2, () => ({ $mul: this.fields(() => values.number()) }),
      2, () => ({ $min: this.fields(() => values.value(1)) }),
      2, () => ({ $max: this.fields(() => values.value(1)) }),
      2, () => ({ $rename: { [values.path()]: r.pick(['x', 'y', 'a', 'b', 'a.b', 'c.z']) } }),
      3, () => ({ $push: this.fields(() => this.push()) }),
      2, () => ({ $addToSet: this.fields(() => (r.oneIn(2) ? values.value(1) : { $each: values.array(1) })) }),
      2, () => ({ $pop: this.fields(() => new Int32(r.oneIn(2) ? 1 : -1)) }),
      3, () => ({ $pull: this.fields(() => r.choose(2, () => values.value(1), 2, () => queries.condition(0), 1, () => queries.filter(0))) }),
      2, () => ({ $pullAll: this.fields(() => values.array(1)) }),
      1, () => ({ $bit: this.fields(() => ({ [r.pick(['and', 'or', 'xor'])]: r.oneIn(2) ? new Int32(r.below(8)) : Long.fromNumber(r.below(8)) })) }),
      1, () => ({ $setOnInsert: this.fields(() => values.value(1)) }),
    );
  }

  update() {
    const r = this.random;
    const made = this.operator();
    return r.oneIn(4) ? { ...made, ...this.operator() } : made;
  }

  replacement() {
    const { _id, ...fields } = this.values.document(9);
    return this.random.oneIn(4) ? { _id: new Int32(1 + this.random.below(4)), ...fields } : fields;
  }

  /** The filters for `$[e]`, if the update names it. */
  arrayFilters(update) {
    if (!JSON.stringify(update).includes('$[e]')) return undefined;
    const { random: r, queries, values } = this;
    return [r.choose(2, () => ({ e: queries.condition(0) }), 2, () => ({ 'e.b': queries.condition(0) }), 1, () => ({ e: values.value(1) }))];
  }
}
