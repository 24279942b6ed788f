// Tests that print TAP (testanything.org), which run.py counts.

import assert from 'node:assert/strict';

const tests = [];

/** Adds a test. */
export const test = (name, run) => tests.push({ name, run });

/** The error that a promise must be rejected with. */
export async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new assert.AssertionError({ message: 'no error' });
}

/** Longer than any step takes, even on a busy machine. It guards against a test that hangs; no test may depend on it. */
export const PATIENCE_MS = 120_000;

/** Waits until `holds()` is true, and returns what it returned. */
export async function waitUntil(what, holds) {
  const until = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await holds();
    if (found) return found;
    if (Date.now() > until) throw new assert.AssertionError({ message: `${what}: not within ${PATIENCE_MS} ms` });
    await new Promise((resolve) => { setTimeout(resolve, 20); });
  }
}

/** Runs every test in order, then `close`, and ends the process. */
export async function run(close) {
  const only = process.env.FROND_TEST ?? '';
  const chosen = tests.filter(({ name }) => name.includes(only));
  let failed = 0;
  for (const [index, { name, run: body }] of chosen.entries()) {
    try {
      await body();
      console.log(`ok ${index + 1} - ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`not ok ${index + 1} - ${name}`);
      const lines = String(error.stack ?? error).split('\n');
      // The driver's own frames are left out.
      for (const line of lines.filter((line) => !/node_modules|node:internal/.test(line))) console.log(`  # ${line}`);
    }
  }
  console.log(`1..${chosen.length}`);
  await close();
  process.exit(failed || !chosen.length ? 1 : 0);
}
