// Numbers, sizes, times and documents as text.

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const whole = (n) => (n === null || n === undefined || Number.isNaN(n) ? "–" : plain.format(n));

// One decimal place, where it tells something.
const tenth = (n) => n.toFixed(n % 1 === 0 ? 0 : 1);

// 12.3 k
export function short(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  const size = Math.abs(n);
  if (size >= 1e9) return `${tenth(n / 1e9)} G`;
  if (size >= 1e6) return `${tenth(n / 1e6)} M`;
  if (size >= 1e4) return `${tenth(n / 1e3)} k`;
  if (size >= 100 || Number.isInteger(n)) return whole(n);
  return n.toFixed(size >= 10 ? 1 : 2);
}

export function bytes(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  let unit = 0;
  while (Math.abs(n) >= 1024 && unit < 5) { n /= 1024; unit += 1; }
  return `${unit === 0 ? whole(n) : n >= 100 ? n.toFixed(0) : tenth(n)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

export const byteRate = (n) => (n === null || n === undefined ? "–" : `${bytes(n)}/s`);

export const percent = (n) => (n === null || n === undefined ? "–" : `${(n * 100).toFixed(n >= 0.1 || n === 0 ? 0 : 1)} %`);

// From microseconds.
export function duration(micros) {
  if (micros === null || micros === undefined || Number.isNaN(micros)) return "–";
  if (micros === 0) return "0";
  if (micros < 1000) return `${micros < 10 && micros % 1 !== 0 ? micros.toFixed(1) : Math.round(micros)} µs`;
  if (micros < 1e6) return `${micros % 1000 === 0 ? micros / 1000 : (micros / 1e3).toFixed(micros < 1e4 ? 2 : micros < 1e5 ? 1 : 0)} ms`;
  const seconds = micros / 1e6;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const two = (n) => String(n).padStart(2, "0");

export function clock(ms, withSeconds = true) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}${withSeconds ? `:${two(at.getSeconds())}` : ""}`;
}

export function dateTime(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}`;
}

// The milliseconds of a date in Extended JSON, relaxed or canonical.
export function millis(value) {
  const date = value?.$date ?? value;
  if (typeof date === "string") return Date.parse(date);
  if (typeof date === "number") return date;
  return date?.$numberLong === undefined ? NaN : Number(date.$numberLong);
}

// A number in Extended JSON, relaxed or canonical.
export function number(value) {
  if (typeof value === "number") return value;
  const text = value?.$numberInt ?? value?.$numberLong ?? value?.$numberDouble ?? value?.$numberDecimal;
  return text === undefined ? NaN : Number(text);
}

const WRAPPERS = {
  $numberInt: (v) => ["number", v],
  $numberLong: (v) => ["number", `Long("${v}")`],
  $numberDouble: (v) => ["number", /^-?\d+$/.test(v) ? `${v}.0` : v],
  $numberDecimal: (v) => ["number", `Decimal128("${v}")`],
  $oid: (v) => ["type", `ObjectId("${v}")`],
  $date: (v) => ["type", dateText(v)],
  $timestamp: (v) => ["type", `Timestamp(${v.t}, ${v.i})`],
  $binary: (v) => ["type", binaryText(v)],
  $regularExpression: (v) => ["type", `/${v.pattern}/${v.options}`],
  $symbol: (v) => ["string", JSON.stringify(v)],
  $minKey: () => ["type", "MinKey()"],
  $maxKey: () => ["type", "MaxKey()"],
  $undefined: () => ["type", "undefined"],
  $code: (v) => ["type", `Code(${JSON.stringify(v)})`],
};

function dateText(value) {
  const at = new Date(millis({ $date: value }));
  return Number.isNaN(at.getTime()) ? `Date(${value.$numberLong})` : `ISODate("${at.toISOString()}")`;
}

function binaryText({ base64, subType }) {
  if (subType === "04" && base64.length === 24) {
    const hex = [...atob(base64)].map((c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join("");
    return `UUID("${hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-")}")`;
  }
  return `BinData(${parseInt(subType, 16)}, "${base64.length > 60 ? `${base64.slice(0, 60)}…` : base64}")`;
}

// [kind, text] of a value that is no document and no array; null for those.
export function scalar(value) {
  if (value === null) return ["null", "null"];
  if (typeof value === "string") return ["string", JSON.stringify(value)];
  if (typeof value === "number") return ["number", String(value)];
  if (typeof value === "boolean") return ["bool", String(value)];
  if (Array.isArray(value)) return null;
  const keys = Object.keys(value);
  if ((keys.length === 1 || (keys[0] === "$code" && keys.length === 2)) && WRAPPERS[keys[0]]) {
    return WRAPPERS[keys[0]](value[keys[0]]);
  }
  return null;
}

const nameText = (name) => (/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name));

// A value on one line, cut where it is too long.
export function inline(value, limit = 80) {
  const known = scalar(value);
  let text;
  if (known) [, text] = known;
  else if (Array.isArray(value)) text = `[${value.map((one) => inline(one, limit)).join(", ")}]`;
  else text = `{${Object.entries(value).map(([name, one]) => `${nameText(name)}: ${inline(one, limit)}`).join(", ")}}`;
  return text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
}

// Fields that drivers add to commands, and that say nothing about the operation.
const ADDED = new Set(["lsid", "$clusterTime", "$db", "$readPreference", "txnNumber", "apiVersion", "apiStrict", "readConcern", "writeConcern", "ordered", "startTransaction", "autocommit"]);

// A command without what drivers add.
export const essence = (command) => Object.fromEntries(Object.entries(command).filter(([name]) => !ADDED.has(name)));

// A value in a cell: what the column is, is seen without its type.
export function cell(value) {
  if (typeof value === "string") return value;
  if (value?.$oid) return value.$oid;
  if (value?.$date) return inline(value).replace(/^ISODate\("(.*?)(?:\.000)?Z"\)$/, "$1Z");
  return inline(value, 60);
}

// A value as spans and text, indented.
export function pretty(value, h, indent = "") {
  const known = scalar(value);
  if (known) return [h("span", { class: `v-${known[0]}` }, known[1])];
  const isArray = Array.isArray(value);
  const entries = isArray ? value.map((one) => [null, one]) : Object.entries(value);
  const [open, close] = isArray ? "[]" : "{}";
  if (entries.length === 0) return [open + close];
  const flat = inline(value, 70);
  const simple = entries.every(([, one]) => scalar(one));
  if (simple && !flat.endsWith("…") && entries.length <= 6 && indent !== "") {
    const parts = entries.flatMap(([name, one], at) => [at > 0 ? ", " : "", name === null ? "" : h("span", { class: "v-name" }, nameText(name)), name === null ? "" : ": ", ...pretty(one, h, indent)]);
    return [open, ...parts, close];
  }
  const deeper = `${indent}  `;
  const lines = entries.flatMap(([name, one], at) => [
    `\n${deeper}`,
    name === null ? "" : h("span", { class: "v-name" }, nameText(name)),
    name === null ? "" : ": ",
    ...pretty(one, h, deeper),
    at + 1 < entries.length ? "," : "",
  ]);
  return [open, ...lines, `\n${indent}${close}`];
}
