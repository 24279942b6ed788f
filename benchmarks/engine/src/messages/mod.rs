//! Update messages at speed: documents of very many fields in segments of about 4 KB, and messages that each add 1 to
//! one field of one segment at random. Frond's engine alone; stores with different settings take turns.

mod segment;

use std::fs;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use frond_tree::{
    Direction, Durability, Options, Snapshot, Store, StoreStats, TreeId, TreeOptions, WriteSet,
};

use crate::error::{During, Error, Result};
use crate::phase::on_threads;
use crate::usage::{Meter, Usage, disk_bytes};
use crate::workload::Random;
use segment::{FIELDS, SEGMENTS, segment_of};

/// Update messages on segments of about 4 KB.
#[derive(Args)]
pub struct Messages {
    /// Folder for the stores' files; made, and removed at the end
    #[arg(long)]
    folder: PathBuf,
    /// Documents of 190 segments
    #[arg(long, default_value_t = 2105)]
    documents: u64,
    /// Messages for each store, half of them before the first reads
    #[arg(long, default_value_t = 4_000_000)]
    messages: u64,
    /// Messages in a write set, all for one document
    #[arg(long, default_value_t = 5)]
    batch: u64,
    /// Threads that send messages
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// Of a thousand messages, those for one and the same segment
    #[arg(long, default_value_t = 0)]
    hot: u64,
    /// Memory of each store in MiB
    #[arg(long, default_value_t = 256)]
    cache_mib: usize,
    /// Sizes of pages in KiB: a store for each
    #[arg(long, value_delimiter = ',', default_value = "64,16")]
    page_kib: Vec<u32>,
    /// Size of leaves in KiB
    #[arg(long, default_value_t = 4096)]
    leaf_kib: u32,
    /// Rounds of messages, then reads
    #[arg(long, default_value_t = 2)]
    rounds: u64,
    /// Length of each phase of reads
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

/// Messages a second while reads are measured, so that idle compaction does not start.
const TRICKLE: u64 = 2000;

struct Subject {
    name: String,
    folder: PathBuf,
    store: Store,
    tree: TreeId,
    sent: AtomicU64,
    meter: Meter,
}

/// Runs the benchmark and prints the results.
pub fn run(options: &Messages) -> Result<()> {
    if options.documents == 0 || options.batch == 0 || options.threads == 0 || options.rounds == 0 {
        let text = "documents, messages in a batch, threads and rounds must not be 0".to_owned();
        return Err(Error::Settings(text));
    }
    let seconds = Duration::try_from_secs_f64(options.seconds)
        .map_err(|_| Error::Settings(format!("--seconds is {}", options.seconds)))?;
    fs::create_dir(&options.folder).map_err(Error::file("making the folder"))?;
    let result = measure(options, seconds);
    // A folder that stays is the caller's to remove.
    let _ = fs::remove_dir_all(&options.folder);
    result
}

fn measure(options: &Messages, seconds: Duration) -> Result<()> {
    let mut subjects = Vec::new();
    for (number, page_kib) in options.page_kib.iter().enumerate() {
        let folder = options.folder.join(number.to_string());
        let subject = Subject::load(options, *page_kib, folder)?;
        subjects.push(subject);
    }
    for round in 1..=options.rounds {
        for subject in &subjects {
            subject.send(options, options.messages / options.rounds, round)?;
            subject.with_trickle(options, |subject| {
                subject.point_reads(options, "reads", seconds)?;
                if options.hot > 0 {
                    subject.hot_reads(seconds)?;
                }
                subject.scans(options, "scans", seconds)
            })?;
        }
    }
    for subject in &subjects {
        let start = subject.now();
        subject.store.compact().during("compacting")?;
        subject.print("settled", "", 1, start);
        println!(
            "{:12} files of {} MiB",
            subject.name,
            disk_bytes(&subject.folder) >> 20
        );
        subject.point_reads(options, "settled reads", seconds)?;
        subject.scans(options, "settled scans", seconds)?;
        subject.check(options)?;
        subject.store.close().during("closing")?;
    }
    Ok(())
}

impl Subject {
    fn load(options: &Messages, page_kib: u32, folder: PathBuf) -> Result<Subject> {
        fs::create_dir(&folder).map_err(Error::file("making a folder"))?;
        let mut settings = Options::new(&folder);
        settings.cache_bytes = options.cache_mib << 20;
        settings.merge = Arc::new(segment::Adder);
        let store = Store::open(settings).during("opening")?;
        let tree = store.allocate_tree();
        let tree_options = TreeOptions {
            page_bytes: page_kib << 10,
            node_bytes: options.leaf_kib << 10,
            ..TreeOptions::default()
        };
        let mut set = WriteSet::new();
        set.create_tree(tree, &tree_options);
        store
            .commit(set, Durability::Logged)
            .during("creating the tree")?;
        let subject = Subject {
            name: format!("{page_kib} KiB pages"),
            meter: Meter::new(&folder),
            folder,
            store,
            tree,
            sent: AtomicU64::new(0),
        };
        let start = subject.now();
        let values = segment::values();
        for document in 0..options.documents {
            let mut set = WriteSet::new();
            for (segment, value) in values.iter().enumerate() {
                set.put(tree, &segment::key(document, segment as u64), value);
            }
            subject
                .store
                .commit(set, Durability::Logged)
                .during("loading")?;
        }
        subject.store.checkpoint().during("checkpoint")?;
        let segments = options.documents * SEGMENTS;
        subject.print("loaded", "segments", segments, start);
        Ok(subject)
    }

