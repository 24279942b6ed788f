//! A plan in a few words: `planSummary`.

use std::fmt::Write as _;
use std::sync::Arc;

use frond_bson::{Doc, Value};

use super::{Access, IndexAccess};
use frond_storage::index::Index;

/// The scans of a plan. It is cheap to make; the text is made when it is shown.
#[derive(Clone, Debug)]
pub enum Summary {
    /// Without an index, or that of `_id`.
    Named(&'static str),
    /// Through a secondary index.
    Index(&'static str, Arc<Index>),
    Several(Vec<Summary>),
}

impl Summary {
    /// The scans of an access.
    pub fn from_access(access: &Access) -> Summary {
        match access {
            Access::Eof => Summary::Named("EOF"),
            Access::CollScan(_) | Access::Oplog(_) => Summary::Named("COLLSCAN"),
            Access::Random(_) => Summary::Named("MULTI_ITERATOR"),
            Access::Id(_) => Summary::Named("IDHACK"),
            Access::IdRange { .. } => Summary::Named("IXSCAN { _id: 1 }"),
            Access::Index(scan) => Summary::of_index("IXSCAN", scan),
            Access::Distinct { scan, .. } => Summary::of_index("DISTINCT_SCAN", scan),
            Access::Near(near) => {
                let holds = |kind: &str| {
                    let mut values = near.scan.index.spec.key.values();
                    values.any(|value| value.as_str() == Some(kind))
                };
                let name = if holds("2d") {
                    "GEO_NEAR_2D"
                } else {
                    "GEO_NEAR_2DSPHERE"
                };
                Summary::of_index(name, &near.scan)
            }
            Access::Or(branches) => {
                Summary::Several(branches.iter().map(Summary::from_access).collect())
            }
            Access::Merge(merge) => match &merge.exploded {
                Some(scan) => Summary::of_index("IXSCAN", scan),
                None => {
                    let branches = merge.branches.iter();
                    Summary::Several(
                        branches
                            .map(|one| Summary::from_access(&one.access))
                            .collect(),
                    )
                }
            },
        }
    }

    fn of_index(name: &'static str, scan: &IndexAccess) -> Summary {
        Summary::Index(name, scan.index.clone())
    }

    /// As the log and the profiler show it: `IXSCAN { a: 1, b: -1 }`.
    pub fn text(&self) -> String {
        match self {
            Summary::Named(name) => (*name).to_owned(),
            Summary::Index(name, index) => {
                let mut out = format!("{name} ");
                push_key(&mut out, &index.spec.key);
                out
            }
            Summary::Several(parts) => {
                let mut texts: Vec<String> = Vec::new();
                for text in parts.iter().map(Summary::text) {
                    if !texts.contains(&text) {
                        texts.push(text);
                    }
                }
                texts.join(", ")
            }
        }
    }
}

fn push_key(out: &mut String, key: &Doc) {
    for (at, (path, value)) in key.iter().enumerate() {
        out.push_str(if at == 0 { "{ " } else { ", " });
        // Writing into a string cannot fail.
        let _ = match value {
            Value::String(kind) => write!(out, "{path}: \"{kind}\""),
            value => match value.as_i64_lossless() {
                Some(n) => write!(out, "{path}: {n}"),
                None => write!(out, "{path}: {}", value.as_f64().unwrap_or(1.0)),
            },
        };
    }
    out.push_str(" }");
}
