// Line charts as SVG. All charts of a page share one time axis and one crosshair.

import { h, s } from "./dom.js";
import { clock, dateTime } from "./format.js";

const HEIGHT = 132;
const LEFT = 52;
const BOTTOM = 18;
const TOP = 8;
const RIGHT = 6;

// Steps of a scale: 1, 2, 5 times a power of ten, or of 1024 for bytes.
function niceMax(max, isBytes) {
  if (max <= 0) return 1;
  const base = isBytes ? 1024 ** Math.floor(Math.log(max) / Math.log(1024)) : 1;
  const scaled = max / base;
  const power = 10 ** Math.floor(Math.log10(scaled));
  const step = [1, 2, 3, 4, 5, 6, 8, 10].find((one) => one * power >= scaled * 0.999) ?? 10;
  return step * power * base;
}

const TIME_STEPS = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200, 86400].map((n) => n * 1000);

export class Chart {
  // options: {id, title, series: [{name, read(data) -> values}], format, bytes, stacked, join, top, max(data)}
  constructor(options) {
    this.options = options;
    this.hidden = new Set();
    this.svg = s("svg", { class: "plot", height: HEIGHT, role: "img", "aria-label": `${options.title}, a chart over time` });
    this.keys = options.series.map((series, at) => {
      const value = h("span", { class: "key-value" }, "–");
      const button = h("button", { type: "button", class: `key c${at + 1}`, "aria-pressed": "true", title: `Show or hide ${series.name}`,
        onclick: () => this.toggle(at, button) }, h("span", { class: "swatch" }), h("span", {}, series.name), value);
      return { button, value };
    });
    this.time = h("span", { class: "chart-time" });
    this.element = h("section", { class: "card chart", "data-chart": options.id },
      h("div", { class: "card-head" }, h("h2", {}, options.title), this.time),
      this.svg,
      h("div", { class: "keys" }, this.keys.map((key) => key.button)));
    this.svg.addEventListener("pointermove", (event) => this.onPoint?.(this.timeAt(event)));
    this.svg.addEventListener("pointerleave", () => this.onPoint?.(null));
    new ResizeObserver(() => this.data && this.draw()).observe(this.svg);
  }

  toggle(at, button) {
    if (this.hidden.has(at)) this.hidden.delete(at);
    else if (this.hidden.size + 1 < this.options.series.length) this.hidden.add(at);
    button.setAttribute("aria-pressed", String(!this.hidden.has(at)));
    this.draw();
  }

  show(data) {
    this.data = data;
    this.lines = this.options.series.map((series) => series.read(data));
    this.draw();
  }

