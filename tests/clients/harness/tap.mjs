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
