//! Indexed insertion: how fast documents go into a collection with secondary indexes, from empty
//! until the indexes are far larger than memory.

mod options;
mod prepare;
mod progress;
mod worker;

pub use options::{MultikeyOptions, Options, Plan};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::client::{Client, WriteConcern};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::meter::{Meter, Percentiles};
use crate::monitor::{Figures, ServerFacts};
use crate::report::{self, Row, Summary, Trace};
use crate::signals::stop_on_signals;
use progress::Progress;

/// Runs the workload to its end and leaves its report, also when it ends early.
pub fn run(options: &Options) -> Result<()> {
    let plan = options.plan()?;
    let stop = stop_on_signals()?;
    let mut client = Client::connect(&plan.uri, Arc::clone(&stop))?;
    let concern = WriteConcern {
        acknowledged: plan.acknowledged,
        journal: plan.journal,
    };
    let target = client.insert_target(&plan.database, &plan.collection, concern);
    let already = prepare::prepare(&mut client, options, &plan)?;
    let server = ServerFacts::ask(&mut client);

    let started = jiff::Timestamp::now();
    let out = folder(options, started);
    std::fs::create_dir_all(&out)
        .map_err(|error| Error::Io(format!("making {}", out.display()), error))?;
    let mut trace = Trace::create(&out)?;
    let mut progress = Progress::new(options);

    // Connect before the clock starts.
    let mut workers = Vec::new();
    for _ in 0..options.threads {
        workers.push(Client::connect(&plan.uri, Arc::clone(&stop))?);
    }
    let meter = Meter::start(options.documents, Arc::clone(&stop));
    let claimed = AtomicU64::new(0);
    thread::scope(|scope| -> Result<()> {
        let done = Arc::new(AtomicU64::new(0));
        for client in workers {
            let (meter, claimed, target) = (&meter, &claimed, &target);
            let done = Arc::clone(&done);
            scope.spawn(move || {
                let guard = worker::CountOnDrop(&done);
                worker::insert(client, target, options, claimed, meter);
                drop(guard);
            });
        }
        let all = u64::from(options.threads);
        let traced = watch(
            &mut client,
            &meter,
            &plan,
            &mut trace,
            &mut progress,
            || done.load(Ordering::Acquire) == all,
        );
        if traced.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        traced
    })?;
    let outcome = meter.end();
    progress.finish();

    let mut summary = Summary {
        started,
        settings: settings(options, &plan),
        server,
        dialect: Client::dialect(&target).name(),
        compressor: client.compressor().map(|compressor| compressor.name()),
        machine: Machine::read(),
        requested: options.documents,
        index_entries: options.index_entries(),
        documents: outcome.documents,
        elapsed: outcome.elapsed,
        speed: outcome.timeline.speed_of_part(0.0, 1.0),
        early_speed: outcome.timeline.speed_of_part(0.10, 0.20),
        exit_speed: outcome.timeline.speed_of_part(0.95, 1.0),
        latency: Percentiles::of(&outcome.latencies),
        batches: outcome.latencies.len(),
        resident_max_mib: trace.resident_max_mib(),
        ending: "complete".to_owned(),
    };
    let mut result = match outcome.error {
        Some(error) => Err(error),
        None if outcome.documents < options.documents => Err(Error::Stopped),
        None => prepare::check_count(&mut client, &plan, already + outcome.documents),
    };
    if let Err(error) = &result {
        summary.ending = error.to_string();
    }
    if let Err(error) = report::write(&out, &summary, trace.rows()) {
        result = result.and(Err(error));
    }
    print!("{}", summary.to_text(&out));
    result
}

/// Writes the trace and shows progress until the threads are done.
fn watch(
    client: &mut Client,
    meter: &Meter,
    plan: &Plan,
    trace: &mut Trace,
    progress: &mut Progress,
    all_done: impl Fn() -> bool,
) -> Result<()> {
    let mut last = Row::default();
    let mut at = plan.report_every;
    loop {
        let done = worker::wait_until(meter, at, &all_done);
        let interval = meter.take_interval();
        let elapsed_s = interval.elapsed.as_secs_f64();
        let seconds = elapsed_s - last.elapsed_s;
        // A last piece of an interval says little about speed, but its documents count.
        let speed = (interval.documents - last.documents) as f64 / seconds.max(1e-9);
        let latency = Percentiles::of(&interval.latencies);
        let figures = if done {
            Figures::default()
        } else {
            Figures::ask(client)
        };
        let row = Row {
            elapsed_s,
            documents: interval.documents,
            documents_per_s: speed,
            p50_ms: latency.p50_ms,
            p99_ms: latency.p99_ms,
            max_ms: latency.max_ms,
            figures,
        };
        if row.documents > last.documents || !done {
            trace.add(row)?;
        }
        progress.show(&row, meter.speed_of_part(0.95, 1.0));
        if done {
            return Ok(());
        }
        last = row;
        at = interval.elapsed.max(at) + plan.report_every;
    }
}

fn folder(options: &Options, started: jiff::Timestamp) -> PathBuf {
    options.out.clone().unwrap_or_else(|| {
        let time = started.strftime("%Y%m%d-%H%M%S");
        let workload = if options.elements == 0 {
            "insert"
        } else {
            "multikey"
        };
        PathBuf::from(format!("frond-bench-{workload}-{time}"))
    })
}

/// The settings as they go into the report.
fn settings(options: &Options, plan: &Plan) -> Vec<(&'static str, String)> {
    let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    vec![
        ("uri", options.uri.clone()),
        (
            "namespace",
            format!("{}.{}", plan.database, plan.collection),
        ),
        ("documents", options.documents.to_string()),
        ("indexes", options.indexed_fields().join(", ")),
        ("strings in URI", options.elements.max(1).to_string()),
        ("threads", options.threads.to_string()),
        ("batch", options.batch.to_string()),
        ("acknowledged", yes_no(plan.acknowledged)),
        ("journal", yes_no(plan.journal)),
        ("seed", options.seed.to_string()),
    ]
}