    fn send(&self, options: &Messages, messages: u64, round: u64) -> Result<()> {
        let start = self.now();
        let each = messages / options.threads;
        on_threads(options.threads as usize, |thread| {
            let mut random = Random::new(round << 32 | (thread as u64) << 16);
            let mut left = each;
            while left > 0 {
                left -= self.send_batch(options, &mut random, left)?;
            }
            Ok(())
        })?;
        self.print("messages", "messages", messages, start);
        Ok(())
    }

    /// Commits one write set of up to `most` messages; returns how many.
    fn send_batch(&self, options: &Messages, random: &mut Random, most: u64) -> Result<u64> {
        let mut set = WriteSet::new();
        let mut delta = Vec::new();
        let document = random.below(options.documents);
        let count = options.batch.min(most);
        for _ in 0..count {
            let (mut document, mut field) = (document, random.below(FIELDS));
            if random.below(1000) < options.hot {
                document = 0;
                while segment_of(field) != 0 {
                    field = random.below(FIELDS);
                }
            }
            segment::delta(field, &mut delta);
            let key = segment::key(document, segment_of(field));
            set.merge(self.tree, &key, &delta);
        }
        self.store
            .commit(set, Durability::Logged)
            .during("sending messages")?;
        self.sent.fetch_add(count, Ordering::Relaxed);
        Ok(count)
    }

