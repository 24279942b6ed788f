//! Workers: how they are started, shared, bounded and replaced.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use frond_bson::{ArrayBuf, Doc, DocBuf, OwnedValue, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_javascript::{JavaScript, Placement, WorkerProgram, WorkerStats};
use frond_query::script::{Script, ScriptEngine, ScriptSource, StoredFunctions};

const MIB: usize = 1 << 20;

/// Looks after which a function is interrupted: some have gone by while it runs.
const LOOKS: u32 = 3;

thread_local! {
    /// Looks until the function of this thread is interrupted; `None` if it is not.
    static LOOKS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

fn check() -> Result<()> {
    match LOOKS_LEFT.get() {
        Some(0) => Err(Error::new(ErrorCode::Interrupted, "killed")),
        Some(left) => {
            LOOKS_LEFT.set(Some(left - 1));
            Ok(())
        }
        None => Ok(()),
    }
}

/// A function prints this when it begins what shall be interrupted.
pub const BEGINS: &str = "it begins";

/// Runs something whose function is interrupted after it has begun.
pub fn interrupted<T>(run: impl FnOnce() -> T) -> T {
    let result = run();
    LOOKS_LEFT.set(None);
    result
}

pub fn engine() -> JavaScript {
    JavaScript::new(crate::in_workers(), 1024 * MIB, 256 * MIB, check, |text| {
        if text == BEGINS {
            LOOKS_LEFT.set(Some(LOOKS));
        }
    })
}

pub fn script(engine: &JavaScript, code: &str) -> Result<Arc<dyn Script>> {
    let source = ScriptSource {
        code: code.to_owned(),
        ..ScriptSource::default()
    };
    engine.script(source, None)
}

fn call(engine: &JavaScript, code: &str) -> Result<OwnedValue> {
    script(engine, code)?.call(Doc::empty())
}

fn stats(engine: &JavaScript) -> WorkerStats {
    engine.workers().unwrap()
}

#[test]
fn a_worker_waits_for_the_next_request_and_remembers_nothing() {
    let engine = engine();
    for _ in 0..3 {
        let seen = call(
            &engine,
            "var before = typeof leak; leak = 1; Object.prototype.x = 1; return before",
        );
        assert_eq!(seen.unwrap(), OwnedValue::from("undefined"));
        assert!(engine.heap_granted() > 0);
        engine.end_request();
        assert_eq!(engine.heap_granted(), 0);
    }
    // A slow machine may have taken too long to drop an engine: then its worker was replaced.
    let stats = stats(&engine);
    assert!((1..=3).contains(&stats.started), "{stats:?}");
    assert!(stats.idle <= 1, "{stats:?}");
    assert_eq!((stats.killed, stats.lost), (0, 0));
}

#[test]
fn an_interrupted_function_ends_and_its_worker_is_replaced() {
    let engine = engine();
    let shared = "var g = []; for (var i = 0; i < 60; i++) g = [g, g]; return g.flat(Infinity)";
    for (number, code) in ["for (;;) {}", shared].into_iter().enumerate() {
        let endless = script(&engine, &format!("print('{BEGINS}'); {code}")).unwrap();
        let error = interrupted(|| endless.call(Doc::empty())).unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (ErrorCode::Interrupted, "killed")
        );
        assert_eq!(stats(&engine).killed, number as u64 + 1);
        // The same request goes on.
        assert_eq!(call(&engine, "1 + 1").unwrap(), OwnedValue::Double(2.0));
    }
    assert_eq!(stats(&engine).lost, 0);
    engine.end_request();
    assert_eq!(engine.heap_granted(), 0);
}

#[test]
fn a_function_may_sleep_until_it_is_interrupted() {
    let engine = engine();
    let began = Instant::now();
    let slept = call(
        &engine,
        "sleep(20); sleep(-1); sleep('x'); sleep(); return 1",
    );
    assert_eq!(slept.unwrap(), OwnedValue::Double(1.0));
    assert!(began.elapsed() >= Duration::from_millis(20));
    let code = format!("print('{BEGINS}'); sleep(1e9); return 1");
    let failure = interrupted(|| call(&engine, &code)).unwrap_err();
    assert_eq!(failure.code(), ErrorCode::Interrupted);
}

#[test]
fn a_request_that_ends_while_its_worker_is_started_gets_its_own_error() {
    let engine = JavaScript::new(
        crate::in_workers(),
        64 * MIB,
        64 * MIB,
        || Err(Error::new(ErrorCode::MaxTimeMSExpired, "too late")),
        |_| {},
    );
    // It may be so fast that nothing has to wait.
    if let Err(error) = call(&engine, "1") {
        assert_eq!(error.code(), ErrorCode::MaxTimeMSExpired);
    }
}

#[test]
fn a_worker_that_ends_by_itself_is_an_error_and_is_replaced() {
    let engine = engine();
    // The bytes of documents are outside of the engine's memory, and within that of the process.
    let keep = script(
        &engine,
        "kept = typeof kept == 'undefined' ? [] : kept; kept.push(this); return true",
    )
    .unwrap();
    let large = doc! {"s": "x".repeat(15 * MIB)};
    let error = (0..200).find_map(|_| keep.test(&large).err()).unwrap();
    assert_eq!(error.code(), ErrorCode::JSInterpreterFailure);
    assert!(error.message().contains("has ended"), "{error}");
    assert_eq!(stats(&engine).lost, 1);
    assert!(keep.test(&doc! {}).unwrap());
    engine.end_request();
}

