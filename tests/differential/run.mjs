#!/usr/bin/env node
// Compares Frond's answers with those of mingo and of mongo-java-server on random cases.
//
//   run.mjs --server target/debug/frond|--uri URI [--seed TEXT] [--rounds N | --seconds N] [--only SEED] [--side NAME]
//
// A round is some documents and eight operations on them. A difference that no class in differences.mjs
// explains is reduced, printed, and counts as a failure.
import { join, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { casesOf } from './cases.mjs';
import { summary, write } from './compare.mjs';
import { explain } from './differences.mjs';
import { Memory } from './memory.mjs';
import { startFrond, startJava } from './servers.mjs';
import { shrink } from './shrink.mjs';
import { Wire } from './wire.mjs';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const JARS = join(ROOT, '.cache', 'clients', 'java-server');

const { values: options } = parseArgs({
  options: {
    server: { type: 'string' },
    uri: { type: 'string' },
    seed: { type: 'string', default: String(Date.now()) },
    rounds: { type: 'string' },
    seconds: { type: 'string' },
    only: { type: 'string' },
    side: { type: 'string' },
    codes: { type: 'boolean', default: false },
    most: { type: 'string', default: '10' },
  },
});

/** The difference, if there is one and no class explains it. */
function difference(side, test, frond, other) {
  if (frond.error !== undefined && other.error !== undefined && !options.codes) return { same: true };
  const loose = side === 'mingo';
  if (summary(frond, loose) === summary(other, loose)) return { same: true };
  return { same: false, known: explain(side, test, frond, other) };
}

function show(test, side, frond, other) {
  const { seed, number, plain, ...rest } = test;
  console.log(`\nnot ok - seed ${seed}, case ${number}: differs from ${side}`);
  for (const [name, value] of Object.entries(rest)) if (value !== undefined) console.log(`  ${name}: ${write(value)}`);
  const told = (outcome) => (outcome.error === undefined ? summary(outcome, false) : `error ${outcome.error}: ${outcome.message}`);
  console.log(`  frond: ${told(frond)}`);
  console.log(`  ${side}: ${told(other)}`);
}

async function main() {
  const frondServer = options.uri ? { uri: options.uri, stop() {} } : await startFrond(options.server);
  const javaServer = await startJava(JARS, 'Launcher');
  const frond = new Wire('frond', frondServer.uri);
  const java = new Wire('java', javaServer.uri);
  const memory = new Memory();
  await frond.open();
  await java.open();
  const sides = [memory, java].filter((side) => !options.side || side.name === options.side);
  console.log(`seed ${options.seed}`);
  const end = options.seconds ? Date.now() + Number(options.seconds) * 1000 : Infinity;
  const rounds = options.rounds ? Number(options.rounds) : options.seconds ? Infinity : 200;
  const known = {};
  let [passed, failed] = [0, 0];
  for (let round = 0; round < rounds && Date.now() < end && failed < Number(options.most); round += 1) {
    const seed = options.only ?? `${options.seed}:${round}`;
    for (const test of casesOf(seed)) {
      const ours = await frond.run(test);
      for (const side of sides) {
        if (side.has && !side.has(test)) continue;
        const theirs = await side.run(test);
        const result = difference(side.name, test, ours, theirs);
        if (result.same || result.known) {
          passed += 1;
          if (result.known) known[`${side.name}: ${result.known}`] = (known[`${side.name}: ${result.known}`] ?? 0) + 1;
          continue;
        }
        failed += 1;
        // The reduced case must fail in the same way: a result must not become an error.
        const isSame = (a, b) => (a.error === undefined) === (b.error === undefined) && (a.error === b.error || side.name !== 'java');
        const fails = async (candidate) => {
          const [a, b] = [await frond.run(candidate), await side.run(candidate)];
          if (!isSame(a, ours) || !isSame(b, theirs)) return false;
          const again = difference(side.name, candidate, a, b);
          return !again.same && !again.known;
        };
        const small = await shrink(test, fails);
        const again = small === test ? [ours, theirs] : [await frond.run(small), await side.run(small)];
        show(small, side.name, ...again);
      }
    }
    if (options.only) break;
  }
  for (const name of Object.keys(known).sort()) console.log(`# ${known[name]} x ${name}`);
  await Promise.all([frond.close(), java.close()]);
  await Promise.all([frondServer.stop(), javaServer.stop()]);
  console.log(`differential: ${passed} passed, ${failed} failed`);
  return failed === 0 ? 0 : 1;
}

// Ends the servers as well.
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));
process.exit(await main());
