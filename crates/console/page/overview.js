// What goes on now, and what went on in the last hours.

import { command } from "./api.js";
import { Chart } from "./chart.js";
import { failure, h } from "./dom.js";
import { byteRate, bytes, dateTime, duration, millis, percent, short, whole } from "./format.js";

const RANGES = [
  { id: "5m", name: "5 min", span: 300e3, every: 1000, points: 300 },
  { id: "1h", name: "1 h", span: 3600e3, every: 10e3, points: 360 },
  { id: "6h", name: "6 h", span: 6 * 3600e3, every: 30e3, points: 360 },
  { id: "24h", name: "24 h", span: 24 * 3600e3, every: 60e3, points: 480 },
];

// Differences of a counter per second. The first sample has none, nor has one after a restart or a pause.
function rate(name) {
  return ({ times, counters, gap }) => {
    const values = counters[name] ?? [];
    return times.map((time, at) => {
      if (at === 0 || time - times[at - 1] > gap || values[at] < values[at - 1]) return null;
      return ((values[at] - values[at - 1]) * 1000) / (time - times[at - 1]);
    });
  };
}

const rates = (...names) => (data) => names.map((name) => rate(name)(data))
  .reduce((sum, line) => sum.map((value, at) => (value === null || line[at] === null ? null : value + line[at])));

// The quotient of the differences of two counters; none where the second did not change.
const quotient = (above, below) => (data) => {
  const [one, other] = [above(data), below(data)];
  return one.map((value, at) => (value === null ? null : other[at] > 0 ? value / other[at] : null));
};

const gauge = (name) => ({ times, gauges }) => times.map((_, at) => gauges[name]?.[at] ?? null);

const sum = (...names) => ({ times, gauges }) => times.map((_, at) => names.reduce((total, name) => total + (gauges[name]?.[at] ?? 0), 0));

const last = (name) => ({ gauges }) => gauges[name]?.at(-1) ?? 0;

const CHARTS = [
  { id: "operations", title: "Operations per second", format: short, stacked: true, series: [
    { name: "insert", read: rate("ops.insert") }, { name: "query", read: rate("ops.query") },
    { name: "update", read: rate("ops.update") }, { name: "delete", read: rate("ops.delete") },
    { name: "getMore", read: rate("ops.getmore") }, { name: "command", read: rate("ops.command") }] },
  { id: "documents", title: "Documents per second", format: short, series: [
    { name: "inserted", read: rate("docs.inserted") }, { name: "returned", read: rate("docs.returned") },
    { name: "updated", read: rate("docs.updated") }, { name: "deleted", read: rate("docs.deleted") }] },
  { id: "latency", title: "Mean time of an operation", format: duration, join: true, series: [
    { name: "writes", read: quotient(rate("writes.micros"), rate("writes.count")) },
    { name: "reads", read: quotient(rate("reads.micros"), rate("reads.count")) },
    { name: "commands", read: quotient(rate("commands.micros"), rate("commands.count")) }] },
  { id: "memory", title: "Memory by owner", format: bytes, bytes: true, stacked: true, max: last("memory.limit"), series: [
    { name: "pages", read: gauge("memory.pages") }, { name: "blocks", read: gauge("memory.blocks") },
    { name: "memtables", read: gauge("memory.memtables") },
    { name: "queries, cursors", read: sum("memory.queries", "memory.cursors") },
    { name: "requests, replies", read: sum("memory.requests", "memory.replies", "memory.connections") },
    { name: "other", read: sum("memory.loads", "memory.runs", "memory.conflicts", "memory.transactions", "memory.writeSets") }] },
  { id: "cache", title: "Cache hits", format: percent, top: 1, join: true, series: [
    { name: "pages", read: quotient(rate("cache.hits"), rates("cache.hits", "cache.misses")) },
    { name: "compressed blocks", read: quotient(rate("cache.blockHits"), rates("cache.blockHits", "cache.blockMisses")) }] },
  { id: "disk", title: "Disk and journal", format: byteRate, bytes: true, series: [
    { name: "written", read: rate("disk.written") }, { name: "read", read: rate("disk.read") },
    { name: "journal", read: rate("log.written") }] },
  { id: "flush", title: "Flush debt", format: bytes, bytes: true, max: last("cache.limit"), series: [
    { name: "in memtables, not in trees yet", read: gauge("flush.debt") }] },
  { id: "waiting", title: "Running and waiting", format: short, series: [
    { name: "reads", read: gauge("running.read") }, { name: "writes", read: gauge("running.write") },
    { name: "reads waiting", read: gauge("waiting.read") }, { name: "writes waiting", read: gauge("waiting.write") }] },
  { id: "slow", title: "Slow operations and errors per second", format: short, series: [
    { name: "slow", read: rate("slow") }, { name: "errors", read: rate("errors") }] },
  { id: "connections", title: "Connections", format: short, series: [
    { name: "open", read: gauge("connections") }, { name: "active", read: gauge("connections.active") },
    { name: "cursors", read: gauge("cursors") }, { name: "transactions", read: gauge("transactions") }] },
  { id: "network", title: "Network", format: byteRate, bytes: true, series: [
    { name: "in", read: rate("net.in") }, { name: "out", read: rate("net.out") }] },
  { id: "process", title: "Processor time", format: percent, series: [
    { name: "of one processor", read: (data) => rate("cpu.millis")(data).map((value) => (value === null ? null : value / 1000)) }] },
];

