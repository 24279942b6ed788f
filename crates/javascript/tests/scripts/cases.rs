//! Functions as queries call them: conversions, helpers, limits, isolation.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use frond_bson::{ArrayBuf, Decimal128, Doc, ObjectId, OwnedValue, Timestamp, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_javascript::JavaScript;
use frond_query::script::{Script, ScriptEngine, ScriptSource, StoredFunctions};

const MIB: usize = 1 << 20;

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

static KILLED: AtomicBool = AtomicBool::new(false);

fn check() -> Result<()> {
    if KILLED.load(Ordering::Relaxed) {
        return Err(Error::new(ErrorCode::Interrupted, "killed"));
    }
    match DEADLINE.get() {
        Some(deadline) if Instant::now() >= deadline => {
            Err(Error::new(ErrorCode::MaxTimeMSExpired, "too late"))
        }
        _ => Ok(()),
    }
}

fn engine() -> JavaScript {
    JavaScript::new(
        crate::placement(module_path!()),
        256 * MIB,
        64 * MIB,
        check,
        |_| {},
    )
}

fn compiled(engine: &JavaScript, code: &str) -> Result<Arc<dyn Script>> {
    engine.script(
        ScriptSource {
            code: code.to_owned(),
            ..ScriptSource::default()
        },
        None,
    )
}

fn script(code: &str) -> Arc<dyn Script> {
    compiled(&engine(), code).unwrap()
}

/// The result of the function of `code` for one argument.
fn call<'a>(code: &str, argument: impl Into<Value<'a>>) -> Result<OwnedValue> {
    let mut arguments = ArrayBuf::new();
    arguments.push(argument);
    compiled(&engine(), code)?.call(arguments.as_doc())
}

fn value(code: &str) -> OwnedValue {
    call(code, 0).unwrap_or_else(|error| panic!("{code}: {error}"))
}

fn message(code: &str) -> String {
    call(code, 0).unwrap_err().message().to_owned()
}

#[test]
fn code_is_a_function_an_expression_or_a_body() {
    let doc = doc! {"a": 5, "b": 3};
    let cases = [
        ("this.a > this.b", true),
        ("function() { return this.a < this.b }", false),
        ("function() { return obj.a > obj.b };", true),
        ("return this.a == 5", true),
        ("var x = this.a; return x - 5;", false),
        ("this.a > 1 &&\n this.b > 1", true),
        ("// a comment\nthis.a", true),
        ("this.missing", false),
        ("'text'", true),
        ("''", false),
        ("() => true", true),
        ("null", false),
        ("function() { return true }()", true),
    ];
    for (code, expected) in cases {
        assert_eq!(script(code).test(&doc).unwrap(), expected, "{code}");
    }
    for code in ["function(", "this.a >", "return }"] {
        let error = compiled(&engine(), code).unwrap_err();
        assert_eq!(error.code(), ErrorCode::JSInterpreterFailure, "{code}");
        assert!(error.message().contains("SyntaxError"), "{error}");
    }
}

