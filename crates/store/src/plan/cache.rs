//! Keys and values of the plan cache: the hash of a query's shape (its fields, operators and order, without
//! constants), and the hash of a plan.

use frond_query::matcher::{ElemMatch, Expr, Filter, Op, Relation};
use frond_query::sort::SortSpec;
use xxhash_rust::xxh3::Xxh3;

use super::Access;
use frond_storage::keyspace::TreeId;

/// A hash of which index a plan uses, without its bounds.
pub fn identity(access: &Access) -> u64 {
    let mut hasher = Xxh3::new();
    add_access(access, &mut hasher);
    hasher.digest()
}

fn add_access(access: &Access, hasher: &mut Xxh3) {
    match access {
        Access::Eof => hasher.update(b"eof"),
        Access::CollScan(_) | Access::Oplog(_) => hasher.update(b"collscan"),
        // Such a plan is never one of several.
        Access::Random(_) => hasher.update(b"random"),
        Access::Id(_) | Access::IdRange { .. } => hasher.update(b"id"),
        Access::Index(access) => {
            hasher.update(b"index");
            hasher.update(&access.index.tree.0.to_le_bytes());
        }
        // Nor is such a plan.
        Access::Near(access) => {
            hasher.update(b"near");
            hasher.update(&access.scan.index.tree.0.to_le_bytes());
        }
        Access::Or(branches) => {
            hasher.update(b"or");
            for branch in branches {
                add_access(branch, hasher);
            }
        }
        Access::Merge(merge) => {
            hasher.update(b"merge");
            // The number of scans depends on the constants of the query.
            let most = match merge.exploded {
                Some(_) => 1,
                None => usize::MAX,
            };
            for branch in merge.branches.iter().take(most) {
                add_access(&branch.access, hasher);
            }
        }
        Access::Distinct { scan, .. } => {
            hasher.update(b"distinct");
            hasher.update(&scan.index.tree.0.to_le_bytes());
        }
    }
}

/// A hash of a query without its constants.
pub fn shape(filter: &Filter, sort: &SortSpec) -> u64 {
    let mut hasher = Xxh3::new();
    if let Some(collation) = sort.collator().spec() {
        hasher.update(collation.as_bytes());
    }
    add_expr(filter.predicates(), &mut hasher);
    for (path, direction) in sort.fields() {
        hasher.update(path.as_str().as_bytes());
        hasher.update(match direction {
            frond_bson::key::Direction::Ascending => b"\0+",
            frond_bson::key::Direction::Descending => b"\0-",
        });
    }
    hasher.digest()
}

/// A hash of the shape of a query and of the fields that it returns, if these are not all.
pub fn shape_with_fields<'a>(shape: u64, fields: impl Iterator<Item = &'a String>) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&shape.to_le_bytes());
    for field in fields {
        hasher.update(field.as_bytes());
        hasher.update(b"\0");
    }
    hasher.digest()
}

/// A hash of the shape of a query and of the indexes that it may use.
pub fn shape_with_indexes(shape: u64, trees: impl Iterator<Item = TreeId>) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&shape.to_le_bytes());
    for tree in trees {
        hasher.update(&tree.0.to_le_bytes());
    }
    hasher.digest()
}

fn add_expr(expr: &Expr, hasher: &mut Xxh3) {
    let add_all = |name: &[u8], children: &[Expr], hasher: &mut Xxh3| {
        hasher.update(name);
        hasher.update(&children.len().to_le_bytes());
        for child in children {
            add_expr(child, hasher);
        }
    };
    match expr {
        Expr::And(children) => add_all(b"&", children, hasher),
        Expr::Or(children) => add_all(b"|", children, hasher),
        Expr::Nor(children) => add_all(b"~", children, hasher),
        Expr::Not(child) => {
            hasher.update(b"!");
            add_expr(child, hasher);
        }
        Expr::Computed(_) => hasher.update(b"$"),
        Expr::Schema(_) => hasher.update(b"s"),
        Expr::Text(_) => hasher.update(b"t"),
        Expr::Sample(_) => hasher.update(b"r"),
        Expr::False => hasher.update(b"f"),
        Expr::Leaf(leaf) => {
            hasher.update(leaf.path.as_str().as_bytes());
            hasher.update(b"\0");
            add_op(&leaf.op, hasher);
        }
    }
}

fn add_op(op: &Op, hasher: &mut Xxh3) {
    let name: &[u8] = match op {
        Op::Compare(comparison) => match comparison.relation() {
            Relation::Eq => b"eq",
            Relation::Lt => b"lt",
            Relation::Lte => b"lte",
            Relation::Gt => b"gt",
            Relation::Gte => b"gte",
        },
        Op::In(_) => b"in",
        Op::Exists => b"exists",
        Op::Type(_) => b"type",
        Op::Size(_) => b"size",
        Op::Mod(_) => b"mod",
        Op::Regex(_) => b"regex",
        Op::Bits(_) => b"bits",
        Op::Geo(_) => b"geo",
        Op::Near(_) => b"near",
        Op::ElemMatch(condition) => {
            hasher.update(b"elem");
            match &**condition {
                ElemMatch::Document(inner) | ElemMatch::Value(inner) => add_expr(inner, hasher),
            }
            b""
        }
    };
    hasher.update(name);
}
