// Running queries, pipelines and commands, and explaining them.

import { command } from "./api.js";
import { card, empty, failure, h, table } from "./dom.js";
import { cell, duration, number, pretty, whole } from "./format.js";
import { drawPlan } from "./plan.js";
import { toExtendedJson } from "./shell.js";

const MODES = [["find", "Find"], ["aggregate", "Pipeline"], ["command", "Command"]];

// What was typed stays while the page is open.
const kept = { mode: "find", shape: "table", filter: "{}", projection: "", sort: "", limit: "50", pipeline: "[\n  { $match: {} }\n]", command: "{ serverStatus: 1 }", db: "", coll: "" };

function part(text, name) {
  try {
    return toExtendedJson(text);
  } catch (error) {
    throw new SyntaxError(`${name}: ${error.message}`);
  }
}

export default {
  id: "query",
  title: "Query",
  mount(root, context) {
    const ended = new AbortController();
    let running = null;
    const [db, coll] = context.rest;
    if (db) kept.db = db;
    if (coll) kept.coll = coll;
    const dbs = h("datalist", { id: "dbs" });
    const colls = h("datalist", { id: "colls" });
    const input = (name, attributes) => h("input", { id: `q-${name}`, value: kept[name], spellcheck: "false", autocomplete: "off", autocapitalize: "none",
      oninput: (event) => { kept[name] = event.target.value; }, ...attributes });
    const area = (name, rows, placeholder) => h("textarea", { id: `q-${name}`, value: kept[name], rows, placeholder, spellcheck: "false", autocapitalize: "none", autocomplete: "off",
      oninput: (event) => { kept[name] = event.target.value; } });
    const field = (id, title, control, more = "") => h("div", { class: `field ${more}` }, h("label", { for: `q-${id}` }, title), control);
    const dbField = input("db", { list: "dbs", placeholder: "test", onchange: () => listCollections() });
    const collField = input("coll", { list: "colls", placeholder: "collection" });
    const parts = h("div", {});
    const run = h("button", { type: "submit", class: "primary", title: "Ctrl Enter" }, "Run");
    const explain = h("button", { type: "button", onclick: () => start(true) }, "Explain");
    const cancel = h("button", { type: "button", class: "danger", hidden: true, onclick: () => running?.abort() }, "Cancel");
    const modes = MODES.map(([id, title]) => h("button", { type: "button", "data-mode": id, onclick: () => { kept.mode = id; showParts(); } }, title));
    const results = h("div", { class: "view", "aria-live": "polite" });
    const collCell = field("coll", "Collection", collField);
    const form = h("form", { class: "card query-form", onsubmit: (event) => { event.preventDefault(); start(false); } },
      h("div", { class: "query-head" }, field("db", "Database", dbField), collCell,
        h("div", { class: "segments", role: "group", "aria-label": "Kind of query" }, modes)),
      parts, h("div", { class: "row" }, run, explain, cancel, h("span", { class: "quiet small" }, "Shell notation works: ObjectId(\"…\"), ISODate(\"…\"), /regex/i")), dbs, colls);
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); start(event.shiftKey); }
    });
    root.append(form, results);

    function showParts() {
      modes.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.mode === kept.mode)));
      collCell.hidden = kept.mode === "command";
      explain.hidden = kept.mode === "command";
      if (kept.mode === "find") {
        parts.replaceChildren(h("div", { class: "query-parts" },
          field("filter", "Filter", area("filter", 3, "{ town: \"Oslo\" }")),
          field("projection", "Projection", area("projection", 3, "{ name: 1 }")),
          h("div", { class: "row" }, field("sort", "Sort", input("sort", { class: "mono", placeholder: "{ at: -1 }" })), field("limit", "Limit", input("limit", { inputmode: "numeric", size: 5 }), "narrow"))));
      } else if (kept.mode === "aggregate") {
        parts.replaceChildren(field("pipeline", "Pipeline", area("pipeline", 7, "[]")));
      } else {
        parts.replaceChildren(field("command", "Command", area("command", 7, "{ ping: 1 }")));
      }
    }

    function build() {
      if (kept.db === "") throw new SyntaxError("Name a database.");
      if (kept.mode === "command") return part(kept.command, "Command");
      if (kept.coll === "") throw new SyntaxError("Name a collection.");
      const name = JSON.stringify(kept.coll);
      if (kept.mode === "aggregate") {
        return `{"aggregate":${name},"pipeline":${part(kept.pipeline, "Pipeline")},"cursor":{"batchSize":100}}`;
      }
      const limit = Number(kept.limit || 0);
      if (!Number.isInteger(limit) || limit < 0) throw new SyntaxError("The limit is a whole number; 0 means none.");
      const optional = (id, title) => (kept[id].trim() === "" ? "" : `,"${id}":${part(kept[id], title)}`);
      return `{"find":${name},"filter":${part(kept.filter.trim() || "{}", "Filter")}${optional("projection", "Projection")}${optional("sort", "Sort")}`
        + `${limit > 0 ? `,"limit":${limit}` : ""},"batchSize":${limit > 0 ? Math.min(limit, 100) : 100}}`;
    }

    async function start(isExplain) {
      running?.abort();
      const mine = new AbortController();
      running = mine;
      cancel.hidden = false;
      results.replaceChildren(card(null, h("p", { class: "quiet" }, "Running …")));
      const began = performance.now();
      try {
        let text = build();
        if (isExplain && kept.mode !== "command") text = `{"explain":${text.replace(/,"batchSize":\d+}$/, "}")},"verbosity":"executionStats"}`;
        const asked = { db: kept.db, coll: kept.coll };
        const reply = await command(kept.db, text, { signal: mine.signal, canonical: !isExplain });
        const took = (performance.now() - began) * 1000;
        if (isExplain) results.replaceChildren(card("Plan", drawPlan(reply)), raw(reply));
        else if (reply.cursor) showDocuments(reply, asked, took);
        else results.replaceChildren(card(`Reply, ${duration(took)}`, h("pre", {}, pretty(reply, h))));
      } catch (error) {
        if (ended.signal.aborted) return;
        results.replaceChildren(error.name === "AbortError"
          ? empty("Cancelled", "The server was told to stop the operation.")
          : failure(error instanceof SyntaxError ? new Error(error.message) : error));
      } finally {
        if (running === mine) { cancel.hidden = true; running = null; }
      }
    }

    const raw = (reply) => h("details", { class: "card" }, h("summary", {}, "The whole reply"), h("pre", {}, JSON.stringify(reply, null, 2)));

    function showDocuments(reply, asked, took) {
      let cursor = String(reply.cursor.id?.$numberLong ?? reply.cursor.id);
      const documents = [...reply.cursor.firstBatch];
      const name = number(reply.cursor.id) === 0 ? null : String(reply.cursor.ns).slice(asked.db.length + 1);
      const body = h("div", {});
      const title = h("h2", {});
      const more = h("button", { type: "button", onclick: next }, "Next 100");
      const shapes = [["table", "Table"], ["json", "JSON"]].map(([id, text]) => h("button", { type: "button", "data-shape": id, onclick: () => { kept.shape = id; show(); } }, text));
      const copy = h("button", { type: "button", onclick: () => navigator.clipboard?.writeText(JSON.stringify(documents, null, 2)) }, "Copy");
      results.replaceChildren(h("section", { class: "card results" }, h("div", { class: "card-head" }, title, h("div", { class: "row" }, copy, h("div", { class: "segments", role: "group", "aria-label": "Form of the results" }, shapes))), body, h("div", { class: "row next" }, more)));
      show();

      function show() {
        title.textContent = `${whole(documents.length)} ${documents.length === 1 ? "document" : "documents"}${cursor !== "0" ? ", and more" : ""}, ${duration(took)}`;
        shapes.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.shape === kept.shape)));
        more.hidden = cursor === "0";
        copy.hidden = documents.length === 0;
        if (documents.length === 0) { body.replaceChildren(empty("No documents", "Nothing in the collection passes the filter.")); return; }
        body.replaceChildren(kept.shape === "table" ? asTable(documents) : h("div", {}, documents.map((one) => h("pre", { class: "doc" }, pretty(one, h)))));
      }

      async function next() {
        more.disabled = true;
        try {
          const batch = await command(asked.db, `{"getMore":{"$numberLong":"${cursor}"},"collection":${JSON.stringify(name)},"batchSize":100}`, { canonical: true, signal: ended.signal });
          cursor = String(batch.cursor.id?.$numberLong ?? batch.cursor.id);
          documents.push(...batch.cursor.nextBatch);
          show();
        } catch (error) {
          if (error.name !== "AbortError") body.append(failure(error));
        }
        more.disabled = false;
      }
    }

    function asTable(documents) {
      const names = new Map();
      for (const one of documents.slice(0, 200)) for (const name of Object.keys(one)) names.set(name, (names.get(name) ?? 0) + 1);
      const columns = [...names.keys()].slice(0, 40).map((name) => {
        const isNumber = documents.slice(0, 50).every((one) => one[name] === undefined || !Number.isNaN(number(one[name])));
        return { title: name, number: isNumber, class: "cut", cell: (one) => (one[name] === undefined ? h("span", { class: "quiet" }, "–") : cell(one[name])) };
      });
      const open = (one) => (event) => {
        const row = event.currentTarget;
        if (row.nextSibling?.classList?.contains("opened")) { row.nextSibling.remove(); return; }
        row.after(h("tr", { class: "opened" }, h("td", { colspan: columns.length, class: "wide" }, h("pre", {}, pretty(one, h)))));
      };
      return table(columns, documents, { label: "Documents", row: (one) => ({ onclick: open(one), title: "Show the whole document" }) });
    }

    async function listCollections() {
      try {
        if (dbs.children.length === 0) {
          const { databases } = await command("admin", { listDatabases: 1, nameOnly: true }, { signal: ended.signal });
          dbs.replaceChildren(...databases.map(({ name }) => h("option", { value: name })));
        }
        if (kept.db === "") return;
        const reply = await command(kept.db, { listCollections: 1, nameOnly: true, cursor: { batchSize: 500 } }, { signal: ended.signal });
        colls.replaceChildren(...reply.cursor.firstBatch.map(({ name }) => h("option", { value: name })));
      } catch {
        // The lists only help to type.
      }
    }

    showParts();
    listCollections();
    return () => { ended.abort(); running?.abort(); };
  },
};
