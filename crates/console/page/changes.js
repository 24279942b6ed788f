// The oplog: its size, its window, and who follows it.

import { command } from "./api.js";
import { card, empty, failure, h, s, table } from "./dom.js";
import { bytes, clock, dateTime, duration, inline, number, pretty, whole } from "./format.js";

const seconds = (ts) => ts.$timestamp.t;

export default {
  id: "changes",
  title: "Changes",
  mount(root, context) {
    const abort = new AbortController();
    const { signal } = abort;
    const body = h("div", { class: "view" });
    context.actions.append(h("button", { type: "button", "data-reload": "", onclick: () => load().catch(show) }, "Load again"));
    root.append(body);
    const show = (error) => { if (error.name !== "AbortError") body.replaceChildren(failure(error)); };
    const end = async (order) => {
      const reply = await command("local", { find: "oplog.rs", sort: { $natural: order }, limit: 1, projection: { ts: 1, wall: 1 } }, { signal });
      return reply.cursor.firstBatch[0];
    };

    async function load() {
      let first;
      let last;
      let stats;
      try {
        [first, last, stats] = await Promise.all([end(1), end(-1), command("local", { collStats: "oplog.rs" }, { signal })]);
      } catch (error) {
        if (error.code !== 26) throw error;
      }
      if (!first || !last) {
        body.replaceChildren(empty("There is no oplog", "Change streams need one: start the server with --oplog on, or as the member of a replica set (--replSet) that is initiated."));
        return;
      }
      const window = seconds(last.ts) - seconds(first.ts);
      const fact = (title, value) => h("div", {}, h("dt", {}, title), h("dd", {}, value));
      const [used, max] = [number(stats.size), number(stats.maxSize)];
      context.subtitle.textContent = `window of ${duration(window * 1e6)}`;
      const following = (await command("admin", { aggregate: 1, pipeline: [{ $currentOp: { allUsers: true, idleCursors: true } }, { $match: { "cursor.originatingCommand.pipeline.0.$changeStream": { $exists: true } } }], cursor: {} }, { signal }).catch(() => ({ cursor: { firstBatch: [] } }))).cursor.firstBatch;
      const recent = (await command("local", { find: "oplog.rs", sort: { $natural: -1 }, limit: 25, batchSize: 25 }, { signal })).cursor.firstBatch;
      body.replaceChildren(
        card("Window", h("dl", { class: "facts" },
          fact("From", dateTime(seconds(first.ts) * 1000)), fact("To", dateTime(seconds(last.ts) * 1000)), fact("Covers", duration(window * 1e6)),
          fact("Entries", whole(stats.count)), fact("Size", `${bytes(used)} of ${bytes(max)}`),
          fact("Room at this rate", window > 0 && used > 0 && used < max ? duration((window * (max - used) / used) * 1e6) : "–")),
                s("svg", { class: "window", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": `${Math.round((used / max) * 100)} % of the oplog is used` },
          s("rect", { width: 100, height: 10, class: "whole" }),
          s("rect", { class: "used", width: Math.min(100, Math.max(0.4, (used / max) * 100)), height: 10 }))),
        following.length > 0
          ? card("Followers", table([
            { title: "Client", cell: (one) => one.client ?? one.desc },
            { title: "Namespace", cell: (one) => one.ns },
            { title: "Application", cell: (one) => one.appName },
            { title: "Pipeline", class: "wide mono", cell: (one) => inline(one.cursor?.originatingCommand?.pipeline ?? [], 160) },
          ], following, { label: "Change streams that are open" }))
          : empty("Nobody follows a change stream now"),
        card("Last entries", table([
          { title: "When", cell: (one) => clock(seconds(one.ts) * 1000) },
          { title: "Kind", cell: (one) => ({ i: "insert", u: "update", d: "delete", c: "command", n: "note" })[one.op] ?? one.op },
          { title: "Namespace", cell: (one) => one.ns },
        ], recent, { label: "Last entries of the oplog", detail: (one) => h("details", {}, h("summary", { class: "mono" }, inline(one.o, 300)), h("pre", {}, pretty(one, h))) })));
    }
    load().catch(show);
    return () => abort.abort();
  },
};
