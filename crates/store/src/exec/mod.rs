//! Running plans: operators that compose, one file each.
//!
//! [`operator`] has the trait and the rows that operators exchange. Rows come from [`coll_scan`], [`random_scan`], [`oplog_scan`], [`id_lookup`],
//! [`id_scan`], [`index_scan`], [`distinct_scan`], [`near`] or [`eof`]; [`union`] and [`sort_merge`] combine several of
//! these; [`parallel`] divides a collection scan between threads, whose rows wait in [`parts`]; [`fetch`] reads documents, [`text_match`] tests them for a text; [`sort`], [`skip`], [`limit`],
//! [`projection`], [`metadata`], [`record_id`] and [`count`] make the result of them. [`build`] makes the
//! operators of a plan, [`executor`] runs them, [`trial`] compares plans by running them for a while,
//! [`describe`] shows them in `explain`. Clients pull from a [`cursor`]; [`tail`] waits for more documents.
//!
//! There is no operator for filters. The scan or the fetch that reads a document tests it: of a large document it first
//! reads the parts that the filter needs, and the rest only if the document passes.

pub mod build;
pub mod coll_scan;
pub mod count;
pub mod cursor;
pub mod describe;
pub mod distinct_scan;
pub mod eof;
pub mod executor;
pub mod fetch;
pub mod id_lookup;
pub mod id_scan;
pub mod index_scan;
pub mod key_scan;
pub mod limit;
pub mod metadata;
pub mod near;
pub mod operator;
pub mod oplog_scan;
pub mod parallel;
pub mod parts;
pub mod projection;
pub mod random_scan;
pub mod reader;
pub mod record_id;
pub mod seen;
pub mod skip;
pub mod sort;
pub mod sort_merge;
pub mod stats;
pub mod tail;
pub mod text_match;
pub mod trial;
pub mod union;

use operator::Node;
use stats::OperatorStats;

/// Keys and documents that a plan examined, for `explain` and the log of slow operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecStats {
    /// Index keys, and documents of a bounded scan over `_id`.
    pub keys_examined: u64,
    pub docs_examined: u64,
    /// Those of them that are stored in parts.
    pub large_examined: u64,
}

impl From<&OperatorStats> for ExecStats {
    fn from(stats: &OperatorStats) -> ExecStats {
        ExecStats {
            keys_examined: stats.keys_examined,
            docs_examined: stats.docs_examined,
            large_examined: stats.large_examined,
        }
    }
}

impl ExecStats {
    /// The sum over an operator and its inputs.
    pub fn collect(node: &Node) -> ExecStats {
        let own = ExecStats::from(node.stats());
        node.inputs()
            .iter()
            .map(ExecStats::collect)
            .fold(own, |sum, one| ExecStats {
                keys_examined: sum.keys_examined + one.keys_examined,
                docs_examined: sum.docs_examined + one.docs_examined,
                large_examined: sum.large_examined + one.large_examined,
            })
    }

    /// Units of work: keys and documents examined.
    pub fn work(&self) -> u64 {
        self.keys_examined + self.docs_examined
    }
}
