//! From the description of a plan to its operators.

use std::sync::Arc;

use frond_query::matcher::{Expr, Filter};
use frond_query::meta::{MetaField, MetaFields};
use frond_query::projection::Projection as Shape;
use frond_query::sort::SortSpec;
use frond_query::spill::Budget;

use super::coll_scan::CollScan;
use super::describe::Part;
use super::distinct_scan::DistinctScan;
use super::eof::Eof;
use super::fetch::Fetch;
use super::id_lookup::IdLookup;
use super::id_scan::IdScan;
use super::index_scan::{Emit, IndexScan};
use super::limit::Limit;
use super::metadata::AddMetadata;
use super::near::NearScan;
use super::operator::Node;
use super::oplog_scan::OplogScan;
use super::projection::{Projection, ReturnKey};
use super::random_scan::RandomScan;
use super::reader::{Loading, Reader};
use super::record_id::RecordId;
use super::skip::Skip;
use super::sort::Sort;
use super::sort_merge::SortMerge;
use super::text_match::TextMatch;
use super::union::Union;
use crate::catalog::Collection;
use crate::plan::merge::{MergeAccess, MergeBranch};
use crate::plan::residual::{Residual, is_said_by_id, part};
use crate::plan::{Access, IndexAccess};

/// The parts of the rows that their consumer uses.
#[derive(Clone, Debug)]
pub struct RowParts {
    /// Their keys and records, as a writer does.
    pub keys: bool,
    /// Their documents. A count does not read them if an index decides the filter.
    pub documents: bool,
    /// The fields of the index that led to them.
    pub index_keys: bool,
    pub meta: MetaFields,
    /// The parts of large documents that are loaded.
    pub loading: Loading,
}

impl RowParts {
    pub fn documents(loading: Loading) -> RowParts {
        RowParts {
            keys: false,
            documents: true,
            index_keys: false,
            meta: MetaFields::default(),
            loading,
        }
    }

    /// Only the number of rows.
    pub fn count() -> RowParts {
        RowParts {
            documents: false,
            ..RowParts::documents(Loading::ForFilter(None))
        }
    }
}

/// The operators above those that find the rows.
#[derive(Default)]
pub struct Output {
    /// The order, if the plan does not give it, and the budget of the sort.
    pub sort: Option<(SortSpec, Budget)>,
    /// Rows to pass over.
    pub skip: u64,
    /// Most rows to return.
    pub limit: Option<u64>,
    pub projection: Option<Shape>,
    /// Whether the fields of their index are returned instead.
    pub return_key: bool,
    /// Whether their record ids are added.
    pub record_id: bool,
}

/// Builds the operators of one query.
pub struct Builder<'a> {
    pub collection: &'a Collection,
    /// The filter of the query.
    pub filter: &'a Arc<Filter>,
    /// The order that was asked for.
    pub sort: &'a SortSpec,
    /// The parts of the rows that are used.
    pub wanted: &'a RowParts,
}

