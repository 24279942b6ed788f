#![allow(clippy::unwrap_used)]

use std::fs;

use super::*;

const FIGURES: [Metric; 2] = [
    Metric {
        name: "inserts",
        kind: Kind::Counter,
    },
    Metric {
        name: "bytes",
        kind: Kind::Gauge,
    },
];

/// A history with a sample for each second of a range.
fn filled(directory: &std::path::Path, seconds: std::ops::Range<i64>) -> History {
    let history = History::new(directory.join("diagnostic.data"), FIGURES.to_vec());
    for second in seconds {
        history.add(sample(second)).unwrap();
    }
    history
}

fn sample(second: i64) -> Sample {
    Sample {
        time_ms: second * 1000,
        values: vec![second as u64 * 3, u64::MAX - second as u64],
    }
}

fn seconds(samples: &[Sample]) -> Vec<i64> {
    for one in samples {
        assert_eq!(
            *one,
            sample(one.time_ms / 1000),
            "values belong to the time"
        );
    }
    samples.iter().map(|one| one.time_ms / 1000).collect()
}

#[test]
fn recent_samples_are_fine_and_older_ones_coarse() {
    let directory = tempfile::tempdir().unwrap();
    let history = filled(directory.path(), 1000..3000);
    assert_eq!(history.newest().unwrap(), sample(2999));
    let recent = history.between(2_990_000, 2_995_000, 100);
    assert_eq!(seconds(&recent), [2991, 2992, 2993, 2994, 2995]);
    let older = history.between(1_000_000, 1_045_000, 100);
    assert_eq!(seconds(&older), [1010, 1020, 1030, 1040]);
    let both = seconds(&history.between(2_380_000, 2_405_000, 1000));
    assert_eq!(both, [2390, 2400, 2401, 2402, 2403, 2404, 2405]);
    assert_eq!(history.between(5_000_000, 6_000_000, 10), []);
    assert_eq!(history.between(10, 0, 0), []);
    // Few points: the last one of each interval.
    let few = seconds(&history.between(2_499_000, 2_999_000, 5));
    assert_eq!(few, [2599, 2699, 2799, 2899, 2999]);
}

#[test]
fn a_restart_keeps_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 1000..1100));
    let history = filled(directory.path(), 1200..1210);
    let all = seconds(&history.between(1_000_000, 2_000_000, 10_000));
    let mut expected: Vec<i64> = (1010..1100).step_by(10).collect();
    expected.extend(1200..1210);
    assert_eq!(all, expected);
}

#[test]
fn a_torn_or_damaged_end_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 1000..1100));
    let folder = directory.path().join("diagnostic.data");
    let path = fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    let whole = fs::read(path.path()).unwrap();
    let read = || {
        let history = History::new(folder.clone(), FIGURES.to_vec());
        seconds(&history.between(0, 2_000_000, 10_000))
    };
    let all: Vec<i64> = (1000..1100).step_by(10).collect();
    assert_eq!(read(), all);
    for length in 0..whole.len() {
        fs::write(path.path(), &whole[..length]).unwrap();
        let rest = read();
        assert_eq!(rest, all[..rest.len()], "{length}");
        assert!(rest.len() < all.len());
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x41;
        fs::write(path.path(), &damaged).unwrap();
        let rest = read();
        assert_eq!(rest, all[..rest.len()], "{at}");
    }
    // A foreign file.
    fs::write(folder.join("history.other"), vec![0xff; 1 << 20]).unwrap();
    fs::write(path.path(), &whole).unwrap();
    assert_eq!(read(), all);
}

#[test]
fn the_files_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let history = History::new(directory.path().join("diagnostic.data"), FIGURES.to_vec());
    // Twenty days.
    for step in 0..170_000i64 {
        history.add(sample(step * 10)).unwrap();
    }
    let folder = fs::read_dir(directory.path().join("diagnostic.data")).unwrap();
    let sizes = folder.map(|entry| entry.unwrap().metadata().unwrap().len());
    let (count, bytes) = sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
    assert!(
        count > 1 && (1 << 20..=6 << 20).contains(&bytes),
        "{count} {bytes}"
    );
}

#[test]
fn other_figures_of_an_older_version_are_matched_by_name() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 1000..1020));
    let metrics = ["new", "bytes"].map(|name| Metric {
        name,
        kind: Kind::Gauge,
    });
    let history = History::new(directory.path().join("diagnostic.data"), metrics.to_vec());
    let read = history.between(0, 2_000_000, 10);
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].values, [0, u64::MAX - 1000]);
}

#[test]
fn a_clock_that_is_set_back_loses_no_new_sample() {
    let directory = tempfile::tempdir().unwrap();
    let history = filled(directory.path(), 1000..1050);
    for second in 500..520 {
        history.add(sample(second)).unwrap();
    }
    assert_eq!(history.newest().unwrap(), sample(519));
    let now = seconds(&history.between(499_000, 520_000, 100));
    assert_eq!(now, (500..520).collect::<Vec<_>>());
}

#[test]
fn a_directory_that_cannot_be_written_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("diagnostic.data"), "a file").unwrap();
    let history = History::new(directory.path().join("diagnostic.data"), FIGURES.to_vec());
    assert!(history.add(sample(1000)).is_err());
    assert!(history.add(sample(1001)).is_ok(), "not tried each second");
    assert!(history.add(sample(1010)).is_err());
    assert_eq!(history.between(0, 2_000_000, 10_000).len(), 3);
}
