//! Indexed insertion: how fast documents go into a collection with secondary indexes, from empty
//! until the indexes are far larger than memory.

mod options;
mod prepare;

pub use options::{MultikeyOptions, Options, Plan, report_every};

use std::sync::Arc;

use crate::client::{Client, WriteConcern};
use crate::document::Generator;
use crate::error::{Error, Result};
use crate::load::Load;
use crate::meter::{Meter, Percentiles};
use crate::monitor::Figures;
use crate::progress::Progress;
use crate::report::{self, Facts, Row, Summary, Trace};
use crate::signals::stop_on_signals;
use crate::threads::{wait_until, with_each};

/// Runs the workload to its end and leaves its report, also when it ends early.
pub fn run(options: &Options) -> Result<()> {
    let plan = options.plan()?;
    let stop = stop_on_signals()?;
    let mut client = Client::connect(&plan.uri, Arc::clone(&stop))?;
    let concern = WriteConcern {
        acknowledged: plan.acknowledged,
        journal: plan.journal,
    };
    let target = client.write_target(&plan.collection.database, &plan.collection.name, concern);
    let already = prepare::prepare(&mut client, options, &plan)?;
    let facts = Facts::ask(&mut client, Client::dialect(&target));
    let workload = if options.elements == 0 {
        "insert"
    } else {
        "multikey"
    };
    let out = report::make_folder(options.out.as_deref(), workload, facts.started)?;
    let mut trace = Trace::create(&out)?;
    let mut progress = Progress::new(options.documents, "documents", options.quiet);

    // Connect before the clock starts.
    let mut workers = Vec::new();
    for _ in 0..options.threads {
        workers.push(Client::connect(&plan.uri, Arc::clone(&stop))?);
    }
    let meter = Meter::start(options.documents, Arc::clone(&stop));
    let source = Generator::new(options.seed, options.elements as usize);
    let load = Load::new(&target, &source, options.documents, options.batch);
    with_each(
        &mut workers,
        &meter,
        |_, client| load.insert(client, &meter),
        |all_done| {
            watch(
                &mut client,
                &meter,
                &plan,
                &mut trace,
                &mut progress,
                all_done,
            )
        },
    )?;
    let outcome = meter.end();
    progress.finish();

    let mut summary = Summary {
        settings: settings(options, &plan),
        facts,
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
        None => plan
            .collection
            .check_count(&mut client, already + outcome.documents),
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
        let done = wait_until(meter, at, &all_done);
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
        progress.show(
            elapsed_s,
            row.documents,
            speed,
            meter.speed_of_part(0.95, 1.0),
        );
        if done {
            return Ok(());
        }
        last = row;
        at = interval.elapsed.max(at) + plan.report_every;
    }
}

/// The settings as they go into the report.
fn settings(options: &Options, plan: &Plan) -> Vec<(&'static str, String)> {
    let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    vec![
        ("uri", options.uri.clone()),
        ("namespace", plan.collection.to_string()),
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
