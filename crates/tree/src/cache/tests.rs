//! The cache as a whole: what it costs to read pages by several patterns, beside fixed divisions of its memory.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use frond_kv::{MemoryBudget, MemoryUse};

use super::{Key, LookedUp, PageCache};
use crate::Kind;
use crate::page::{Page, PageBuilder};

const MIB: u64 = 1 << 20;
const ALL: u64 = 16 * MIB;
/// Bytes of each page, and of its block.
const PAGE: usize = 8 << 10;
const BLOCK: usize = 2700;

fn payload() -> Vec<u8> {
    let mut builder = PageBuilder::default();
    for key in 0..28u32 {
        builder.add(&key.to_be_bytes(), Kind::Put, &[7; 268]);
    }
    let mut payload = Vec::new();
    builder.build(&mut payload);
    payload
}

/// A cache, and what reading pages through it has cost in microseconds.
struct Reader {
    cache: PageCache,
    page: Arc<Page>,
    payload: Vec<u8>,
    block: Vec<u8>,
    micros: u64,
    reads: u64,
}

impl Reader {
    fn new(budget: &MemoryBudget) -> Reader {
        let payload = payload();
        let page = Page::decode(&payload).unwrap();
        assert!(page.bytes().abs_diff(PAGE) < 600, "{}", page.bytes());
        Reader {
            cache: PageCache::new(budget, false),
            page: Arc::new(page),
            payload,
            block: vec![1; BLOCK],
            micros: 0,
            reads: 0,
        }
    }

    fn read(&mut self, number: u32) {
        if self.cache.page(1, number).is_some() {
            return;
        }
        self.micros += 10;
        let decode = |block: &[u8]| {
            assert_eq!(block.len(), BLOCK);
            Page::decode_checked(&self.payload).map(Arc::new)
        };
        let find = |block: &[u8]| {
            assert_eq!(block.len(), BLOCK);
            Page::find_checked(&self.payload, &7u32.to_be_bytes())
        };
        let turn = self.cache.large.turn();
        match self.cache.look_up(1, number, &turn, find, decode) {
            Some(LookedUp::Entry(entry)) => {
                assert_eq!(entry.unwrap().message(0), (Kind::Put, &[7; 268][..]));
                return;
            }
            Some(LookedUp::Page(_)) => {}
            None => {
                self.micros += 100;
                self.reads += 1;
                let (page, block) = (&self.page, &self.block);
                (self.cache).insert_read_block(1, number, block, page, true);
            }
        }
        self.cache.insert_page(1, number, self.page.clone());
    }

    /// The cost of a read by a pattern, after as many reads to warm up.
    fn cost(&mut self, mut next: impl FnMut() -> u32) -> f64 {
        for _ in 0..READS {
            self.read(next());
        }
        (self.micros, self.reads) = (0, 0);
        for _ in 0..READS {
            self.read(next());
        }
        self.micros as f64 / f64::from(READS)
    }
}

/// The numbers of the pages that are read, and what makes such a sequence.
type Pattern = Box<dyn FnMut() -> u32>;
type NewPattern = Box<dyn FnMut() -> Pattern>;

const READS: u32 = 100_000;

fn pages(mib: u64) -> u32 {
    (mib * MIB / PAGE as u64) as u32
}

/// A skewed pattern: a third of the reads goes to a tenth of the pages, again and again.
fn skewed(rng: &mut StdRng, pages: u32) -> u32 {
    let mut most = pages;
    while most > 16 && rng.random_range(0..3) == 0 {
        most /= 10;
    }
    rng.random_range(0..most.max(1))
}

#[test]
fn the_division_is_nearly_as_good_as_the_best_fixed_one() {
    let patterns: [(&str, NewPattern); 7] = [
        ("uniform, compressed fits", uniform(32)),
        ("uniform, barely", uniform(44)),
        ("uniform, does not fit", uniform(100)),
        ("uniform, much larger", uniform(400)),
        ("uniform, nearly fits", uniform(18)),
        (
            "skewed",
            Box::new(|| {
                let mut rng = StdRng::seed_from_u64(3);
                Box::new(move || skewed(&mut rng, pages(100)))
            }),
        ),
        (
            "a loop",
            Box::new(|| {
                let mut at = 0;
                Box::new(move || {
                    at = (at + 1) % pages(30);
                    at
                })
            }),
        ),
    ];
    for (name, mut pattern) in patterns {
        let budget = MemoryBudget::new(ALL as usize, 0, 0);
        let mut costs = Vec::new();
        for share in [0, 16, 32, 48, 56] {
            let mut fixed = Reader::new(&budget);
            fixed.cache.balance.fix(share);
            costs.push(fixed.cost(pattern()));
        }
        let best = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let mut reader = Reader::new(&budget);
        let cost = reader.cost(pattern());
        assert!(cost <= best * 1.15 + 1.0, "{name}: {cost} beside {costs:?}");
    }
}