#[test]
fn a_program_that_is_no_worker_is_an_error() {
    for path in ["/nowhere/frond", "/bin/true"] {
        let program = WorkerProgram {
            path: PathBuf::from(path),
            arguments: Vec::new(),
            variables: Vec::new(),
        };
        let engine = JavaScript::new(Placement::Workers(program), MIB, MIB, check, |_| {});
        let error = call(&engine, "1").unwrap_err();
        assert_eq!(
            error.code(),
            ErrorCode::JSInterpreterFailure,
            "{path}: {error}"
        );
    }
}

#[test]
fn printed_lines_arrive_in_their_order_and_are_bounded() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let engine = JavaScript::new(
        crate::in_workers(),
        64 * MIB,
        64 * MIB,
        check,
        move |text| {
            kept.lock().unwrap().push(text.to_owned());
        },
    );
    let code = "for (var i = 0; i < 1000; i++) print(i); print('ü'.repeat(1e6)); return 5";
    assert_eq!(call(&engine, code).unwrap(), OwnedValue::Double(5.0));
    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 1001);
    assert!(
        lines
            .iter()
            .take(1000)
            .enumerate()
            .all(|(at, line)| *line == at.to_string())
    );
    assert_eq!(lines[1000].len(), 64 << 10);
}

#[test]
fn maps_of_many_documents_emit_all_of_them_in_their_order() {
    let engine = engine();
    let docs: Vec<DocBuf> = (0..3000)
        .map(|n| doc! {"n": n, "s": "y".repeat(2000)})
        .collect();
    let docs: Vec<&Doc> = docs.iter().map(|doc| &**doc).collect();
    let map = script(&engine, "emit(this.n, this.s); emit(-this.n, null)").unwrap();
    let mut keys = Vec::new();
    map.map_all(&docs, &mut |key, _| {
        keys.push(key.as_f64().unwrap());
        // The receiver of a pair may call another function.
        if keys.len() % 1000 == 0 {
            assert_eq!(call(&engine, "7").unwrap(), OwnedValue::Double(7.0));
        }
        Ok(())
    })
    .unwrap();
    let expected: Vec<f64> = (0..3000)
        .flat_map(|n| [f64::from(n), -f64::from(n)])
        .collect();
    assert_eq!(keys, expected);
    // The error of a document is that of all, and the worker goes on.
    let fails = script(&engine, "if (this.n == 1500) throw 'mine'; emit(1, this)").unwrap();
    let error = fails.map_all(&docs, &mut |_, _| Ok(())).unwrap_err();
    assert!(error.message().contains("mine"), "{error}");
    let refused = map.map_all(&docs, &mut |_, _| Err(Error::internal("full")));
    assert_eq!(refused.unwrap_err().message(), "full");
    map.map_all(&[], &mut |_, _| Ok(())).unwrap();
    assert_eq!(stats(&engine).started, 1);
    engine.end_request();
}

#[test]
fn large_documents_and_many_stored_functions_arrive() {
    let engine = engine();
    let large = doc! {"s": "x".repeat(15 * MIB)};
    let mut arguments = ArrayBuf::new();
    arguments.push(&large);
    let same = script(&engine, "function(d) { return d }").unwrap();
    assert_eq!(
        same.call(arguments.as_doc()).unwrap(),
        OwnedValue::from(large.clone())
    );
    // More than a message may have.
    for _ in 0..4 {
        arguments.push(&large);
    }
    let error = same.call(arguments.as_doc()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BSONObjectTooLarge, "{error}");
    let stored: StoredFunctions = (0..300)
        .map(|n| {
            let code = format!("function() {{ return {n} }} /* {} */", "z".repeat(20_000));
            (format!("f{n}"), OwnedValue::JavaScript(code))
        })
        .collect();
    let source = ScriptSource {
        code: "f0() + f150() + f299()".to_owned(),
        scope: None,
        stored_functions: true,
    };
    let sum = engine.script(source, Some(Arc::new(stored))).unwrap();
    assert_eq!(sum.call(Doc::empty()).unwrap(), OwnedValue::Double(449.0));
    engine.end_request();
}

#[test]
fn threads_of_a_request_have_workers_of_their_own() {
    let engine = engine();
    let count = script(&engine, "n = (typeof n == 'undefined' ? 0 : n) + 1").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (count, engine) = (count.clone(), engine.clone());
            scope.spawn(move || {
                for n in 1..50 {
                    let counted = count.call(Doc::empty()).unwrap();
                    assert_eq!(counted, OwnedValue::Double(f64::from(n)));
                }
                engine.end_request();
            });
        }
    });
    engine.end_request();
    assert_eq!(engine.heap_granted(), 0);
    assert_eq!(stats(&engine).lost, 0);
}
