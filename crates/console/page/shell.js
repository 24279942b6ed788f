// What people write in a shell, as Extended JSON: names without quotes, single quotes, trailing commas, comments, ObjectId("…"),
// ISODate("…"), NumberLong("…"), regular expressions. The order of the fields is kept: the result is text.

const CALLS = {
  ObjectId: ([hex]) => `{"$oid":${hex ?? fail("ObjectId needs its 24 digits")}}`,
  ISODate: ([text]) => date(text),
  Date: ([text]) => date(text),
  NumberLong: ([n]) => `{"$numberLong":${quoted(n)}}`,
  Long: ([n]) => `{"$numberLong":${quoted(n)}}`,
  NumberInt: ([n]) => `{"$numberInt":${quoted(n)}}`,
  Int32: ([n]) => `{"$numberInt":${quoted(n)}}`,
  Double: ([n]) => `{"$numberDouble":${quoted(n)}}`,
  NumberDecimal: ([n]) => `{"$numberDecimal":${quoted(n)}}`,
  Decimal128: ([n]) => `{"$numberDecimal":${quoted(n)}}`,
  Timestamp: ([t, i]) => `{"$timestamp":{"t":${t ?? 0},"i":${i ?? 0}}}`,
  UUID: ([text]) => `{"$uuid":${text}}`,
  BinData: ([type, text]) => `{"$binary":{"base64":${text},"subType":"${Number(type).toString(16).padStart(2, "0")}"}}`,
  MinKey: () => `{"$minKey":1}`,
  MaxKey: () => `{"$maxKey":1}`,
  RegExp: ([pattern, options]) => `{"$regularExpression":{"pattern":${pattern},"options":${options ?? '""'}}}`,
};

function fail(message) {
  throw new SyntaxError(message);
}

const quoted = (n) => (n === undefined ? '"0"' : n.startsWith('"') ? n : `"${n}"`);

function date(text) {
  const ms = text === undefined ? Date.now() : text.startsWith('"') ? Date.parse(JSON.parse(text)) : Number(text);
  if (Number.isNaN(ms)) fail("a date cannot be read; write ISODate(\"2026-01-31T12:00:00Z\")");
  return `{"$date":{"$numberLong":"${ms}"}}`;
}

export function toExtendedJson(text) {
  let at = 0;
  const where = () => {
    const before = text.slice(0, at).split("\n");
    return `line ${before.length}, column ${before.at(-1).length + 1}`;
  };
  const wrong = (expected) => fail(`${expected} is expected at ${where()}`);
  const space = () => {
    const found = /^(?:\s+|\/\/[^\n]*|\/\*[\s\S]*?\*\/)+/.exec(text.slice(at));
    if (found) at += found[0].length;
  };
  const next = () => { space(); return text[at]; };
  const take = (pattern) => {
    const found = pattern.exec(text.slice(at));
    if (found) at += found[0].length;
    return found;
  };
  const string = () => {
    const found = take(/^"(?:[^"\\]|\\[\s\S])*"|^'(?:[^'\\]|\\[\s\S])*'/);
    if (!found) wrong("the end of a text");
    const inner = found[0].slice(1, -1);
    if (found[0][0] === '"') {
      try { return JSON.stringify(JSON.parse(found[0])); } catch { wrong("a text that JSON knows"); }
    }
    const escaped = inner.replace(/\\'|"/g, (one) => (one === '"' ? '\\"' : "'"));
    try { return JSON.stringify(JSON.parse(`"${escaped}"`)); } catch { return wrong("a text that JSON knows"); }
  };
  const list = (close, one) => {
    const all = [];
    while (next() !== close) {
      if (text[at] === undefined) wrong(`'${close}'`);
      all.push(one());
      if (next() === ",") at += 1;
      else if (text[at] !== close) wrong(`',' or '${close}'`);
    }
    at += 1;
    return all;
  };
  const field = () => {
    const name = next() === '"' || text[at] === "'" ? string() : JSON.stringify((take(/^[\w$.]+/) ?? wrong("the name of a field"))[0]);
    if (next() !== ":") wrong("':'");
    at += 1;
    return `${name}:${value()}`;
  };
  const value = () => {
    const first = next();
    if (first === "{") { at += 1; return `{${list("}", field).join(",")}}`; }
    if (first === "[") { at += 1; return `[${list("]", value).join(",")}]`; }
    if (first === '"' || first === "'") return string();
    if (first === "/") {
      const found = take(/^\/((?:[^/\\\n]|\\.)+)\/([a-z]*)/) ?? wrong("the end of a regular expression");
      return `{"$regularExpression":{"pattern":${JSON.stringify(found[1])},"options":"${found[2]}"}}`;
    }
    const digits = take(/^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w$])/);
    if (digits) return digits[0].replace(/^\+/, "").replace(/^(-?)\./, "$10.").replace(/\.(?=$|[eE])/, "");
    take(/^new\s+/);
    const word = take(/^-?[A-Za-z_$][\w$]*/) ?? wrong("a value");
    switch (word[0]) {
      case "true": case "false": case "null": return word[0];
      case "undefined": return '{"$undefined":true}';
      case "NaN": case "Infinity": case "-Infinity": return `{"$numberDouble":"${word[0]}"}`;
      default:
    }
    const call = Object.hasOwn(CALLS, word[0]) ? CALLS[word[0]] : wrong(`a value instead of ${word[0]}`);
    if (next() !== "(") wrong("'('");
    at += 1;
    return call(list(")", value));
  };
  const found = value();
  if (next() !== undefined) wrong("the end");
  return found;
}
