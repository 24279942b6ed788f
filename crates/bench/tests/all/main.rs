//! Tests of the workloads against a small server.
//!
//! They are one program, because each program of its own is linked with everything below it.

#![allow(clippy::unwrap_used)]

mod ages;
mod faults;
mod null;
mod reports;
mod store;

/// Options that make each workload small. In W5 the wanted name is there twice, in two blocks of 4,096 names.
fn small(workload: &str) -> Vec<&'static str> {
    match workload {
        "insert" => vec!["--documents=2500", "--batch=400"],
        "manykeys" => vec![
            "--documents=7",
            "--keys=30",
            "--updates=20",
            "--rounds=2",
            "--reads=3",
            "--verify=all",
        ],
        "sysbench" => vec![
            "--documents=130",
            "--collections=2",
            "--seconds=0.3",
            "--load-threads=2",
        ],
        "indexcost" => vec!["--documents=8192", "--batches=2", "--batch=500"],
        "groups" => vec!["--documents=5000", "--rounds=2", "--batch=500"],
        "rolling" => vec!["--retention=2", "--periods=1.5", "--batch=10"],
        "counters" => vec![
            "--documents=1000",
            "--batch=7",
            "--seconds=0.3",
            "--single-seconds=0.1",
        ],
        "mixed" => vec![
            "--documents=1500",
            "--batch=50",
            "--readers=3",
            "--rounds=2",
            "--seconds=0.2",
        ],
        other => unreachable!("{other}"),
    }
}

/// Those options, and more of them, which take the place of options with the same name.
fn small_with<'a>(workload: &str, more: &[&'a str]) -> Vec<&'a str> {
    let name = |option: &str| option.split('=').next().map(str::to_owned);
    let mut all = small(workload);
    all.retain(|own| more.iter().all(|other| name(own) != name(other)));
    all.extend_from_slice(more);
    all
}
