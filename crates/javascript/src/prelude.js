// The types and helpers that server-side code sees, beside those of the language. Evaluated in each new engine; the value is
// what the engine itself needs.
(function (native) {
    "use strict";
    // The BSON type of an object, on its prototype, and its value, on the object.
    const TYPE = Symbol("\0bsonType");
    const VALUE = Symbol("\0bsonValue");
    const hidden = (object, key, value) => Object.defineProperty(object, key, { value });
    const made = (prototype, value) => hidden(Object.create(prototype), VALUE, value);
    const globals = {};
    const prototypes = {};

    // A type whose constructor may be called with and without `new`.
    function type(name, tag, read, methods) {
        const constructor = { [name](...args) {
            return made(prototype, read(...args));
        } }[name];
        const callable = function (...args) { return constructor(...args); };
        Object.defineProperty(callable, "name", { value: name });
        const prototype = callable.prototype;
        hidden(prototype, TYPE, tag);
        for (const key of Object.keys(methods)) {
            const described = Object.getOwnPropertyDescriptor(methods, key);
            Object.defineProperty(prototype, key, { ...described, enumerable: false });
        }
        prototypes[name] = prototype;
        globals[name] = callable;
        return callable;
    }

    const fail = (message) => { throw new Error(message); };
    const isHex = (text, length) => typeof text === "string" && /^[0-9a-fA-F]*$/.test(text)
        && (length === undefined ? text.length % 2 === 0 : text.length === length);

    type("ObjectId", 7, (text) => {
        if (text === undefined) return native.newObjectId();
        if (text !== null && typeof text === "object" && text[TYPE] === 7) return text[VALUE];
        return isHex(text, 24) ? text.toLowerCase() : fail("invalid object id: length or characters");
    }, {
        get str() { return this[VALUE]; },
        valueOf() { return this[VALUE]; },
        toString() { return `ObjectId("${this[VALUE]}")`; },
        tojson() { return this.toString(); },
        toJSON() { return { $oid: this[VALUE] }; },
        equals(other) { return Object(other)[VALUE] === this[VALUE]; },
        getTimestamp() { return new Date(parseInt(this[VALUE].slice(0, 8), 16) * 1000); },
    });

    const long = (value) => {
        if (value === undefined) return 0n;
        if (typeof value === "bigint") return BigInt.asIntN(64, value);
        if (typeof value === "string") {
            if (!/^\s*[-+]?\d+\s*$/.test(value)) fail("could not convert string to long long");
            const parsed = BigInt(value.trim().replace(/^\+/, ""));
            return BigInt.asIntN(64, parsed) === parsed ? parsed : fail("could not convert string to long long");
        }
        const number = Number(value);
        if (Number.isNaN(number)) return 0n;
        if (number >= 2 ** 63) return (1n << 63n) - 1n;
        if (number < -(2 ** 63)) return -(1n << 63n);
        return BigInt(Math.trunc(number));
    };
    type("NumberLong", 18, (value, bottom) => {
        if (bottom === undefined) {
            return value !== null && typeof value === "object" && value[TYPE] === 18 ? value[VALUE] : long(value);
        }
        return BigInt.asIntN(64, (BigInt(value) << 32n) | (BigInt(bottom) & 0xffffffffn));
    }, {
        get floatApprox() { return Number(this[VALUE]); },
        get top() { return Number(BigInt.asIntN(32, this[VALUE] >> 32n)); },
        get bottom() { return Number(this[VALUE] & 0xffffffffn); },
        toNumber() { return Number(this[VALUE]); },
        valueOf() { return Number(this[VALUE]); },
        toString() {
            const small = this[VALUE] >= -2147483648n && this[VALUE] <= 2147483647n;
            return small ? `NumberLong(${this[VALUE]})` : `NumberLong("${this[VALUE]}")`;
        },
        tojson() { return this.toString(); },
        toJSON() { return { $numberLong: String(this[VALUE]) }; },
        compare(other) {
            const others = long(Object(other)[VALUE] ?? other);
            return this[VALUE] < others ? -1 : Number(this[VALUE] > others);
        },
    });
    type("NumberInt", 16, (value) => (value === undefined ? 0 : Number(value) | 0), {
        toNumber() { return this[VALUE]; },
        valueOf() { return this[VALUE]; },
        toString() { return `NumberInt(${this[VALUE]})`; },
        tojson() { return this.toString(); },
        toJSON() { return this[VALUE]; },
    });
    type("NumberDecimal", 19, (value) => {
        if (value !== null && typeof value === "object" && value[TYPE] !== undefined) value = String(value[VALUE]);
        return native.decimal(value === undefined ? "0" : String(value));
    }, {
        toString() { return `NumberDecimal("${this[VALUE]}")`; },
        tojson() { return this.toString(); },
        toJSON() { return { $numberDecimal: this[VALUE] }; },
    });
    // The value of binary data is hexadecimal.
    type("BinData", 5, (subtype, text) => {
        if (!Number.isInteger(subtype) || subtype < 0 || subtype > 255) fail("BinData subtype must be between 0 and 255");
        return [subtype, native.hexOfBase64(String(text))];
    }, {
        get type() { return this[VALUE][0]; },
        get subtype() { return this[VALUE][0]; },
        len() { return this[VALUE][1].length / 2; },
        length() { return this[VALUE][1].length / 2; },
        hex() { return this[VALUE][1]; },
        base64() { return native.base64OfHex(this[VALUE][1]); },
        toString() {
            const [subtype, hex] = this[VALUE];
            if (subtype === 4 && hex.length === 32) {
                return `UUID("${hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5")}")`;
            }
            return `BinData(${subtype},"${this.base64()}")`;
        },
        tojson() { return this.toString(); },
        toJSON() { return { $binary: this.base64(), $type: this[VALUE][0].toString(16).padStart(2, "0") }; },
    });
    const binary = (subtype, hex) => made(prototypes.BinData, [subtype, hex.toLowerCase()]);
    const newUuid = () => {
        const digits = Array.from({ length: 32 }, () => Math.floor(Math.random() * 16).toString(16));
        digits[12] = "4";
        digits[16] = "89ab"[Math.floor(Math.random() * 4)];
        return digits.join("");
    };
    globals.HexData = function HexData(subtype, hex) {
        if (!isHex(hex)) fail("HexData needs an even number of hexadecimal digits");
        return binary(subtype, hex);
    };
    globals.MD5 = function MD5(hex) {
        return isHex(hex, 32) ? binary(5, hex) : fail("MD5 needs 32 hexadecimal digits");
    };
    globals.UUID = function UUID(text) {
        const hex = text === undefined ? newUuid() : String(text).replace(/-/g, "");
        return isHex(hex, 32) ? binary(4, hex) : fail("UUID needs 32 hexadecimal digits");
    };
    const part = (value, name) => {
        const number = Number(value ?? 0);
        if (!(number >= 0 && number <= 4294967295)) fail(`Timestamp ${name} must be between 0 and 4294967295`);
        return Math.trunc(number);
    };
    type("Timestamp", 17, (time, increment) => [part(time, "time"), part(increment, "increment")], {
        get t() { return this[VALUE][0]; },
        get i() { return this[VALUE][1]; },
        getTime() { return this[VALUE][0]; },
        getInc() { return this[VALUE][1]; },
        toString() { return `Timestamp(${this[VALUE][0]}, ${this[VALUE][1]})`; },
        tojson() { return this.toString(); },
        toJSON() { return { $timestamp: { t: this[VALUE][0], i: this[VALUE][1] } }; },
    });
    type("DBPointer", 12, (ns, id) => {
        if (typeof ns !== "string" || Object(id)[TYPE] !== 7) fail("DBPointer needs a namespace and an ObjectId");
        return [ns, id];
    }, {
        get ns() { return this[VALUE][0]; },
        get id() { return this[VALUE][1]; },
        toString() { return `DBPointer("${this[VALUE][0]}", ${this[VALUE][1]})`; },
        tojson() { return this.toString(); },
    });
    type("Code", 13, (code, scope) => [String(code ?? ""), scope], {
        get code() { return this[VALUE][0]; },
        get scope() { return this[VALUE][1]; },
        toString() { return this.tojson(); },
        tojson() {
            const [code, scope] = this[VALUE];
            return `Code(${JSON.stringify(code)}${scope === undefined ? "" : `,${globals.tojson(scope)}`})`;
        },
    });
    for (const [name, tag] of [["MinKey", 255], ["MaxKey", 127]]) {
        type(name, tag, () => null, {
            toString() { return name; },
            tojson() { return `{ "$${name[0].toLowerCase()}${name.slice(1)}" : 1 }`; },
            toJSON() { return { [`$${name[0].toLowerCase()}${name.slice(1)}`]: 1 }; },
        });
        const only = made(prototypes[name], null);
        const constructor = function () { return only; };
        Object.defineProperty(constructor, "name", { value: name });
        constructor.prototype = prototypes[name];
        Object.defineProperty(prototypes[name], "constructor", { value: constructor });
        globals[name] = constructor;
    }
    globals.ObjectID = globals.ObjectId;

    globals.DBRef = function DBRef(collection, id, database) {
        if (typeof collection !== "string" || id === undefined) fail("DBRef needs a collection and an id");
        const reference = Object.create(globals.DBRef.prototype);
        reference.$ref = collection;
        reference.$id = id;
        if (database !== undefined) reference.$db = database;
        return reference;
    };
    const describe = (prototype, methods) => {
        for (const key of Object.keys(methods)) {
            Object.defineProperty(prototype, key, {
                ...Object.getOwnPropertyDescriptor(methods, key), enumerable: false, configurable: true,
            });
        }
    };
    describe(globals.DBRef.prototype, {
        getCollection() { return this.$ref; },
        getRef() { return this.$ref; },
        getId() { return this.$id; },
        getDb() { return this.$db; },
        tojson() {
            const parts = [this.$ref, this.$id].concat(this.$db === undefined ? [] : [this.$db]);
            return `DBRef(${parts.map((one) => globals.tojson(one)).join(", ")})`;
        },
        toString() { return this.tojson(); },
    });

    const ISO = /^(\d{4})-?(\d{2})-?(\d{2})(?:[T ](\d{2})(?::?(\d{2})(?::?(\d{2})(?:\.(\d+))?)?)?)?(Z|[+-]\d{2}(?::?\d{2})?)?$/;
    globals.ISODate = function ISODate(text) {
        if (text === undefined) return new Date();
        const found = ISO.exec(String(text)) ?? fail(`invalid ISO date: ${text}`);
        const [, year, month, day, hour, minute, second, fraction, zone] = found;
        const number = (digits) => (digits === undefined ? 0 : Number(digits));
        let ms = Date.UTC(2000, number(month) - 1, number(day), number(hour), number(minute), number(second));
        const date = new Date(ms);
        date.setUTCFullYear(number(year), number(month) - 1, number(day));
        ms = date.getTime() + (fraction === undefined ? 0 : Math.trunc(Number(`0.${fraction}`) * 1000));
        if (zone !== undefined && zone !== "Z") {
            const offset = Number(zone.slice(1, 3)) * 60 + number(zone.slice(3).replace(":", "") || undefined);
            ms -= (zone[0] === "-" ? -offset : offset) * 60000;
        }
        return new Date(ms);
    };

    // What the shell writes.
    const isBson = (value) => value !== null && typeof value === "object" && value[TYPE] !== undefined;
    function json(value, indent, one, depth) {
        if (depth > 150) fail("tojson: nested too deep");
        switch (typeof value) {
            case "string": return JSON.stringify(value);
            case "number": case "boolean": case "undefined": return String(value);
            case "bigint": return String(value);
            case "function": return Function.prototype.toString.call(value);
            case "symbol": return String(value);
        }
        if (value === null) return "null";
        if (value instanceof Date) return Number.isNaN(value.getTime()) ? "new Date(NaN)" : `ISODate("${iso(value)}")`;
        if (value instanceof RegExp || value instanceof Error) return String(value);
        if (isBson(value) || (typeof value.tojson === "function" && !Array.isArray(value))) return value.tojson();
        const inner = `${indent}\t`;
        const separate = one ? " " : "\n";
        const lead = one ? "" : inner;
        const items = Array.isArray(value)
            ? Array.from(value, (item) => lead + json(item, inner, one, depth + 1))
            : Object.keys(value).map((key) => `${lead}${JSON.stringify(key)} : ${json(value[key], inner, one, depth + 1)}`);
        const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
        if (items.length === 0) return `${open}${separate}${one ? "" : indent}${close}`;
        return `${open}${separate}${items.join(`,${separate}`)}${separate}${one ? "" : indent}${close}`;
    }
    const iso = (date) => {
        const text = date.toISOString();
        return text.endsWith(".000Z") ? `${text.slice(0, -5)}Z` : text;
    };
    globals.tojson = function tojson(value, indent, oneLine) {
        if (oneLine === true) return json(value, "", true, 0);
        const text = json(value, typeof indent === "string" ? indent : "", false, 0);
        const short = text.length < 80 ? json(value, "", true, 0) : text;
        return short.length < 80 ? short : text;
    };
    globals.tojsononeline = function tojsononeline(value) { return json(value, "", true, 0); };
    globals.print = function print(...values) { native.print(values.map(String).join(" ")); };
    globals.printjson = function printjson(value) { native.print(globals.tojson(value)); };
    globals.printjsononeline = function printjsononeline(value) { native.print(globals.tojsononeline(value)); };
    globals.emit = native.emit;
    globals.isString = function isString(value) { return typeof value === "string"; };
    globals.isNumber = function isNumber(value) { return typeof value === "number"; };
    globals.isObject = function isObject(value) { return typeof value === "object"; };
    globals.sleep = function sleep(milliseconds) { native.sleep(Number(milliseconds)); };
    globals.hex_md5 = function hex_md5(text) { return native.md5(String(text)); };
    globals.doassert = function doassert(message) {
        throw new Error(typeof message === "function" ? message() : String(message));
    };
    const assert = function assert(condition, message) {
        if (!condition) globals.doassert(`assert failed${message === undefined ? "" : ` : ${message}`}`);
    };
    const same = (a, b) => a === b || globals.tojsononeline(a) === globals.tojsononeline(b);
    assert.eq = function (a, b, message) {
        assert(same(a, b), `[${globals.tojson(a)}] != [${globals.tojson(b)}] are not equal${message === undefined ? "" : ` : ${message}`}`);
    };
    assert.neq = function (a, b, message) {
        assert(!same(a, b), `[${globals.tojson(a)}] == [${globals.tojson(b)}] are equal${message === undefined ? "" : ` : ${message}`}`);
    };
    globals.assert = assert;

    // Helpers of the shell on the language's own constructors.
    const numbers = (array) => Array.from(array, Number);
    describe(Array, {
        contains(array, value) { return array.some((item) => item === value); },
        unique(array) {
            const found = [];
            for (const item of array) {
                if (!found.some((other) => same(other, item))) found.push(item);
            }
            return found;
        },
        sum(array) {
            if (array.length === 0) return null;
            let sum = array[0];
            for (let at = 1; at < array.length; at++) sum += array[at];
            return sum;
        },
        avg(array) { return array.length === 0 ? null : Array.sum(array) / array.length; },
        stdDev(array) {
            const mean = Array.avg(array);
            const squares = numbers(array).map((number) => (mean - number) ** 2);
            return Math.sqrt(squares.reduce((sum, square) => sum + square, 0) / array.length);
        },
        shuffle(array) {
            for (let at = 0; at < array.length - 1; at++) {
                const pick = at + Math.floor(Math.random() * (array.length - at));
                [array[at], array[pick]] = [array[pick], array[at]];
            }
            return array;
        },
        tojson(array, indent, oneLine) { return globals.tojson(array, indent, oneLine); },
        fetchRefs() { return fail("references cannot be followed in the server"); },
    });
    describe(Object, {
        extend(to, from, deep) {
            for (const key of Object.keys(from)) {
                const value = from[key];
                to[key] = deep && value !== null && typeof value === "object" && !isBson(value)
                    && !(value instanceof Date) && !(value instanceof RegExp)
                    ? Object.extend(Array.isArray(value) ? [] : {}, value, true)
                    : value;
            }
            return to;
        },
        merge(a, b, deep) { return Object.extend(Object.extend({}, a, deep), b, deep); },
        keySet(object) {
            const names = [];
            for (const name in object) names.push(name);
            return names;
        },
        bsonsize(object) { return native.bsonSize(object); },
    });
    describe(Date.prototype, {
        tojson() { return globals.tojson(this); },
    });
    describe(String.prototype, {
        ltrim() { return this.trimStart(); },
        rtrim() { return this.trimEnd(); },
        pad(length, right, fill) { return right ? this.padEnd(length, fill ?? " ") : this.padStart(length, fill ?? " "); },
    });
    describe(Number.prototype, {
        toPercentStr() { return `${(this * 100).toFixed(2)}%`; },
        zeroPad(width) { return String(this).padStart(width, "0"); },
    });
    describe(RegExp, {
        escape(text) { return text.replace(/[-/\\^$*+?.()|[\]{}]/g, "\\$&"); },
    });
    // No time but that of `Date`, no threads.
    for (const name of ["performance", "navigator", "Atomics", "SharedArrayBuffer", "queueMicrotask"]) {
        delete globalThis[name];
    }
    for (const name of Object.keys(globals)) {
        Object.defineProperty(globalThis, name, {
            value: globals[name], writable: true, configurable: true, enumerable: false,
        });
    }
    const getTime = Date.prototype.getTime;
    return {
        type: TYPE,
        value: VALUE,
        make(name, value) { return made(prototypes[name], value); },
        minKey: globals.MinKey(),
        maxKey: globals.MaxKey(),
        reference: globals.DBRef,
        wellFormed(text) { return text.toWellFormed(); },
        fold(call, state, batch) {
            for (let at = 0; at < batch.length; at++) state = call(state, ...batch[at]);
            return state;
        },
        long(text) { return made(prototypes.NumberLong, BigInt(text)); },
        date: Date,
        regExp: RegExp,
        dateValue(date) { return getTime.call(date); },
        isDate: (value) => value instanceof Date,
        objectPrototype: Object.prototype,
    };
});
