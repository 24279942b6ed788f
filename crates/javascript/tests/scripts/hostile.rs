//! Functions that work without an end inside of the language's library, or nearly so, where the engine does not look whether it is
//! interrupted. Each is interrupted while it runs, and its worker is replaced.

use frond_bson::Doc;
use frond_error::ErrorCode;
use frond_query::script::ScriptEngine;

use crate::workers::{BEGINS, engine, interrupted, script};

/// The values that the functions work on: an array and an object with 2⁶⁰ leaves, what claims to be the longest array, long strings, strings that
/// begin alike, large numbers, and arrays with many of them.
const INPUTS: &[(&str, &str)] = &[
    ("g", "[1]; for (var i = 0; i < 60; i++) g = [g, g]"),
    ("o", "{n: 1}; for (var i = 0; i < 60; i++) o = {a: o, b: o}"),
    ("L", "{length: 2 ** 53 - 1}"),
    ("s", "'a'.repeat(2e7)"),
    ("p", "'a'.repeat(1e7) + 'b'"),
    ("big", "3n ** 600000n"),
    ("bigs", "new Array(1e6).fill(3n ** 600000n)"),
    ("numbers", "new Array(1e6).fill('9'.repeat(300000))"),
    (
        "texts",
        "new Array(1e6).fill('\\u1E9B\\u0323\"'.repeat(20000))",
    ),
    ("wide", "new Array(1e6).fill(new Array(1000).fill(7))"),
    (
        "equal",
        "[]; for (var i = 0; i < 2000; i++) equal.push('x'.repeat(50000) + i)",
    ),
    ("never", "function() { return false }"),
    (
        "digits",
        "Function.prototype.call.bind(BigInt.prototype.toString)",
    ),
    (
        "normal",
        "Function.prototype.call.bind(String.prototype.normalize)",
    ),
];

/// Functions that walk what their argument is made of. `$` is the argument.
const WALKS: &[&str] = &[
    "$.flat(Infinity)",
    "$.join()",
    "$.toString()",
    "$.toLocaleString()",
    "String($)",
    "$ + ''",
    "$ == 'x'",
    "$ < 'x'",
    "Number($)",
    "parseInt($)",
    "parseFloat($)",
    "isNaN($)",
    "isFinite($)",
    "BigInt($)",
    "Math.max($, 1)",
    "Math.pow($, 2)",
    "new Date($)",
    "Date.parse($)",
    "new RegExp($)",
    "new Function($)",
    "encodeURIComponent($)",
    "decodeURI($)",
    "escape($)",
    "JSON.stringify($)",
    "JSON.stringify($, null, 2)",
    "JSON.stringify([[$]])",
    "JSON.parse($)",
    "({})[$]",
    "$ in {}",
    "Object.hasOwn({}, $)",
    "Reflect.get({}, $)",
    "Symbol($)",
    "'x'.concat($)",
    "'x'.includes($)",
    "'x'.indexOf($)",
    "'x'.lastIndexOf($)",
    "'x'.startsWith($)",
    "'x'.endsWith($)",
    "'x'.padEnd(9, $)",
    "'x'.repeat($)",
    "'x'.split($)",
    "'x'.replace('x', $)",
    "'x'.replaceAll('x', $)",
    "'x'.localeCompare($)",
    "'x'.at($)",
    "'x'.charAt($)",
    "'x'.substring($)",
    "[1, 2].join($)",
    "[1, 2].at($)",
    "[1, 2].indexOf(1, $)",
    "[1, 2].with($, 1)",
    "[$, $].sort()",
    "[$, 1].toSorted()",
    "(1).toFixed($)",
    "(1).toString($)",
    "new Array(2).fill($).join()",
    "new Error($)",
    "new Uint8Array([$])",
    "Uint8Array.from([$])",
    "String.raw({raw: [$]})",
    "String.fromCharCode($)",
    "Object.fromEntries([[$, 1]])",
    "Object.groupBy([$], String)",
    "tojson($) + $",
];

/// As [`WALKS`], for what is made of objects.
const WALKS_OF_OBJECTS: &[&str] = &[
    "JSON.stringify($)",
    "JSON.stringify($, null, 1)",
    "JSON.stringify([$], ['a', 'b', 'n'])",
    "tojson($)",
    "tojsononeline($)",
];

/// Methods of arrays that visit each index. `$` is what claims to be an array.
const VISITS: &[&str] = &[
    "indexOf.call($, 1)",
    "lastIndexOf.call($, 1)",
    "includes.call($, 1)",
    "find.call($, Math.abs)",
    "findIndex.call($, Math.abs)",
    "findLast.call($, Math.abs)",
    "findLastIndex.call($, Math.abs)",
    "forEach.call($, Math.abs)",
    "every.call($, Object)",
    "some.call($, Math.abs)",
    "filter.call($, Math.abs)",
    "reduce.call($, Math.abs, 0)",
    "reduceRight.call($, Math.abs, 0)",
    "join.call($, '')",
    "toString.call(Object.setPrototypeOf($, Array.prototype))",
    "reverse.call($)",
    "copyWithin.call($, 1, 0)",
    "shift.call($)",
    "splice.call($, 0, 1)",
    "sort.call($)",
    "flat.call($)",
    "flatMap.call($, Math.abs)",
    "toLocaleString.call($)",
];

/// Methods that call a function for each element of an array. `$` is the array, `%` the function.
const CALLS: &[&str] = &[
    "$.forEach(%)",
    "$.map(%)",
    "$.filter(%)",
    "$.every(%)",
    "$.flatMap(%)",
    "Array.from($, %)",
    "Map.groupBy($, %)",
    "Object.groupBy($, %)",
    "$.toSorted(() => 0).forEach(%)",
    "[$, $].forEach(one => one.forEach(%))",
    "Iterator.from($).forEach(%)",
];

