// Random values and documents. Few names and few values, so that queries find some.
import {
  BSONRegExp,
  Binary,
  Decimal128,
  Double,
  Int32,
  Long,
  MaxKey,
  MinKey,
  ObjectId,
  Timestamp,
} from 'mongodb';

export const OBJECT_IDS = [1, 2, 3].map((n) => new ObjectId(`${n}`.repeat(24)));
const TEXTS = ['', 'a', 'ab', 'abc', 'b', 'B', '1', 'ä'];
const NAMES = ['a', 'b', 'ab', 'c'];
const INNER = ['a', 'b', 'c'];
/** Paths that documents often have, and some that they never have. */
export const PATHS = [
  ...['a', 'a', 'b', 'b', 'ab', 'c'],
  ...['a.b', 'a.b', 'a.c', 'b.a', 'b.c', 'c.a', 'a.b.c', 'b.a.b'],
  ...['a.0', 'b.1', 'a.0.b', 'a.b.0', 'x', 'a.x', 'x.a'],
];

/** Makes values. `plain` restricts them to those that JavaScript has, which mingo needs. */
export class Values {
  constructor(random, plain) {
    this.random = random;
    this.plain = plain;
  }

  number() {
    const r = this.random;
    const small = r.below(6) - 1;
    if (this.plain) {
      return r.oneIn(3) ? new Double(small + 0.5) : new Int32(small);
    }
    return r.choose(
      6, () => new Int32(small),
      3, () => new Double(small + 0.5),
      2, () => new Double(small),
      2, () => Long.fromNumber(small),
      2, () => Decimal128.fromString(r.pick(['0', '1', '1.5', '2.0', '-1', '3', '1E+3'])),
      1, () => new Double(r.pick([NaN, Infinity, -Infinity, -0.0, 1e300])),
      1, () => Long.fromString(r.pick(['9223372036854775807', '-9223372036854775808', '4294967296'])),
      1, () => new Int32(r.pick([2147483647, -2147483648])),
    );
  }

  scalar() {
    const r = this.random;
    const common = [
      9, () => this.number(),
      5, () => r.pick(TEXTS),
      2, () => null,
      2, () => r.oneIn(2),
      2, () => new Date(r.pick([0, 1, 86400000, 1700000000000])),
    ];
    if (this.plain) return r.choose(...common);
    return r.choose(
      ...common,
      1, () => r.pick(OBJECT_IDS),
      1, () => new Binary(Buffer.from(r.pick(['', 'x', 'xy']))),
      1, () => r.pick([new MinKey(), new MaxKey(), new Timestamp({ t: 1, i: 1 })]),
    );
  }

  array(depth) {
    const r = this.random;
    return r.times(r.below(4), () => (depth > 0 && r.oneIn(3) ? this.value(depth - 1) : this.scalar()));
  }

  object(depth) {
    const made = {};
    for (const name of INNER) {
      if (!this.random.oneIn(3)) made[name] = this.value(depth - 1);
    }
    return made;
  }

  value(depth) {
    return this.random.choose(
      5, () => this.scalar(),
      2, () => this.array(depth),
      depth > 0 ? 2 : 0, () => this.object(depth),
      depth > 0 ? 1 : 0, () => this.random.times(this.random.below(4), () => this.object(depth - 1)),
    );
  }

  document(id) {
    const made = { _id: new Int32(id) };
    for (const name of NAMES) {
      if (!this.random.oneIn(4)) made[name] = this.value(2);
    }
    return made;
  }

  documents() {
    return this.random.times(1 + this.random.below(6), (i) => this.document(i + 1));
  }

  path() {
    return this.random.pick(PATHS);
  }

  regex() {
    return new BSONRegExp(this.random.pick(['^a', 'b', '^ab$', 'A', '']), this.random.pick(['', 'i']));
  }
}
