// Operations that were slow: from the profiler where it is on, else from the log.

import { command } from "./api.js";
import { card, empty, failure, h, table } from "./dom.js";
import { clock, dateTime, duration, essence, inline, millis, number, pretty, whole } from "./format.js";

const fromProfile = (db) => (one) => ({
  at: millis(one.ts), micros: one.durationMicros === undefined ? number(one.millis) * 1000 : number(one.durationMicros), kind: one.op, ns: one.ns,
  plan: one.planSummary, keys: one.keysExamined, docs: one.docsExamined, returned: one.nreturned,
  command: one.command ?? {}, hash: one.queryHash, source: `${db}.system.profile`, waits: one.waitedFor,
});

// A line of the log about a slow operation.
function fromLog(line) {
  let one;
  try { one = JSON.parse(line); } catch { return null; }
  const attr = one.attr ?? {};
  if (one.id !== 51803 && one.msg !== "Slow query") return null;
  return {
    at: Date.parse(one.t?.$date), micros: number(attr.durationMicros ?? NaN) || number(attr.durationMillis ?? 0) * 1000, kind: attr.type ?? attr.op, ns: attr.ns, plan: attr.planSummary,
    keys: attr.keysExamined, docs: attr.docsExamined, returned: attr.nreturned, command: attr.command ?? {}, hash: attr.queryHash, source: "log", waits: attr.waitedFor,
  };
}

// What an operation waited for: its fields end in the unit.
function waited(waits) {
  const parts = Object.entries(waits ?? {}).map(([name, micros]) => `${name.replace(/Micros$/, "")} ${duration(number(micros))}`);
  return parts.length === 0 ? null : h("p", {}, `Waited for: ${parts.join(", ")}`);
}

export default {
  id: "slow",
  title: "Slow operations",
  mount(root, context) {
    const abort = new AbortController();
    const { signal } = abort;
    const list = h("div", { class: "view" });
    let order = "at";
    let found = [];
    const orders = [["at", "Newest"], ["micros", "Slowest"]].map(([id, name]) => h("button", { type: "button", "data-order": id, "aria-pressed": String(id === order), onclick: () => {
      order = id;
      orders.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.order === id)));
      show();
    } }, name));
    const search = h("input", { type: "search", placeholder: "Namespace or text", "aria-label": "Only those with this text", oninput: () => show() });
    context.actions.append(search, h("div", { class: "segments", role: "group", "aria-label": "Order" }, orders),
      h("button", { type: "button", "data-reload": "", onclick: load }, "Load again"));
    root.append(list);
    let settings = [];

    async function load() {
      try {
        const { databases } = await command("admin", { listDatabases: 1, nameOnly: true }, { signal });
        settings = [];
        const profiles = await Promise.all(databases.map(async ({ name }) => {
          try {
            const level = await command(name, { profile: -1 }, { signal });
            settings.push({ name, level: level.was, slowms: number(level.slowms) });
            const reply = await command(name, { find: "system.profile", sort: { ts: -1 }, limit: 100, batchSize: 100 }, { signal });
            return reply.cursor.firstBatch.map(fromProfile(name));
          } catch (error) {
            if (error.name === "AbortError") throw error;
            return [];
          }
        }));
        let log = [];
        try {
          log = (await command("admin", { getLog: "global" }, { signal })).log.map(fromLog).filter(Boolean);
        } catch (error) {
          if (error.name === "AbortError" || (profiles.flat().length === 0 && error.code !== 13)) throw error;
        }
        const profiled = profiles.flat();
        // An operation that the profiler has stored is in the log, too.
        const known = new Set(profiled.map((one) => `${one.ns} ${Math.round(one.micros / 1000)}`));
        found = [...profiled, ...log.filter((one) => !known.has(`${one.ns} ${Math.round(one.micros / 1000)}`))];
        show();
      } catch (error) {
        if (error.name !== "AbortError") list.replaceChildren(failure(error));
      }
    }

    function show() {
      const slowms = settings[0]?.slowms;
      const on = settings.filter((one) => one.level > 0);
      context.subtitle.textContent = `${slowms === undefined ? "" : `slower than ${slowms} ms; `}${on.length > 0 ? `the profiler is on for ${on.map((one) => one.name).join(", ")}` : "from the log"}`;
      const wanted = search.value.toLowerCase();
      const shown = found.filter((one) => wanted === "" || JSON.stringify(one).toLowerCase().includes(wanted)).sort((a, b) => b[order] - a[order]);
      if (shown.length === 0) {
        list.replaceChildren(found.length === 0
          ? empty("No slow operations", `Nothing in the log took longer than ${slowms ?? 100} ms. The profiler ({ profile: 1, slowms: … }) stores more of a database.`)
          : empty("Nothing has this text"));
        return;
      }
      list.replaceChildren(card(null, table([
        { title: "When", cell: (one) => h("span", { title: dateTime(one.at) }, Date.now() - one.at < 864e5 ? clock(one.at) : dateTime(one.at)) },
        { title: "Time", number: true, cell: (one) => h("span", { class: one.micros > 1e6 ? "warn strong" : "strong" }, duration(one.micros)) },
        { title: "Command", cell: (one) => Object.keys(one.command)[0] ?? one.kind },
        { title: "Namespace", cell: (one) => one.ns },
        { title: "Plan", rare: true, cell: (one) => one.plan && h("span", { class: one.plan.startsWith("COLLSCAN") ? "warn" : null }, one.plan) },
        { title: "Keys", number: true, rare: true, class: "more", cell: (one) => whole(one.keys) },
        { title: "Documents", number: true, rare: true, class: "more", cell: (one) => whole(one.docs) },
        { title: "Returned", number: true, rare: true, class: "more", cell: (one) => whole(one.returned) },
        { title: "Shape", rare: true, class: "more mono", cell: (one) => one.hash },
      ], shown, { label: "Slow operations", detail: (one) => h("details", {}, h("summary", { class: "mono" }, inline(essence(one.command), 300)), waited(one.waits), h("pre", {}, pretty(one.command, h))) })));
    }

    load();
    return () => abort.abort();
  },
};
