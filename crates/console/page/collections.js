// Databases, collections and indexes, with their sizes and use.

import { command } from "./api.js";
import { card, confirm, empty, failure, h, table, toast } from "./dom.js";
import { bytes, dateTime, duration, inline, millis, number, percent, short, whole } from "./format.js";

const ago = (ms) => duration((Date.now() - ms) * 1000);

async function firstBatch(db, document, signal) {
  const reply = await command(db, document, { signal });
  return reply.cursor.firstBatch;
}

async function databases(root, context, signal) {
  const { databases: all } = await command("admin", { listDatabases: 1 }, { signal });
  const rows = await Promise.all(all.map(async (one) => {
    try {
      return { ...one, stats: await command(one.name, { dbStats: 1 }, { signal }) };
    } catch {
      return one;
    }
  }));
  if (rows.length === 0) return root.append(empty("There is no database yet", "A database begins with its first document."));
  context.subtitle.textContent = `${rows.length} databases, ${bytes(rows.reduce((sum, one) => sum + number(one.sizeOnDisk), 0))} on disk`;
  return root.append(h("section", { class: "card" }, table([
    { title: "Database", cell: (one) => h("a", { class: "link strong", href: `#/collections/${encodeURIComponent(one.name)}` }, one.name) },
    { title: "Collections", number: true, cell: (one) => whole(one.stats?.collections) },
    { title: "Documents", number: true, cell: (one) => whole(one.stats?.objects) },
    { title: "Data", number: true, cell: (one) => bytes(one.stats?.dataSize) },
    { title: "Indexes", number: true, cell: (one) => whole(one.stats?.indexes) },
    { title: "Size of indexes", number: true, cell: (one) => bytes(one.stats?.indexSize) },
    { title: "On disk", number: true, cell: (one) => bytes(number(one.sizeOnDisk)) },
  ], rows, { label: "Databases" })));
}

async function topTimes(signal) {
  try {
    return (await command("admin", { top: 1 }, { signal })).totals;
  } catch {
    return {};
  }
}

async function collections(root, context, db, signal) {
  const [all, times] = await Promise.all([firstBatch(db, { listCollections: 1, cursor: { batchSize: 500 } }, signal), topTimes(signal)]);
  const rows = await Promise.all(all.sort((a, b) => a.name.localeCompare(b.name)).map(async (one) => {
    if (one.type === "view") return one;
    try {
      return { ...one, stats: await command(db, { collStats: one.name }, { signal }) };
    } catch {
      return one;
    }
  }));
  context.subtitle.replaceChildren(h("a", { href: "#/collections" }, "All databases"), ` / ${db}`);
  if (rows.length === 0) return root.append(empty(`${db} has no collections`, "A collection begins with its first document."));
  const time = (one, kind) => times[`${db}.${one.name}`]?.[kind];
  return root.append(h("section", { class: "card" }, table([
    { title: "Collection", cell: (one) => h("a", { class: "link strong", href: `#/collections/${encodeURIComponent(db)}/${encodeURIComponent(one.name)}` }, one.name) },
    { title: "Kind", cell: (one) => h("span", { class: "tag" }, one.options?.capped ? "capped" : one.type) },
    { title: "Documents", number: true, cell: (one) => whole(one.stats?.count) },
    { title: "Mean size", number: true, cell: (one) => bytes(one.stats?.avgObjSize) },
    { title: "Data", number: true, cell: (one) => bytes(one.stats?.size) },
    { title: "On disk", number: true, cell: (one) => bytes(one.stats?.storageSize) },
    { title: "Indexes", number: true, cell: (one) => whole(one.stats?.nindexes) },
    { title: "Size of indexes", number: true, cell: (one) => bytes(one.stats?.totalIndexSize) },
    { title: "Reads", number: true, cell: (one) => short(time(one, "readLock")?.count) },
    { title: "Writes", number: true, cell: (one) => short(time(one, "writeLock")?.count) },
  ], rows, { label: `Collections of ${db}` })));
}