    /// Does something while a few messages are sent.
    fn with_trickle(
        &self,
        options: &Messages,
        work: impl FnOnce(&Subject) -> Result<()>,
    ) -> Result<()> {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut random = Random::new(self.sent.load(Ordering::Relaxed));
                while !done.load(Ordering::Relaxed) {
                    for _ in 0..TRICKLE / 100 / options.batch.min(TRICKLE / 100) {
                        self.send_batch(options, &mut random, options.batch)?;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok(())
            });
            let outcome = work(self);
            done.store(true, Ordering::Relaxed);
            outcome.and(join(writer))
        })
    }

    fn point_reads(&self, options: &Messages, what: &str, time: Duration) -> Result<()> {
        let mut random = Random::new(77);
        self.timed(what, "segments", time, |snapshot| {
            let (document, segment) = (random.below(options.documents), random.below(SEGMENTS));
            let key = segment::key(document, segment);
            let found = snapshot.get(self.tree, &key).during("get")?;
            let Some(value) = found else {
                return Err(Error::Wrong(format!("segment {segment} is missing")));
            };
            Ok(u64::from(segment::sum(&value) >= 0))
        })
    }

    /// Reads the segment that gets most messages.
    fn hot_reads(&self, time: Duration) -> Result<()> {
        let key = segment::key(0, 0);
        self.timed("hot reads", "reads", time, |snapshot| {
            let found = snapshot.get(self.tree, &key).during("get")?;
            Ok(u64::from(found.is_some()))
        })
    }

    fn scans(&self, options: &Messages, what: &str, time: Duration) -> Result<()> {
        let mut random = Random::new(78);
        self.timed(what, "documents", time, |snapshot| {
            let document = random.below(options.documents);
            let (found, _) = self.scan(snapshot, document, document + 1)?;
            match found {
                SEGMENTS => Ok(1),
                found => Err(Error::Wrong(format!("a document of {found} segments"))),
            }
        })
    }

    /// How many segments documents have, and the sum of all their numbers.
    fn scan(&self, snapshot: &Snapshot, from: u64, to: u64) -> Result<(u64, i64)> {
        let (lower, upper) = (segment::key(from, 0), segment::key(to, 0));
        let (lower, upper) = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
        let mut cursor = snapshot
            .cursor(self.tree, lower, upper, Direction::Forward)
            .during("cursor")?;
        let (mut count, mut sum) = (0, 0);
        while let Some((_, value)) = cursor.next().during("scan")? {
            count += 1;
            sum += segment::sum(value);
        }
        Ok((count, sum))
    }

    /// Repeats something for a while, each time with a new snapshot, and prints its cost.
    fn timed(
        &self,
        what: &str,
        of: &str,
        time: Duration,
        mut work: impl FnMut(&Snapshot) -> Result<u64>,
    ) -> Result<()> {
        let start = self.now();
        let (mut times, mut count) = (Vec::new(), 0);
        let begin = Instant::now();
        while begin.elapsed() < time {
            let start = Instant::now();
            count += work(&self.store.snapshot())?;
            times.push(start.elapsed());
        }
        self.print(what, of, count, start);
        times.sort_unstable();
        let percentile = |percent: usize| {
            let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
            times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        println!(
            "{:12} {what:14} median {:.0} µs, 99% {:.0} µs",
            self.name,
            percentile(50),
            percentile(99)
        );
        Ok(())
    }

    /// Compares the sum of all numbers with the number of messages.
    fn check(&self, options: &Messages) -> Result<()> {
        let start = self.now();
        let (found, sum) = self.scan(&self.store.snapshot(), 0, options.documents)?;
        self.print("full scan", "segments", found, start);
        let sent = self.sent.load(Ordering::Relaxed);
        if found < options.documents * SEGMENTS || sum as u64 != sent {
            let text = format!("{found} segments that sum up to {sum}; {sent} messages were sent");
            return Err(Error::Wrong(text));
        }
        Ok(())
    }

    fn now(&self) -> (Usage, StoreStats) {
        (self.meter.now(), self.store.stats())
    }

    /// Prints the time since `start`, and that of one of `count` operations.
    fn print(&self, what: &str, of: &str, count: u64, start: (Usage, StoreStats)) {
        let used = self.meter.since(start.0);
        let (before, now) = (start.1, self.store.stats());
        let count = count.max(1) as f64;
        let each = |now: u64, before: u64| (now - before) as f64 / count;
        let stats = self.store.tree_stats(self.tree);
        println!(
            "{:12} {what:14} {:9.0} {of}/s in {:.1} s; of each: {:.2} CPU µs, log {:.1}, data written {:.1}, \
             data read {:.0} bytes in {:.2} reads; pending {} MiB of {} MiB, height {}",
            self.name,
            count / used.elapsed_s,
            used.elapsed_s,
            used.cpu_s * 1e6 / count,
            each(now.log_written_bytes, before.log_written_bytes),
            each(now.written_bytes, before.written_bytes),
            each(now.read_bytes, before.read_bytes),
            each(now.reads, before.reads),
            stats.pending_bytes >> 20,
            stats.logical_bytes >> 20,
            stats.height,
        );
    }
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(Error::Wrong("a thread panicked".to_owned())))
}