  draw() {
    if (!this.data) return;
    const { times, from, until } = this.data;
    const width = Math.max(this.svg.clientWidth, 120);
    this.width = width;
    const shown = this.lines.map((line, at) => (this.hidden.has(at) ? null : line));
    this.stack = this.options.stacked ? stacked(shown, times.length) : shown;
    let most = 0;
    for (const line of this.stack) for (const value of line ?? []) if (value > most) most = value;
    const limit = this.options.max?.(this.data) ?? 0;
    // A limit that is far away would press the lines flat.
    const top = this.options.top ?? niceMax(limit > 0 && most > limit * 0.3 ? Math.max(most, limit) : most * 1.05, this.options.bytes);
    const x = (time) => LEFT + ((time - from) / (until - from)) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    Object.assign(this, { x, y });
    const areas = [];
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const at = Math.round(y(top * share)) + 0.5;
      parts.push(s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
      parts.push(s("text", { class: "axis", x: LEFT - 6, y: at + 4, "text-anchor": "end" }, this.options.format(top * share)));
    }
    const room = Math.max(3, Math.floor((width - LEFT) / 80));
    const step = TIME_STEPS.find((one) => (until - from) / one <= room) ?? TIME_STEPS.at(-1);
    const zone = new Date(from).getTimezoneOffset() * 60000;
    for (let time = Math.ceil((from - zone) / step) * step + zone; time <= until; time += step) {
      const at = Math.round(x(time)) + 0.5;
      if (at > width - 24 || at < LEFT + 12) continue;
      parts.push(s("line", { class: "tick", x1: at, x2: at, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 3 }));
      parts.push(s("text", { class: "axis", x: at, y: HEIGHT - 4, "text-anchor": "middle" }, clock(time, step < 60000)));
    }
    const drawn = this.stack.map((line, at) => [line, at]).filter(([line]) => line);
    if (this.options.stacked) drawn.reverse();
    for (const [line, at] of drawn) {
      const path = pathOf(times, line, x, y, this.options.join ? Infinity : this.data.gap);
      if (!path) continue;
      if (this.options.stacked || drawn.length === 1) {
        areas.push(s("path", { class: `area c${at + 1}`, d: areaOf(times, line, x, y, this.options.join ? Infinity : this.data.gap) }));
      }
      parts.push(s("path", { class: `line c${at + 1}`, d: path }));
    }
    if (limit > 0 && limit <= top * 1.001) {
      const at = Math.round(y(limit)) + 0.5;
      parts.push(s("line", { class: "limit", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
    }
    this.cross = s("g", { class: "cross" });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...areas, ...parts, this.cross);
    this.point(this.pointed ?? null);
  }

  timeAt(event) {
    const box = this.svg.getBoundingClientRect();
    const { from, until } = this.data ?? { from: 0, until: 1 };
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    return from + Math.min(1, Math.max(0, share)) * (until - from);
  }

  // Shows the values of a time, or the newest ones.
  point(time) {
    this.pointed = time;
    if (!this.data || !this.cross) return;
    const { times } = this.data;
    let at = times.length - 1;
    if (time !== null) {
      at = times.reduce((best, one, place) => (Math.abs(one - time) < Math.abs(times[best] - time) ? place : best), 0);
    }
    this.cross.replaceChildren();
    const shown = time !== null && times.length > 0;
    this.time.textContent = shown ? dateTime(times[at]).slice(5) : "";
    if (shown) {
      const place = this.x(times[at]);
      this.cross.append(s("line", { x1: place, x2: place, y1: TOP, y2: HEIGHT - BOTTOM }));
      this.stack.forEach((line, one) => {
        if (line?.[at] !== null && line?.[at] !== undefined) this.cross.append(s("circle", { class: `c${one + 1}`, cx: place, cy: this.y(line[at]), r: 3 }));
      });
    }
    this.keys.forEach((key, one) => { key.value.textContent = this.options.format(this.lines[one][at] ?? null); });
  }
}

// Adds the lines below to each line.
function stacked(lines, length) {
  const below = new Array(length).fill(0);
  return lines.map((line) => line?.map((value, at) => {
    if (value === null) return null;
    below[at] += value;
    return below[at];
  }) ?? null);
}

// The pieces of a line between its gaps. Without a limit of gaps it is one piece.
function pieces(times, line, gap) {
  const all = [];
  let last = null;
  times.forEach((time, at) => {
    if (line[at] === null || line[at] === undefined) { if (gap !== Infinity) last = null; return; }
    if (last === null || time - last > gap) all.push([]);
    all.at(-1).push([time, line[at]]);
    last = time;
  });
  return all;
}

const points = (piece, x, y) => piece.map(([time, value]) => `${x(time).toFixed(1)} ${y(value).toFixed(1)}`).join("L");

const pathOf = (times, line, x, y, gap) => pieces(times, line, gap).map((piece) => `M${points(piece, x, y)}`).join("");

const areaOf = (times, line, x, y, gap) => pieces(times, line, gap).map((piece) =>
  `M${x(piece[0][0]).toFixed(1)} ${y(0).toFixed(1)}L${points(piece, x, y)}L${x(piece.at(-1)[0]).toFixed(1)} ${y(0).toFixed(1)}Z`).join("");