#[test]
fn each_type_is_read_and_written() {
    let id = ObjectId::new();
    let decimal: Decimal128 = "1.50".parse().unwrap();
    let inner = doc! {"x": 1, "y": [1, 2]};
    let reference = doc! {"$ref": "c", "$id": 5};
    let scope = doc! {"n": 1};
    // A value, and what comes back of it: numbers are doubles.
    let cases: Vec<(Value<'_>, Value<'_>)> = vec![
        (Value::Double(1.5), Value::Double(1.5)),
        (Value::Int32(7), Value::Double(7.0)),
        (Value::Int64(i64::MAX), Value::Int64(i64::MAX)),
        (Value::Int64(i64::MIN), Value::Int64(i64::MIN)),
        (Value::Decimal128(decimal), Value::Decimal128(decimal)),
        (
            Value::String("grün \u{1F600}\0x"),
            Value::String("grün \u{1F600}\0x"),
        ),
        (Value::Symbol("s"), Value::String("s")),
        (Value::Bool(true), Value::Bool(true)),
        (Value::Null, Value::Null),
        (Value::Undefined, Value::Undefined),
        (Value::ObjectId(id), Value::ObjectId(id)),
        (Value::DateTime(-5), Value::DateTime(-5)),
        (Value::Document(&inner), Value::Document(&inner)),
        (
            Value::Binary {
                subtype: 4,
                bytes: b"\x00\x01",
            },
            Value::Binary {
                subtype: 4,
                bytes: b"\x00\x01",
            },
        ),
        (
            Value::Regex {
                pattern: "^a/b",
                options: "im",
            },
            Value::Regex {
                pattern: "^a\\/b",
                options: "im",
            },
        ),
        (
            Value::Timestamp(Timestamp {
                time: u32::MAX,
                increment: 3,
            }),
            Value::Timestamp(Timestamp {
                time: u32::MAX,
                increment: 3,
            }),
        ),
        (
            Value::DbPointer { ns: "a.b", id },
            Value::DbPointer { ns: "a.b", id },
        ),
        (Value::JavaScript("f()"), Value::JavaScript("f()")),
        (
            Value::JavaScriptWithScope {
                code: "f()",
                scope: &scope,
            },
            Value::JavaScriptWithScope {
                code: "f()",
                scope: &scope,
            },
        ),
        (Value::MinKey, Value::MinKey),
        (Value::MaxKey, Value::MaxKey),
    ];
    for (read, written) in cases {
        let result = call("function(x) { return x }", read).unwrap();
        assert_eq!(result.as_value(), written, "{read:?}");
    }
    let result = call("function(x) { return x }", &reference).unwrap();
    assert_eq!(result, OwnedValue::from(doc! {"$ref": "c", "$id": 5.0}));
    let result = call("function(x) { return [x.$ref, x.getId()] }", &reference).unwrap();
    assert_eq!(result.as_value().as_array().unwrap().count(), 2);
}

#[test]
fn values_of_each_type_can_be_made() {
    let id: ObjectId = "5f5f5f5f5f5f5f5f5f5f5f5f".parse().unwrap();
    let cases: Vec<(&str, Value<'_>)> = vec![
        ("ObjectId('5F5f5f5f5f5f5f5f5f5f5f5f')", Value::ObjectId(id)),
        (
            "new ObjectId('5f5f5f5f5f5f5f5f5f5f5f5f')",
            Value::ObjectId(id),
        ),
        ("NumberLong('9223372036854775807')", Value::Int64(i64::MAX)),
        ("NumberLong(5)", Value::Int64(5)),
        ("NumberInt(5.7)", Value::Int32(5)),
        (
            "NumberDecimal('2.50')",
            Value::Decimal128("2.50".parse().unwrap()),
        ),
        (
            "ISODate('2020-01-02T03:04:05.678Z')",
            Value::DateTime(1_577_934_245_678),
        ),
        (
            "ISODate('2020-01-02T04:04:05.678+01:00')",
            Value::DateTime(1_577_934_245_678),
        ),
        ("ISODate('2020-01-02')", Value::DateTime(1_577_923_200_000)),
        ("new Date(5)", Value::DateTime(5)),
        (
            "Timestamp(1, 2)",
            Value::Timestamp(Timestamp {
                time: 1,
                increment: 2,
            }),
        ),
        (
            "HexData(0, '00ff')",
            Value::Binary {
                subtype: 0,
                bytes: b"\x00\xff",
            },
        ),
        (
            "BinData(5, 'AP8=')",
            Value::Binary {
                subtype: 5,
                bytes: b"\x00\xff",
            },
        ),
        (
            "/a+/i",
            Value::Regex {
                pattern: "a+",
                options: "i",
            },
        ),
        ("MinKey()", Value::MinKey),
        ("new MaxKey()", Value::MaxKey),
        ("Code('x')", Value::JavaScript("x")),
        ("5n", Value::Int64(5)),
        ("UUID().type", Value::Double(4.0)),
        (
            "UUID('00010203-0405-0607-0809-0a0b0c0d0e0f').hex()",
            Value::String("000102030405060708090a0b0c0d0e0f"),
        ),
        ("NumberLong(3) + 4", Value::Double(7.0)),
        ("NumberLong(3) > 2", Value::Bool(true)),
        ("NumberLong('4294967296').top", Value::Double(1.0)),
        (
            "ObjectId('000000010000000000000000').getTimestamp()",
            Value::DateTime(1000),
        ),
        ("DBRef('c', 1).getCollection()", Value::String("c")),
        ("'\\ud800'", Value::String("\u{FFFD}")),
    ];
    for (code, expected) in cases {
        assert_eq!(value(code).as_value(), expected, "{code}");
    }
}