impl Builder<'_> {
    /// The operators of the whole query: those that find the rows, and those of `output` above them.
    pub fn query(&self, access: Access, output: Output) -> Node {
        let covered = match &access {
            Access::Index(access) => access.covered,
            Access::Distinct { .. } => true,
            _ => false,
        };
        let mut rows = self.rows(access);
        let mut projection = output.projection.filter(|_| !output.return_key);
        // A sort applies the limit itself.
        let sorts = output.sort.is_some();
        if let Some((spec, budget)) = output.sort {
            let limit = output.limit.map(|limit| limit.saturating_add(output.skip));
            // Without a limit the sort holds every row, so projected rows need less memory. With a limit most rows
            // are dropped, and need not be projected.
            if limit.is_none()
                && let Some(shape) = projection.take_if(|shape| shows_order(shape, &spec))
            {
                rows = Node::over(Projection::new(shape, covered), vec![rows]);
            }
            let sort = Sort::new(spec, limit, budget, self.wanted.keys);
            rows = Node::over(sort, vec![rows]);
        }
        if output.skip > 0 {
            rows = Node::over(Skip::new(output.skip), vec![rows]);
        }
        if let Some(limit) = output.limit.filter(|_| !sorts) {
            rows = Node::over(Limit::new(limit), vec![rows]);
        }
        if output.return_key {
            rows = Node::over(ReturnKey, vec![rows]);
        } else if let Some(shape) = projection {
            rows = Node::over(Projection::new(shape, covered), vec![rows]);
        }
        if output.record_id {
            rows = Node::over(RecordId, vec![rows]);
        }
        rows
    }

    /// The operators that find the rows.
    pub fn rows(&self, access: Access) -> Node {
        let by_id = reads_id_index(&access);
        let rows = self.access(access);
        let wanted = self.wanted;
        if wanted.meta.is_empty() && !(by_id && wanted.index_keys) {
            return rows;
        }
        let filter = self.filter.clone();
        let shows_id = by_id && self.shows_keys();
        let add = AddMetadata::new(filter, wanted.meta, self.sort, shows_id);
        Node::over(add, vec![rows])
    }

    fn shows_keys(&self) -> bool {
        self.wanted.index_keys || self.wanted.meta.has(MetaField::IndexKey)
    }

    fn reader(&self, test: Option<Arc<Filter>>) -> Reader {
        let loading = if self.wanted.meta.is_empty() {
            self.wanted.loading.clone()
        } else {
            // Which fields metadata needs is not known here.
            Loading::Everything
        };
        Reader::new(self.filter.clone(), test, loading)
    }

    fn fetch(&self, rows: Node, test: Option<Arc<Filter>>, part: Part) -> Node {
        Node::over(Fetch::new(self.reader(test), part), vec![rows])
    }

    fn access(&self, access: Access) -> Node {
        let primary = self.collection.primary;
        let everything = || Some(self.filter.clone());
        match access {
            Access::Eof => Node::leaf(Eof),
            Access::Id(key) => Node::leaf(IdLookup::new(key, self.reader(everything()))),
            Access::CollScan(direction) => {
                let reader = self.reader(everything());
                let scan = CollScan::new(primary, direction, reader);
                Node::leaf(if self.wanted.documents {
                    scan
                } else {
                    scan.counting()
                })
            }
            Access::Random(size) => {
                Node::leaf(RandomScan::new(primary, size, self.reader(everything())))
            }
            Access::Oplog(access) => {
                Node::leaf(OplogScan::new(access, self.filter, self.wanted.documents))
            }
            Access::IdRange {
                ranges,
                direction,
                exact,
            } => {
                let scan = IdScan::new(primary, ranges, direction);
                if exact && !self.wanted.documents {
                    return Node::leaf(scan.counting());
                }
                let collator = self.collection.collator();
                let rest = if exact {
                    None
                } else {
                    part(self.filter, |one| !is_said_by_id(one, collator))
                };
                self.fetch(Node::leaf(scan), rest, Part::BesideId)
            }
            Access::Index(access) => self.index(Arc::new(access)),
            Access::Distinct { scan, position } => {
                let scan = Arc::new(scan);
                let residual = Residual::for_access(self.filter, &scan);
                let reader = self.reader(None);
                Node::leaf(DistinctScan::new(scan, position, residual.on_entry, reader))
            }
            Access::Near(access) => {
                let reader = self.reader(everything());
                let keys = self.wanted.keys;
                Node::leaf(NearScan::new(*access, reader, keys, self.shows_keys()))
            }
            Access::Or(branches) => {
                let branches = branches.into_iter().map(|branch| self.branch(branch));
                let union = Node::over(Union::default(), branches.collect());
                self.fetch(union, everything(), Part::All)
            }
            Access::Merge(access) => self.merge(*access),
        }
    }

    /// A branch of a union: its rows are fetched, and tested by the whole filter, above the union. Ranges of `_id` come with
    /// their records, so they are tested below it: the union remembers only documents that pass.
    fn branch(&self, access: Access) -> Node {
        match access {
            Access::IdRange {
                ranges, direction, ..
            } => {
                let scan = IdScan::new(self.collection.primary, ranges, direction);
                self.fetch(Node::leaf(scan), Some(self.filter.clone()), Part::All)
            }
            Access::Index(access) => {
                let scan = self.scan(Arc::new(access), Emit::Keys(None), Part::Nothing);
                Node::leaf(scan.with_duplicates())
            }
            other => self.access(other),
        }
    }

    fn scan(&self, access: Arc<IndexAccess>, emit: Emit, part: Part) -> IndexScan {
        let scan = IndexScan::new(access, emit, part);
        if self.shows_keys() {
            scan.showing_keys()
        } else {
            scan
        }
    }

    fn index(&self, access: Arc<IndexAccess>) -> Node {
        let spec = &access.index.spec;
        let is_text = spec.method.as_ref().is_some_and(|one| one.text().is_some());
        if let Some(text) = self.filter.text_match().filter(|_| is_text) {
            return self.text(&access, text.clone());
        }
        let residual = Residual::for_access(self.filter, &access);
        if !self.wanted.documents && residual.on_document.is_none() {
            let part = Part::Keys(access.clone());
            let is_bare = residual.on_entry.is_none();
            let scan = self.scan(access, Emit::Keys(residual.on_entry), part);
            return Node::leaf(if is_bare { scan.counting() } else { scan });
        }
        // A writer has to know how the document is stored.
        let is_clustered = spec.clustering && !self.wanted.keys;
        if access.covered || is_clustered {
            let rest = [&residual.on_entry, &residual.on_document];
            let rest: Vec<&Filter> = rest.into_iter().flatten().map(|part| &**part).collect();
            let rest = (!rest.is_empty()).then(|| Arc::new(Filter::all_of(rest)));
            let reader = self.reader(rest);
            let emit = if access.covered {
                Emit::Covered(reader)
            } else {
                Emit::Clustered(reader)
            };
            let part = Part::BesideBounds(access.clone());
            return Node::leaf(self.scan(access, emit, part));
        }
        let on_entry = Part::Keys(access.clone());
        let scan = self.scan(access.clone(), Emit::Keys(residual.on_entry), on_entry);
        let part = Part::Documents(access);
        self.fetch(Node::leaf(scan), residual.on_document, part)
    }

    fn text(&self, access: &Arc<IndexAccess>, text: Arc<frond_query::text::TextMatch>) -> Node {
        let is_text = |one: &Expr| matches!(one, Expr::Text(_));
        let others = part(self.filter, |one| !is_text(one));
        let scan = self.scan(access.clone(), Emit::Keys(None), Part::Nothing);
        let documents = self.fetch(Node::leaf(scan), others, Part::NotText);
        let asked = self.filter.conditions().into_iter();
        let filter = Filter::of_conditions(asked.filter(|one| is_text(one)));
        let matches = TextMatch::new(access.clone(), filter, text);
        Node::over(matches, vec![documents])
    }

    fn merge(&self, access: MergeAccess) -> Node {
        let scan = access.exploded.map(Arc::new);
        let (residual, rest, part) = match &scan {
            Some(scan) => {
                let residual = Residual::for_access(self.filter, scan);
                let rest = residual.on_document.clone();
                (Some(residual), rest, Part::Documents(scan.clone()))
            }
            None => (None, Some(self.filter.clone()), Part::All),
        };
        let on_entry = residual.and_then(|residual| residual.on_entry);
        let branches = access.branches.into_iter();
        let inputs = branches.filter_map(|MergeBranch { access, order }| match access {
            Access::Index(access) => {
                let part = match &scan {
                    Some(scan) => Part::Keys(scan.clone()),
                    None => Part::Nothing,
                };
                let emit = Emit::Keys(on_entry.clone());
                let scan = self.scan(Arc::new(access), emit, part);
                Some(Node::leaf(scan.ordered_by(order)))
            }
            Access::IdRange {
                ranges, direction, ..
            } => {
                let descending = order.first().is_some_and(|part| part.inverted);
                let scan = IdScan::new(self.collection.primary, ranges, direction);
                Some(Node::leaf(scan.ordered(descending)))
            }
            // No other access is in order.
            _ => None,
        });
        let inputs: Vec<Node> = inputs.collect();
        let merge = SortMerge::new(inputs.len(), access.may_repeat);
        self.fetch(Node::over(merge, inputs), rest, part)
    }
}

/// Whether a projection keeps all fields of a sort.
fn shows_order(projection: &Shape, sort: &SortSpec) -> bool {
    let keeps = |path: &str| projection.keeps(path.split('.').next().unwrap_or_default());
    sort.meta().is_empty()
        && !projection.computes()
        && sort.fields().all(|(path, _)| keeps(path.as_str()))
}

/// Whether rows come by the index on `_id`, all or some of them.
fn reads_id_index(access: &Access) -> bool {
    match access {
        Access::Id(_) | Access::IdRange { .. } => true,
        Access::Or(branches) => branches.iter().any(reads_id_index),
        Access::Merge(merge) => {
            let mut branches = merge.branches.iter();
            branches.any(|branch| reads_id_index(&branch.access))
        }
        _ => false,
    }
}