// The newest value, if it is not old.
const newest = (line) => line.slice(-10).findLast((value) => value !== null) ?? null;

const TILES = [
  ["Operations", (d) => `${short(newest(rates("ops.insert", "ops.query", "ops.update", "ops.delete", "ops.getmore", "ops.command")(d)))}/s`],
  ["Reads", (d) => duration(newest(quotient(rate("reads.micros"), rate("reads.count"))(d)))],
  ["Writes", (d) => duration(newest(quotient(rate("writes.micros"), rate("writes.count"))(d)))],
  ["Memory", (d) => bytes(newest(gauge("memory.resident")(d)))],
  ["Connections", (d) => whole(newest(gauge("connections")(d)))],
  ["Flush debt", (d) => bytes(newest(gauge("flush.debt")(d)))],
  ["Disk free", (d) => bytes(newest(gauge("disk.available")(d)))],
  ["Processor", (d) => percent(newest(rate("cpu.millis")(d).map((value) => (value === null ? null : value / 1000))))],
];

function append(data, more, from) {
  const times = [...data.times, ...more.times];
  const first = times.findIndex((time) => time > from - data.gap);
  const cut = (one) => (first > 0 ? one.slice(first) : one);
  const join = (a, b) => Object.fromEntries(Object.keys(b).map((name) => [name, cut([...(a[name] ?? []), ...b[name]])]));
  return { ...data, times: cut(times), counters: join(data.counters, more.counters), gauges: join(data.gauges, more.gauges) };
}

async function load(after, points, signal) {
  const reply = await command("admin", { getDiagnosticHistory: 1, after: { $date: { $numberLong: String(Math.round(after)) } }, points }, { signal });
  return { now: millis(reply.now), times: reply.times.map(millis), counters: reply.counters, gauges: reply.gauges };
}

export default {
  id: "overview",
  title: "Overview",
  mount(root, context) {
    const charts = CHARTS.map((options) => new Chart(options));
    for (const chart of charts) chart.onPoint = (time) => charts.forEach((one) => one.point(time));
    const tiles = TILES.map(([name]) => {
      const value = h("dd", {}, "–");
      return { value, element: h("div", { class: "tile" }, h("dt", {}, name), value) };
    });
    const notes = h("div", {});
    const abort = new AbortController();
    let range = RANGES[0];
    let data = null;
    let timer = null;
    const buttons = RANGES.map((one) => h("button", { type: "button", "aria-pressed": String(one === range), "data-range": one.id,
      onclick: () => { range = one; data = null; buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.range === one.id))); tick(); } }, one.name));
    context.actions.append(h("div", { class: "segments", role: "group", "aria-label": "Time shown" }, buttons));
    const gridElement = h("div", { class: "charts" }, charts.map((chart) => chart.element));
    root.append(notes, h("dl", { class: "tiles" }, tiles.map((tile) => tile.element)), gridElement);

    async function tick() {
      clearTimeout(timer);
      const asked = range;
      try {
        // A page that nobody sees asks for nothing.
        if (!document.hidden) {
          const now = data ? data.until : Date.now();
          const isLive = asked === RANGES[0];
          // One sample before the range, so that the first rate is known. The clock of the server counts.
          if (isLive && data && data.asked === asked && data.times.length > 0 && now - data.times.at(-1) < asked.span) {
            const more = await load(data.times.at(-1), asked.points, abort.signal);
            if (asked !== range) return;
            data = append(data, more, more.now - asked.span);
            data.until = Math.max(more.now, data.times.at(-1) ?? 0);
          } else {
            const skew = data ? 0 : await skewOf();
            const after = Date.now() + skew - asked.span * 1.01;
            const loaded = await load(after, asked.points, abort.signal);
            if (asked !== range) return;
            data = { ...loaded, until: loaded.now, gap: Math.max(3500, (asked.span / asked.points) * 3.5, asked === RANGES[0] ? 0 : 25e3) };
          }
          data.asked = asked;
          data.from = data.until - asked.span;
          notes.replaceChildren();
          for (const chart of charts) chart.show(data);
          tiles.forEach((tile, at) => { tile.value.textContent = TILES[at][1](data); });
          gridElement.dataset.newest = String(data.times.at(-1) ?? 0);
        }
      } catch (error) {
        if (error.name === "AbortError") return;
        notes.replaceChildren(failure(error));
      }
      if (!abort.signal.aborted && asked === range) timer = setTimeout(tick, asked.every);
    }

    let skew = null;
    async function skewOf() {
      if (skew === null) {
        const reply = await command("admin", { getDiagnosticHistory: 1, after: { $date: { $numberLong: String(Date.now() - 2000) } }, points: 1 }, { signal: abort.signal });
        skew = millis(reply.now) - Date.now();
      }
      return skew;
    }

    const seen = () => { if (!document.hidden) tick(); };
    document.addEventListener("visibilitychange", seen);
    command("admin", { hostInfo: 1 }, { signal: abort.signal }).then(async (host) => {
      const build = await command("admin", { buildInfo: 1 }, { signal: abort.signal });
      context.subtitle.textContent = `${host.system?.hostname ?? ""} · Frond ${build.frondVersion ?? build.frond?.version ?? ""} · ${dateTime(Date.now()).slice(0, 10)}`;
    }).catch(() => {});
    tick();
    return () => { abort.abort(); clearTimeout(timer); document.removeEventListener("visibilitychange", seen); };
  },
};