#[test]
fn helpers_are_those_of_the_shell() {
    let cases = [
        (
            "tojson({a: 1, b: ['x', null]})",
            "{ \"a\" : 1, \"b\" : [ \"x\", null ] }",
        ),
        ("tojsononeline(NumberLong(5))", "NumberLong(5)"),
        (
            "tojson(ObjectId('5f5f5f5f5f5f5f5f5f5f5f5f'))",
            "ObjectId(\"5f5f5f5f5f5f5f5f5f5f5f5f\")",
        ),
        ("tojson(new Date(0))", "ISODate(\"1970-01-01T00:00:00Z\")"),
        (
            "tojson({d: NumberDecimal('1.0'), t: Timestamp(1, 2)})",
            "{ \"d\" : NumberDecimal(\"1.0\"), \"t\" : Timestamp(1, 2) }",
        ),
        (
            "tojson({a: 'x'.repeat(90)})",
            &format!("{{\n\t\"a\" : \"{}\"\n}}", "x".repeat(90)),
        ),
        ("tojson(BinData(0, 'AP8='))", "BinData(0,\"AP8=\")"),
        ("String(Array.sum([1, 2, 3]))", "6"),
        ("String(Array.sum(['a', 'b']))", "ab"),
        ("String(Array.avg([1, 2, 3]))", "2"),
        ("String(Array.stdDev([1, 3]))", "1"),
        (
            "tojson(Array.unique([1, 1, {a: 1}, {a: 1}]))",
            "[ 1, { \"a\" : 1 } ]",
        ),
        ("String(Array.contains([1, 2], 2))", "true"),
        (
            "tojson(Object.extend({a: 1}, {b: 2}))",
            "{ \"a\" : 1, \"b\" : 2 }",
        ),
        (
            "String(isNumber(5) && isString('x') && isObject({}))",
            "true",
        ),
        ("hex_md5('')", "d41d8cd98f00b204e9800998ecf8427e"),
        ("String(Object.bsonsize({a: 1}))", "16"),
        ("typeof print", "function"),
        (
            "typeof require + typeof process + typeof load + typeof std + typeof os",
            "undefinedundefinedundefinedundefinedundefined",
        ),
    ];
    for (code, expected) in cases {
        assert_eq!(value(code).as_value(), Value::String(expected), "{code}");
    }
    assert!(message("assert.eq(1, 2)").contains("are not equal"));
    assert_eq!(value("print('a', 1)").as_value(), Value::Undefined);
}