async function collection(root, context, db, name, signal) {
  context.subtitle.replaceChildren(h("a", { href: "#/collections" }, "All databases"), " / ", h("a", { href: `#/collections/${encodeURIComponent(db)}` }, db), ` / ${name}`);
  context.actions.append(
    h("button", { type: "button", onclick: () => context.go("query", db, name) }, "Query"));
  const [info] = await firstBatch(db, { listCollections: 1, filter: { name }, cursor: {} }, signal);
  if (!info) return root.append(empty(`There is no collection ${name} in ${db}`));
  if (info.type === "view") {
    return root.append(card("View", h("p", {}, `On ${info.options.viewOn}`), h("pre", {}, JSON.stringify(info.options.pipeline, null, 2))));
  }
  const [stats, indexes, use] = await Promise.all([
    command(db, { collStats: name }, { signal }),
    firstBatch(db, { listIndexes: name, cursor: { batchSize: 200 } }, signal),
    firstBatch(db, { aggregate: name, pipeline: [{ $indexStats: {} }], cursor: { batchSize: 200 } }, signal).catch(() => []),
  ]);
  const fact = (title, value) => h("div", {}, h("dt", {}, title), h("dd", {}, value));
  root.append(card(null, h("dl", { class: "facts" },
    fact("Documents", whole(stats.count)), fact("Mean size", bytes(stats.avgObjSize)), fact("Data", bytes(stats.size)),
    fact("On disk", bytes(stats.storageSize)), fact("Indexes", bytes(stats.totalIndexSize)),
    stats.size > 0 ? fact("On disk, of the data", percent(stats.storageSize / stats.size)) : null,
    stats.capped ? fact("Capped at", bytes(stats.maxSize)) : null)));
  const accesses = Object.fromEntries(use.map((one) => [one.name, one.accesses]));
  const options = (index) => ["unique", "sparse", "hidden"].filter((one) => index[one])
    .concat(index.expireAfterSeconds === undefined ? [] : [`expires after ${index.expireAfterSeconds} s`])
    .concat(index.partialFilterExpression ? [`where ${inline(index.partialFilterExpression, 60)}`] : []);
  root.append(card(`Indexes (${indexes.length})`, table([
    { title: "Index", cell: (one) => h("span", { class: "strong" }, one.name) },
    { title: "Keys", class: "mono", cell: (one) => inline(one.key) },
    { title: "Size", number: true, cell: (one) => bytes(stats.indexSizes?.[one.name]) },
    { title: "Uses", number: true, cell: (one) => {
      const uses = number(accesses[one.name]?.ops ?? NaN);
      return h("span", { class: uses === 0 && one.name !== "_id_" ? "warn" : null }, whole(uses));
    } },
    { title: "Options", rare: true, cell: (one) => (options(one).length > 0 ? options(one).map((text) => [h("span", { class: "tag" }, text), " "]) : null) },
    { title: "Counted for", class: "more", cell: (one) => (accesses[one.name] ? ago(millis(accesses[one.name].since)) : "–") },
    { title: "", cell: (one) => one.name !== "_id_" && h("button", { type: "button", class: "link bad", onclick: () => drop(one) }, "Drop") },
  ], indexes, { label: "Indexes" })));

  async function drop(index) {
    const uses = number(accesses[index.name]?.ops ?? NaN);
    const text = `${inline(index.key)} on ${db}.${name}${uses > 0 ? `, used ${whole(uses)} times since ${dateTime(millis(accesses[index.name].since))}` : ""}. Queries that need it will scan the collection.`;
    if (!await confirm(`Drop the index ${index.name}?`, text, "Drop the index")) return;
    try {
      await command(db, { dropIndexes: name, index: index.name });
      toast(`Dropped ${index.name}`);
      context.go("collections", db, name);
      window.dispatchEvent(new HashChangeEvent("hashchange"));
    } catch (error) {
      root.prepend(failure(error));
    }
  }
}

export default {
  id: "collections",
  title: "Collections",
  mount(root, context) {
    const abort = new AbortController();
    const [db, name] = context.rest;
    const load = () => (name ? collection(root, context, db, name, abort.signal) : db ? collections(root, context, db, abort.signal) : databases(root, context, abort.signal));
    load().catch((error) => { if (error.name !== "AbortError") root.append(failure(error)); });
    return () => abort.abort();
  },
};
