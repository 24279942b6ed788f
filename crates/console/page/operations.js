// What runs now, with a button that ends it.

import { command } from "./api.js";
import { card, confirm, empty, failure, h, table, toast } from "./dom.js";
import { duration, essence, inline, number, pretty, whole } from "./format.js";

const OWN = "Frond console";

export default {
  id: "operations",
  title: "Operations",
  mount(root, context) {
    const abort = new AbortController();
    let timer = null;
    let isAll = false;
    const list = h("div", {});
    const idle = h("input", { type: "checkbox", id: "idle", onchange: (event) => { isAll = event.target.checked; tick(); } });
    context.actions.append(h("span", { class: "row" }, idle, h("label", { for: "idle" }, "Idle connections too")),
      h("button", { type: "button", "data-reload": "", onclick: () => tick() }, "Load again"));
    root.append(list);

    async function kill(operation) {
      const what = `${operation.op ?? "operation"} on ${operation.ns || "the server"}, of ${operation.client ?? "the server itself"}, running for ${duration(number(operation.microsecs_running ?? 0))}. Its client gets the error Interrupted.`;
      if (!await confirm(`End operation ${operation.opid}?`, what, "End it")) return;
      try {
        await command("admin", { killOp: 1, op: operation.opid });
        toast(`Operation ${operation.opid} was told to end`);
      } catch (error) {
        root.prepend(failure(error));
      }
      tick();
    }

    // So that the ids of cursors keep all their digits.
    const options = { signal: abort.signal, canonical: true };

    async function tick() {
      clearTimeout(timer);
      try {
        if (!document.hidden && !document.querySelector("dialog[open]")) {
          let reply;
          try {
            reply = await command("admin", isAll ? { currentOp: 1, $all: true } : { currentOp: 1 }, options);
          } catch (error) {
            // Everybody may see their own.
            if (Number(error.code) !== 13) throw error;
            reply = await command("admin", { currentOp: 1, $ownOps: true }, options);
          }
          show(reply.inprog.map((one) => ({ ...one, opid: one.opid && number(one.opid) })));
        }
      } catch (error) {
        if (error.name === "AbortError") return;
        list.replaceChildren(failure(error));
      }
      if (!abort.signal.aborted) timer = setTimeout(tick, 2000);
    }

    function show(all) {
      // Drivers wait with a hello for changes of the server: that is no work.
      const isWaiting = (one) => one.command?.topologyVersion !== undefined && (one.command.hello ?? one.command.isMaster ?? one.command.ismaster) !== undefined;
      const shown = all.filter((one) => !(one.appName === OWN && one.command?.currentOp !== undefined) && (isAll || !isWaiting(one)));
      shown.sort((a, b) => number(b.microsecs_running ?? 0) - number(a.microsecs_running ?? 0));
      const active = shown.filter((one) => one.active);
      context.subtitle.textContent = `${whole(active.length)} running`;
      if (shown.length === 0) { list.replaceChildren(empty("Nothing runs at this moment", "Operations that take longer than a glance appear here by themselves.")); return; }
      list.replaceChildren(card(null, table([
        { title: "", cell: (one) => one.active && one.opid !== undefined && h("button", { type: "button", class: "danger kill", "aria-label": `End operation ${one.opid}`, onclick: () => kill(one) }, "Kill") },
        { title: "Operation", number: true, class: "more", cell: (one) => whole(one.opid) },
        { title: "For", number: true, cell: (one) => h("span", { class: number(one.microsecs_running ?? 0) > 5e6 ? "warn strong" : null }, one.active ? duration(number(one.microsecs_running ?? NaN)) : "idle") },
        { title: "Kind", cell: (one) => one.op },
        { title: "Namespace", cell: (one) => one.ns },
        { title: "Waits for", rare: true, cell: (one) => one.waitingFor ?? one.waitsFor ?? (one.waitingForLock ? "lock" : null) },
        { title: "Client", class: "more", cell: (one) => [one.client ?? one.desc, one.appName && h("span", { class: "quiet" }, ` ${one.appName}`)] },
        { title: "User", rare: true, class: "more", cell: (one) => one.effectiveUsers?.map((user) => user.user).join(", ") },
        { title: "Progress", number: true, rare: true, cell: (one) => one.progress === undefined ? null : `${whole(number(one.progress.done))} of ${whole(number(one.progress.total))}` },
      ], shown, { label: "Operations", row: (one) => ({ "data-op": one.opid }), detail: (one) => opened(one.cursor?.originatingCommand ?? one.command) })));
    }

    // What is open stays open when the list is made again.
    const open = new Set();
    function opened(document) {
      const text = inline(essence(document ?? {}), 300);
      const details = h("details", { open: open.has(text), ontoggle: (event) => (event.target.open ? open.add(text) : open.delete(text)) },
        h("summary", { class: "mono" }, text), h("pre", {}, pretty(document ?? {}, h)));
      return details;
    }

    tick();
    return () => { abort.abort(); clearTimeout(timer); };
  },
};