#[test]
fn documents_that_do_not_change_keep_their_types() {
    let doc = doc! {"_id": 1, "n": 5, "l": 6i64, "d": {"x": 1, "y": 2}, "s": [1, 2]};
    let cases = [
        // Nothing, and only numbers, were read.
        ("function(d) { return d }", doc.clone()),
        ("function(d) { d.n + d.d.x; return d }", doc.clone()),
        // A number that still is whole keeps its type, also after a change beside it.
        (
            "function(d) { d.n = 7; d.s.push(3); d.d.y = 2.5; delete d.l; d.z = 1; return d }",
            doc! {"_id": 1, "n": 7, "d": {"x": 1, "y": 2.5}, "s": [1, 2, 3.0], "z": 1.0},
        ),
        (
            "function(d) { return {k: d.d} }",
            doc! {"k": {"x": 1, "y": 2}},
        ),
    ];
    for (code, expected) in cases {
        assert_eq!(
            call(code, &doc).unwrap(),
            OwnedValue::from(expected.clone()),
            "{code}"
        );
    }
    let texts = [
        (
            "function(d) { return Object.keys(d).join() }",
            "_id,n,l,d,s",
        ),
        (
            "function(d) { var k = []; for (var n in d) k.push(n); return k.join() }",
            "_id,n,l,d,s",
        ),
        (
            "function(d) { return JSON.stringify(d.d) }",
            "{\"x\":1,\"y\":2}",
        ),
        (
            "function(d) { return String([d.hasOwnProperty('n'), 'n' in d, 'q' in d, d.d === d.d]) }",
            "true,true,false,true",
        ),
        (
            "function(d) { return String(d instanceof Object) + typeof d + Array.isArray(d.s) }",
            "trueobjecttrue",
        ),
        (
            "function(d) { return String(Object.assign({}, d).n) + {...d}.n }",
            "55",
        ),
    ];
    for (code, expected) in texts {
        assert_eq!(
            call(code, &doc).unwrap().as_value(),
            Value::String(expected),
            "{code}"
        );
    }
}

#[test]
fn what_is_thrown_is_told() {
    let cases = [
        ("nothing.x", "ReferenceError"),
        ("null.x", "TypeError"),
        ("throw new Error('mine')", "Error: mine"),
        ("throw 'text'", "uncaught exception: text"),
        ("throw {a: 1}", "uncaught exception"),
        ("ObjectId('x')", "invalid object id"),
        ("emit(1, 2)", "emit can only be called"),
        ("Symbol('x')", "unable to convert"),
    ];
    for (code, expected) in cases {
        let told = message(code);
        assert!(told.contains(expected), "{code}: {told}");
    }
}

#[test]
fn results_are_bounded() {
    let cases = [
        ("'x'.repeat(17 * 1024 * 1024)", 17260),
        ("['x'.repeat(9e6), 'x'.repeat(9e6)]", 17260),
        ("var a = []; a.push(a); return a", 17279),
        (
            "var d = {}; for (var i = 0; i < 200; i++) d = {d: d}; return d",
            17279,
        ),
        ("({'a\\0b': 1})", 16985),
        // Arrays and strings that are longer than they may be, and longer than they are.
        ("var a = []; a.length = 4294967295; return a", 17260),
        ("var a = []; a.length = 2147483648; return {a: a}", 17260),
        ("new Array(4294967295)", 17260),
        ("new Array(4294967295).fill(0, 0, 9)", 17260),
        ("new Proxy([], {get: () => 1})", 139),
        ("new Proxy([], {get: () => { throw 5 }})", 139),
        (
            "new Proxy({}, {getPrototypeOf: () => { throw 5 }, ownKeys: () => { throw 6 }})",
            139,
        ),
        ("new Proxy({}, {ownKeys: () => { throw 6 }})", 139),
        ("({get a() { throw 5 }})", 139),
        ("Object.defineProperty(/a/, 'source', {value: 5})", 139),
        (
            "Object.defineProperty(/a/, 'source', {value: 'x'.repeat(2e7)})",
            17260,
        ),
        ("Object.defineProperty(/a/, 'flags', {value: null})", 139),
        (
            "Object.create(RegExp.prototype, {source: {get() { throw 5 }}})",
            139,
        ),
        (
            "Object.assign(function() {}, {toString: () => 'x'.repeat(2e7)})",
            17260,
        ),
        (
            "Object.assign(function() {}, {toString: () => { throw 5 }})",
            139,
        ),
        ("({['x'.repeat(2e7)]: 1})", 17260),
        ("Code('x'.repeat(2e7))", 17260),
        ("DBPointer('x'.repeat(2e7), ObjectId())", 17260),
        ("Object.create(Object.getPrototypeOf(ObjectId()))", 139),
        // Graphs whose parts are shared: each has more than 2⁶⁰ leaves.
        (
            "var g = 1; for (var i = 0; i < 60; i++) g = [g, g]; return g",
            17260,
        ),
        (
            "var g = []; for (var i = 0; i < 60; i++) g = [g, g]; return g",
            17260,
        ),
        (
            "var g = {}; for (var i = 0; i < 60; i++) g = {a: g, b: g}; return g",
            17260,
        ),
        (
            "var g = {}; for (var i = 0; i < 60; i++) g = Code('', {a: g, b: g}); return g",
            17260,
        ),
        (
            "var s = 'x'.repeat(9e6), g = {}; for (var i = 0; i < 60; i++) g = Code('', {s: s, g: g}); return g",
            17260,
        ),
        (
            "var s = 'x'.repeat(9e6), g = {}; for (var i = 0; i < 60; i++) g = {s: s, g: g}; return g",
            17260,
        ),
    ];
    for (code, expected) in cases {
        match call(code, 0) {
            Err(error) => assert_eq!(error.code().code(), expected, "{code}: {error}"),
            Ok(value) => panic!("{code}: {value:?}"),
        }
    }
}

