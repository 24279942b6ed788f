//! The sizes from which documents are stored in parts, and the number of operations.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use frond_store::{DocumentStore, EngineOptions, LargeDocuments, StoreOptions};

/// A size from which documents are stored in parts, and the size of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub name: &'static str,
    /// Bytes from which a document is large.
    pub threshold: usize,
    /// Approximate bytes of a segment. Sub-documents of four times as many are moved out of the document.
    pub segment: usize,
}

/// Many segments in small documents, some in medium ones, and the default sizes.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "tiny",
        threshold: 256,
        segment: 24,
    },
    Setting {
        name: "small",
        threshold: 2048,
        segment: 128,
    },
    Setting {
        name: "default",
        threshold: 32 << 10,
        segment: 4 << 10,
    },
];

pub const WHOLE: Setting = Setting {
    name: "whole",
    threshold: usize::MAX,
    segment: 4 << 10,
};

impl Setting {
    pub fn options(&self) -> StoreOptions {
        StoreOptions::default().with_large_documents(LargeDocuments {
            threshold_bytes: self.threshold,
            segment_bytes: self.segment,
        })
    }

    pub fn open(&self, mut engine: EngineOptions) -> frond_store::Result<DocumentStore> {
        engine.cache_bytes = 32 << 20;
        DocumentStore::open_engine(engine, self.options())
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// Runs seeds, each at every setting, until `operations` operations were done. A seed returns the number that it did.
pub fn seeds(operations: u64, run: impl Fn(u64, &Setting) -> u64) {
    let first = number("FROND_LARGE_SEED").unwrap_or(1);
    let wanted = number("FROND_LARGE_UPDATES").unwrap_or(operations);
    let only = std::env::var("FROND_LARGE_SETTING").ok();
    let mut done = 0;
    let mut seed = first;
    while done < wanted {
        let settings = SETTINGS.iter();
        for setting in settings.filter(|one| only.as_deref().is_none_or(|only| only == one.name)) {
            match catch_unwind(AssertUnwindSafe(|| run(seed, setting))) {
                Ok(operations) => done += operations,
                Err(panic) => {
                    println!(
                        "failed: FROND_LARGE_SETTING={} FROND_LARGE_SEED={seed} FROND_LARGE_UPDATES=1",
                        setting.name
                    );
                    resume_unwind(panic);
                }
            }
        }
        seed += 1;
        if seed.is_multiple_of(50) {
            println!(
                "{done} of {wanted} operations, seeds {first} to {}",
                seed - 1
            );
        }
    }
    println!("{done} operations, seeds {first} to {}", seed - 1);
}