/// Arrays, and functions of the library that work for long on each of their elements.
const WORKERS: &[(&str, &str)] = &[
    ("wide", "JSON.stringify"),
    ("wide", "String"),
    ("wide", "Object.entries"),
    ("texts", "JSON.stringify"),
    ("texts", "encodeURIComponent"),
    ("texts", "escape"),
    ("numbers", "BigInt"),
    ("texts", "one => normal(one, 'NFKD')"),
    ("bigs", "one => digits(one)"),
];

/// Others, each in its own way.
const OTHERS: &[&str] = &[
    "s.indexOf(p)",
    "s.lastIndexOf(p)",
    "s.includes(p)",
    "s.split(p)",
    "s.replace(p, 'x')",
    "s.replaceAll(p, 'x')",
    "s.search(/(a*)*b/)",
    "s.match(/(a|a)*b/)",
    "s.replace(/(a+)+b/, 'x')",
    "s.split(/(a+)+b/)",
    "s.replaceAll(/a/g, JSON.stringify)",
    "/^(a+)+$/.test(s + 'b')",
    "/(.*)(.*)(.*)(.*)b/.exec(s)",
    "Array.from(s.matchAll(/a*?b/g))",
    "equal.sort()",
    "equal.toSorted()",
    "equal.sort(Math.abs); equal.sort(); equal.sort()",
    "numbers.map(BigInt)",
    "bigs.join()",
    "bigs.map(String)",
    "for (;;) (big - 1n) / 7n",
    "for (;;) big % (big - 1n)",
    "JSON.stringify(new Array(1e6).fill(texts[0]))",
    "JSON.stringify(wide)",
    "JSON.parse(JSON.stringify(wide.slice(0, 1000)), (key, value) => wide.includes(0))",
    "wide.concat(wide).join()",
    "for (;;) wide.indexOf(7)",
    "Object.assign([], wide).forEach(JSON.stringify)",
    "wide.slice(0, 10000).map(() => wide.includes(0))",
    "String.raw({raw: L})",
    "Math.max.apply(null, new Array(60000).fill(g))",
    "new Float64Array(2e6).sort((a, b) => wide.includes(0))",
    "new Uint8Array(2e7).join().split(',').sort()",
    "var a = []; a.length = 4294967295; return a.join('')",
    "var a = []; a.length = 4294967295; return a.forEach(never)",
    "var a = []; a.length = 4294967295; return a.reverse()",
    "new Array(4294967295).indexOf(1)",
    "new Array(4294967295).flat()",
    "new Array(4294967295).lastIndexOf(1)",
    "new Array(4294967295).includes(1)",
    "Array.from(new Array(4294967295).keys())",
    "for (;;) {}",
    "while (true) { try { for (;;) {} } catch (e) {} finally { continue } }",
    "for (;;) print(s)",
];

/// All functions of the table.
fn functions() -> Vec<String> {
    let of = |codes: &[&str], name: &str| -> Vec<String> {
        codes.iter().map(|code| code.replace('$', name)).collect()
    };
    let mut all = of(WALKS, "g");
    all.extend(of(WALKS_OF_OBJECTS, "o"));
    let visits = of(VISITS, "L");
    all.extend(visits.iter().map(|code| format!("Array.prototype.{code}")));
    for (array, function) in WORKERS {
        let calls = of(CALLS, array);
        all.extend(calls.iter().map(|code| code.replace('%', function)));
    }
    all.extend(of(OTHERS, "$"));
    all
}

/// The code of a function, with the inputs that it uses. It says when it begins.
fn whole(code: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let words: Vec<&str> = code.split(|c| !is_name(c)).collect();
    let uses = |name: &str| {
        let begins = format!("{name}.");
        words
            .iter()
            .any(|word| *word == name || word.starts_with(&begins))
    };
    let inputs = INPUTS.iter().filter(|(name, _)| uses(name));
    let inputs: String = inputs
        .map(|(name, value)| format!("var {name} = {value};\n"))
        .collect();
    format!("function() {{ {inputs} print('{BEGINS}'); {code} }}")
}

/// Each of the functions is interrupted, or has used up its memory. A part of them; with `FROND_HOSTILE=all` all of them.
#[test]
fn hostile_functions_end_when_they_are_interrupted() {
    let functions = functions();
    assert!(functions.len() >= 200, "{}", functions.len());
    let all = std::env::var("FROND_HOSTILE").is_ok_and(|which| which == "all");
    let step = if all { 1 } else { 9 };
    let engine = engine();
    let (mut ended, mut failed, mut wrong) = (0, 0, Vec::new());
    for code in functions.iter().step_by(step) {
        let hostile = script(&engine, &whole(code)).unwrap();
        match interrupted(|| hostile.call(Doc::empty())) {
            Err(error) if error.code() == ErrorCode::Interrupted => ended += 1,
            Err(error) if error.message().contains("out of memory") => {
                println!("{code}: {error}");
                failed += 1;
            }
            other => wrong.push(format!("{code}: {other:?}")),
        }
        engine.end_request();
        assert_eq!(engine.heap_granted(), 0, "{code}");
    }
    println!("{ended} were interrupted, {failed} had used up their memory before");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        failed * 5 < ended,
        "{ended} were interrupted, {failed} were not"
    );
    let workers = engine.workers().unwrap();
    assert_eq!(workers.killed, ended);
    assert_eq!(workers.current, workers.idle, "{workers:?}");
    let sum = script(&engine, "1 + 1").unwrap().test(Doc::empty());
    assert!(sum.unwrap());
}
