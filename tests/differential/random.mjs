// Random choices that repeat for the same seed.

/** Numbers from a seed, which may be any string. */
export class Random {
  constructor(seed) {
    // FNV-1a over the text, then mulberry32.
    let hash = 0x811c9dc5;
    for (const char of String(seed)) {
      hash = Math.imul(hash ^ char.codePointAt(0), 0x01000193);
    }
    this.state = hash >>> 0;
  }

  next() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }

  /** An integer from 0 up to, but not including, `end`. */
  below(end) {
    return this.next() % end;
  }

  oneIn(n) {
    return this.below(n) === 0;
  }

  pick(list) {
    return list[this.below(list.length)];
  }

  /** The result of one of several functions, chosen by weights: [3, f, 1, g]. */
  choose(...weighted) {
    let total = 0;
    for (let i = 0; i < weighted.length; i += 2) total += weighted[i];
    let at = this.below(total);
    for (let i = 0; i < weighted.length; i += 2) {
      at -= weighted[i];
      if (at < 0) return weighted[i + 1]();
    }
    return undefined;
  }

  /** Some of a list, in its order, at least one. */
  some(list) {
    const found = list.filter(() => this.oneIn(2));
    return found.length ? found : [this.pick(list)];
  }

  /** `count` results of a function. */
  times(count, make) {
    return Array.from({ length: count }, (_, i) => make(i));
  }
}