#[test]
fn loops_recursion_and_memory_are_bounded() {
    DEADLINE.set(Some(Instant::now() + Duration::from_millis(200)));
    let loops = [
        "for (;;) {}",
        "while (true) { try { for (;;) {} } catch (e) {} finally { continue } }",
        "function f() { return f() } for (;;) { try { f() } catch (e) {} }",
        "/^(a+)+$/.test('a'.repeat(40) + 'b'); for (;;) {}",
    ];
    for code in loops {
        let error = call(&format!("{code}; return 1"), 0).unwrap_err();
        assert_eq!(error.code(), ErrorCode::MaxTimeMSExpired, "{code}: {error}");
    }
    DEADLINE.set(None);
    let exhausting = [
        ("function f() { return f() + 1 } return f()", "stack"),
        ("var s = 'x'; for (;;) s += s", "string too long"),
        (
            "var a = []; for (;;) a.push('x'.repeat(1e6) + a.length)",
            "out of memory",
        ),
        ("var a = []; for (;;) a.push({a: 1})", "out of memory"),
        ("JSON.parse('['.repeat(1e6))", ""),
        ("return new Array(1e9).fill(0)", "out of memory"),
        ("return String(2n ** 100000000n).length", ""),
        ("return [...'x'.repeat(5e8)].length", "out of memory"),
    ];
    for (code, expected) in exhausting {
        let error = call(code, 0).unwrap_err();
        assert_eq!(
            error.code(),
            ErrorCode::JSInterpreterFailure,
            "{code}: {error}"
        );
        assert!(error.message().contains(expected), "{code}: {error}");
    }
    // The thread goes on.
    assert_eq!(value("1 + 1"), OwnedValue::Double(2.0));
}

#[test]
fn requests_do_not_see_each_other() {
    let engine = engine();
    let run = |code: &str| {
        let result = compiled(&engine, code).unwrap().call(Doc::empty());
        engine.end_request();
        result
    };
    let pollution = [
        "leak = 5; return leak",
        "Object.prototype.polluted = 1; return 1",
        "Array.prototype.push = function() { throw 1 }; return 1",
        "Object.prototype.toString = Array.sum = tojson = null; return 1",
        "ObjectId.prototype.str2 = 1; Object.setPrototypeOf(ObjectId.prototype, null); return 1",
        "globalThis.Date = null; JSON.stringify = null; return 1",
        "Object.defineProperty(Object.prototype, 'a', {get: function() { return 'trap' }}); return 1",
        "Promise.resolve().then(function() { leak = 1 }); return 1",
    ];
    for code in pollution {
        run(code).unwrap();
        let seen = "typeof leak + typeof ({}).polluted + typeof ({}).a + [1].concat(2) + tojson({a: [1]}) + typeof Date \
                    + JSON.stringify(1) + typeof ObjectId().str2";
        assert_eq!(
            run(seen).unwrap().as_value(),
            Value::String("undefinedundefinedundefined1,2{ \"a\" : [ 1 ] }function1undefined"),
            "{code}"
        );
    }
    // Functions of one request share their variables.
    let first = compiled(
        &engine,
        "counter = (typeof counter == 'undefined' ? 0 : counter) + 1",
    )
    .unwrap();
    first.call(Doc::empty()).unwrap();
    assert_eq!(first.call(Doc::empty()).unwrap(), OwnedValue::Double(2.0));
    let second = compiled(&engine, "counter").unwrap();
    assert_eq!(second.call(Doc::empty()).unwrap(), OwnedValue::Double(2.0));
    engine.end_request();
    assert_eq!(first.call(Doc::empty()).unwrap(), OwnedValue::Double(1.0));
    engine.end_request();
    assert_eq!(engine.heap_granted(), 0);
}

