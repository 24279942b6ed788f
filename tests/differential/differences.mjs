// The classes of known differences, each with a test that recognises only this class.
// `differences.md` explains them.
import { JAVA } from './differences-java.mjs';
import { MINGO } from './differences-mingo.mjs';

const DIFFERENCES = { java: JAVA, mingo: MINGO };

/** The name of the class that explains a difference; `undefined` if none does. */
export function explain(side, test, frond, other) {
  return DIFFERENCES[side].find(([, holds]) => holds(test, frond, other))?.[0];
}
