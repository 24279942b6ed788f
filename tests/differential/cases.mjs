// Random cases: documents, and one operation on them.
import { Int32 } from 'mongodb';

import { Pipelines } from './pipelines.mjs';
import { Queries } from './queries.mjs';
import { Random } from './random.mjs';
import { Updates } from './updates.mjs';
import { Values } from './values.mjs';

/** Operations on the same documents, which are inserted once. */
const OPERATIONS = 8;

function operation(random, values) {
  const queries = new Queries(values);
  const updates = new Updates(queries);
  const sometimes = (n, make) => (random.oneIn(n) ? make() : undefined);
  const update = () => random.choose(
    8, () => updates.update(),
    1, () => updates.replacement(),
    1, () => random.times(1 + random.below(2), () => random.choose(
      2, () => ({ $set: { [values.path()]: new Pipelines(queries).expression(1) } }),
      1, () => ({ $unset: random.pick(['a', 'b', 'a.b']) }),
      1, () => ({ $replaceWith: { $mergeObjects: ['$$ROOT', { x: new Pipelines(queries).expression(1) }] } }),
    )),
  );
  return random.choose(
    10, () => ({
      kind: 'find',
      filter: queries.filter(2),
      sort: sometimes(2, () => queries.sort()),
      projection: sometimes(2, () => queries.projection()),
      skip: sometimes(5, () => random.below(3)),
      limit: sometimes(5, () => 1 + random.below(3)),
    }),
    1, () => ({ kind: 'count', filter: queries.filter(1), skip: sometimes(3, () => random.below(3)), limit: sometimes(3, () => 1 + random.below(3)) }),
    2, () => ({ kind: 'distinct', path: values.path(), filter: sometimes(2, () => queries.filter(1)) }),
    10, () => {
      const u = update();
      return {
        kind: 'update',
        filter: random.oneIn(2) ? { _id: new Int32(1) } : queries.filter(1),
        update: u,
        multi: random.oneIn(4) && Object.keys(u)[0]?.startsWith('$'),
        upsert: random.oneIn(4),
        arrayFilters: Array.isArray(u) ? undefined : updates.arrayFilters(u),
      };
    },
    3, () => {
      const remove = random.oneIn(4);
      const u = remove ? undefined : update();
      return {
        kind: 'findAndModify',
        filter: queries.filter(1),
        sort: queries.sort(),
        remove: remove || undefined,
        update: u,
        new: remove ? undefined : random.oneIn(2),
        upsert: remove ? undefined : random.oneIn(4),
        fields: sometimes(3, () => queries.projection()),
        arrayFilters: u && !Array.isArray(u) ? updates.arrayFilters(u) : undefined,
      };
    },
    1, () => ({ kind: 'delete', filter: queries.filter(1), limit: random.below(2) }),
    10, () => ({ kind: 'aggregate', pipeline: new Pipelines(queries).pipeline() }),
  );
}

/** Cases of one seed. They share their documents. */
export function casesOf(seed) {
  const random = new Random(seed);
  const plain = random.oneIn(2);
  const values = new Values(random, plain);
  const documents = values.documents();
  return random.times(OPERATIONS, (i) => ({ seed: `${seed}`, number: i, plain, documents, ...operation(random, values) }));
}