#[test]
fn scopes_and_stored_functions_are_variables() {
    let engine = engine();
    let stored: StoredFunctions = vec![
        (
            "twice".to_owned(),
            OwnedValue::JavaScript("function(x) { return 2 * x }".to_owned()),
        ),
        ("limit".to_owned(), OwnedValue::Int32(4)),
        (
            "broken".to_owned(),
            OwnedValue::JavaScript("function(".to_owned()),
        ),
    ];
    let source = ScriptSource {
        code: "twice(this.a) > limit + more && typeof broken == 'undefined'".to_owned(),
        scope: Some(doc! {"more": 1}),
        stored_functions: true,
    };
    let script = engine.script(source, Some(Arc::new(stored))).unwrap();
    assert!(script.test(&doc! {"a": 3}).unwrap());
    assert!(!script.test(&doc! {"a": 2}).unwrap());
    engine.end_request();
}

#[test]
fn maps_emit_and_folds_accumulate() {
    let map = script("function() { for (var t of this.tags) emit(t, {n: 1, id: this._id}); }");
    let mut pairs = Vec::new();
    map.map(&doc! {"_id": 7, "tags": ["a", "b"]}, &mut |key, value| {
        pairs.push((key.to_owned(), value.to_owned()));
        Ok(())
    })
    .unwrap();
    let one = doc! {"n": 1.0, "id": 7.0};
    assert_eq!(
        pairs,
        [
            (OwnedValue::from("a"), OwnedValue::from(one.clone())),
            (OwnedValue::from("b"), OwnedValue::from(one.clone())),
        ]
    );
    for (code, expected) in [
        ("emit(1)", 31220),
        ("emit(1, 2, 3)", 31220),
        ("for (;;) emit(1, 'x'.repeat(1e6))", 31292),
    ] {
        let error = script(code).map(&doc! {}, &mut |_, _| Ok(())).unwrap_err();
        assert_eq!(error.code().code(), expected, "{code}: {error}");
    }
    // Any value is a key, and a missing one is null.
    for (code, expected) in [
        ("emit([1], 1)", OwnedValue::from(ArrayBuf::from_iter([1.0]))),
        ("emit(this.none, 1)", OwnedValue::Null),
    ] {
        let mut keys = Vec::new();
        let mut emit = |key: Value<'_>, _: Value<'_>| {
            keys.push(key.to_owned());
            Ok(())
        };
        script(code).map(&doc! {}, &mut emit).unwrap();
        assert_eq!(keys, [expected], "{code}");
    }
    let fold = script("function(state, a, b) { state.n += a; state.last = b; return state }");
    let mut batch = ArrayBuf::new();
    for n in 0..3 {
        batch.push_array(|pair| {
            pair.push(n);
            pair.push("x");
        });
    }
    let state = doc! {"n": 1.0};
    let result = fold.fold(Value::Document(&state), batch.as_doc()).unwrap();
    assert_eq!(result, OwnedValue::from(doc! {"n": 4.0, "last": "x"}));
}

#[test]
fn threads_have_engines_of_their_own() {
    let engine = engine();
    let script = compiled(
        &engine,
        "seen = (typeof seen == 'undefined' ? 0 : seen) + 1; return seen == 1",
    )
    .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (script, engine) = (script.clone(), engine.clone());
            scope.spawn(move || {
                assert!(script.test(&doc! {}).unwrap());
                assert!(!script.test(&doc! {}).unwrap());
                engine.end_request();
            });
        }
    });
    engine.end_request();
    assert_eq!(engine.heap_granted(), 0);
}