#[test]
fn the_first_look_up_in_a_block_leaves_the_pages_as_they_are() {
    let budget = MemoryBudget::new(ALL as usize, 0, 0);
    let mut reader = Reader::new(&budget);
    // As pages they do not fit, as blocks they do.
    for number in 0..pages(30) {
        reader.read(number);
    }
    let is_page = |reader: &Reader, page| reader.cache.peek_page(1, page).is_some();
    let is_block = |reader: &Reader, page| {
        let block = reader
            .cache
            .blocks
            .get(Key { run: 1, page }, false, &mut Vec::new());
        block == Some(false)
    };
    let mut numbers = 0..pages(30);
    let number = numbers.find(|number| !is_page(&reader, *number) && is_block(&reader, *number));
    let number = number.unwrap();
    (reader.micros, reader.reads) = (0, 0);
    for (expected, micros) in [(false, 10), (true, 20), (true, 20)] {
        reader.read(number);
        assert_eq!(is_page(&reader, number), expected);
        assert_eq!((reader.micros, reader.reads), (micros, 0));
    }
}

fn uniform(mib: u64) -> NewPattern {
    Box::new(move || {
        let mut rng = StdRng::seed_from_u64(mib);
        Box::new(move || rng.random_range(0..pages(mib)))
    })
}

#[test]
fn what_fits_as_pages_leaves_no_room_for_blocks() {
    let budget = MemoryBudget::new(ALL as usize, 0, 0);
    let mut reader = Reader::new(&budget);
    let mut rng = StdRng::seed_from_u64(1);
    let all = pages(13);
    reader.cost(|| rng.random_range(0..all));
    assert!(reader.micros < 20_000, "{}", reader.micros);
    let mut grown = 0;
    while grown < pages(1) {
        reader.read(all + grown);
        grown += 1;
    }
    let stats = reader.cache.stats();
    assert!(stats.bytes <= ALL + ALL / 32, "{}", stats.bytes);
    // Less than a quarter of the data would be there without it.
    reader.cost(|| rng.random_range(0..all + grown));
    let blocks = reader.cache.stats().block_bytes;
    assert!(blocks < 2 * MIB, "{blocks} bytes of blocks");
    assert!(reader.micros < 250_000, "{}", reader.micros);
}

#[test]
fn the_tiers_stay_within_the_budget_while_it_changes() {
    let budget = MemoryBudget::new(ALL as usize, 0, 0);
    let mut reader = Reader::new(&budget);
    let mut rng = StdRng::seed_from_u64(2);
    for round in 0..40 {
        let reserved = budget.reserve(MemoryUse::Runs, (round % 5 * 3 * MIB) as usize);
        for _ in 0..4000 {
            reader.read(rng.random_range(0..pages(60)));
        }
        let (stats, limit) = (reader.cache.stats(), budget.for_cache());
        assert!(
            stats.bytes <= limit + ALL / 16,
            "{} of {limit}",
            stats.bytes
        );
        assert!(stats.bytes >= limit / 4 * 3, "{} of {limit}", stats.bytes);
        drop(reserved);
    }
    reader.cache.forget(1, pages(60));
    assert!(reader.cache.stats().bytes < MIB);
}

#[test]
fn the_first_pattern_does_not_decide_for_ever() {
    let budget = MemoryBudget::new(ALL as usize, 0, 0);
    let mut reader = Reader::new(&budget);
    let mut rng = StdRng::seed_from_u64(5);
    let large = reader.cost(|| rng.random_range(0..pages(40)));
    assert!(large < 15.0, "{large}");
    let small = reader.cost(|| pages(50) + rng.random_range(0..pages(12)));
    assert!(small < 0.1, "{small}");
    let again = reader.cost(|| rng.random_range(0..pages(40)));
    assert!(again < 15.0, "{again}");
}
