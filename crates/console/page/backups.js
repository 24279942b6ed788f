// What there is for backups: checkpoints, the journal, and what a copy of the files needs.

import { command } from "./api.js";
import { card, empty, failure, h, toast } from "./dom.js";
import { bytes, number, whole } from "./format.js";

export default {
  id: "backups",
  title: "Backups",
  mount(root, context) {
    const abort = new AbortController();
    const { signal } = abort;
    const body = h("div", { class: "view" });
    const sync = h("button", { type: "button", onclick: async () => {
      sync.disabled = true;
      try {
        await command("admin", { fsync: 1 });
        toast("The journal is synced and a checkpoint is written");
        await load();
      } catch (error) {
        body.prepend(failure(error));
      }
      sync.disabled = false;
    } }, "Write a checkpoint");
    context.actions.append(sync);
    root.append(body);
    const fact = (title, value) => h("div", {}, h("dt", {}, title), h("dd", {}, value));
    async function load() {
      const [status, options, operations] = await Promise.all([
        command("admin", { serverStatus: 1 }, { signal }),
        command("admin", { getCmdLineOpts: 1 }, { signal }).catch(() => ({ parsed: {} })),
        command("admin", { currentOp: 1 }, { signal }).catch(() => ({})),
      ]);
      const engine = status.frond ?? {};
      const isLocked = operations.fsyncLock === true;
      body.replaceChildren(...[
        isLocked ? h("div", { class: "failure" }, "Writes are locked by fsync with lock: true. Unlock them with fsyncUnlock.") : null,
        card("State on disk", h("dl", { class: "facts" },
          fact("Directory", h("span", { class: "mono" }, options.parsed?.storage?.dbPath ?? "/data/db")),
          fact("Checkpoints since the start", whole(number(engine.transactions?.checkpoints))),
          fact("Not in the data files yet", bytes(number(engine.cache?.["bytes of memtables"]))),
          fact("Journal written", bytes(number(engine.log?.["bytes written"]))),
          fact("Free on the file system", bytes(number(engine["disk space"]?.["available bytes"]))),
          fact("Damaged blocks", whole((engine.damage ?? []).length)))),
        empty("No backups are kept by this server yet", "Use mongodump and mongorestore, or copy the data directory of a server that is stopped. A copy of the files of a running server is no backup."),
      ].filter(Boolean));
    }
    load().catch((error) => { if (error.name !== "AbortError") body.replaceChildren(failure(error)); });
    return () => abort.abort();
  },
};
