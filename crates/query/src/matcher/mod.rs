//! Query filters: `{age: {$gte: 21}, tags: "new"}`.
//!
//! [`Filter::parse`] turns a filter document into an [`Expr`] tree once; [`Filter::matches`] then
//! tests raw documents without allocating. A planner reads the tree to find index bounds.
//!
//! Every operator lives in one file of `operators/` and has one line in the table there.

mod canonical;
mod eval;
mod failure;
mod matched_element;
pub(crate) mod operators;
mod parse;
mod schema;
mod state;

pub use crate::pattern::{Pattern, Prefix};
pub use canonical::{canonical, canonical_conditions, together};
pub use failure::explain_failure;
pub use matched_element::MatchedElement;
pub use operators::array::ElemMatch;
pub use operators::bits::{BitTest, BitTestKind};
pub use operators::comparison::{Comparison, Relation};
pub use operators::expr::Computed;
pub use operators::membership::InSet;
pub use operators::modulo::Modulo;
pub use operators::sample_rate::SampleRate;
pub use operators::type_set::TypeSet;
pub use schema::Schema;

use std::sync::Arc;

use frond_bson::{Collator, Doc, Value};

use crate::bounds;
use crate::environment::Environment;
use crate::geo::{GeoQuery, Near};
use crate::paths::{LeafArrays, Path};
use crate::required_fields::RequiredFields;
use crate::text::{TextMatch, TextQuery, TextSpec};
use frond_error::{Error, Result};
use parse::Context;
use state::State;

/// A condition on a document, as a tree.
#[derive(Clone, Debug)]
pub enum Expr {
    /// All hold; true if empty.
    And(Vec<Expr>),
    /// At least one holds.
    Or(Vec<Expr>),
    Nor(Vec<Expr>),
    /// The condition does not hold: `$not`, `$ne`, `$nin`, `$exists: false`.
    Not(Box<Expr>),
    /// A condition on the values of a path. It holds if it holds for any of them.
    Leaf(Leaf),
    /// `$expr`.
    Computed(Computed),
    /// `$jsonSchema`.
    Schema(Arc<Schema>),
    /// `$text`.
    Text(Text),
    /// `$sampleRate`.
    Sample(SampleRate),
    /// Never holds: `$alwaysFalse`, `$all: []`.
    False,
}

/// A `$text`.
#[derive(Clone, Debug)]
pub enum Text {
    /// Not bound to a text index yet.
    Unbound(TextQuery),
    /// Bound to the specification of a text index.
    Bound(Arc<TextMatch>),
}

/// A condition on the values that a path leads to.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The path. In the value form of `$elemMatch` it is empty: the condition is on the element.
    pub path: Path,
    pub op: Op,
}

/// A condition on one value.
#[derive(Clone, Debug)]
pub enum Op {
    /// `$eq`, `$lt`, `$lte`, `$gt`, `$gte` and implicit equality.
    Compare(Comparison),
    /// `$in`.
    In(InSet),
    /// `$exists: true`.
    Exists,
    /// `$type`.
    Type(TypeSet),
    /// `$size`.
    Size(u32),
    /// `$mod`.
    Mod(Modulo),
    /// `$regex` and implicit regular expressions.
    Regex(Box<Pattern>),
    /// `$bitsAllSet` and its three siblings.
    Bits(BitTest),
    /// `$elemMatch`.
    ElemMatch(Box<ElemMatch>),
    /// `$geoWithin` and `$geoIntersects`.
    Geo(Arc<GeoQuery>),
    /// `$near` and `$nearSphere`. Holds for every value: the order and the limits of distance are the
    /// plan's.
    Near(Arc<Near>),
}

impl Expr {
    /// Calls `found` with every path of the conditions; the empty path is the whole document.
    pub(crate) fn paths(&self, found: &mut dyn FnMut(&str)) {
        match self {
            Expr::And(all) | Expr::Or(all) | Expr::Nor(all) => {
                all.iter().for_each(|condition| condition.paths(found));
            }
            Expr::Not(inner) => inner.paths(found),
            Expr::Leaf(leaf) => found(leaf.path.as_str()),
            Expr::Computed(computed) => computed.expression().fields(|path| found(&path)),
            Expr::Schema(_) | Expr::Text(_) => found(""),
            Expr::False | Expr::Sample(_) => {}
        }
    }
}

impl Op {
    /// Whether the condition looks at the elements of an array, or only at the array as a whole.
    pub fn leaf_arrays(&self) -> LeafArrays {
        match self {
            Op::Size(_) | Op::ElemMatch(_) => LeafArrays::Whole,
            _ => LeafArrays::Expand,
        }
    }

    /// Whether the condition holds for a single value; `None` is a missing field. Elements of an array are not looked at.
    pub fn holds_for(&self, value: Option<Value<'_>>) -> bool {
        // An interruption here would give a wrong plan instead of an error.
        bounds::uninterrupted(|| self.matches(value, &mut State::default()))
    }

    /// Whether the condition holds for this value, `None` being a missing field.
    fn matches(&self, value: Option<Value<'_>>, state: &mut State) -> bool {
        match self {
            Op::Compare(comparison) => comparison.matches(value),
            Op::In(set) => set.matches(value, state),
            Op::Exists => value.is_some(),
            Op::Type(types) => value.is_some_and(|value| types.contains(&value)),
            Op::Size(size) => operators::array::has_size(value, *size),
            Op::Mod(modulo) => modulo.matches(value),
            Op::Regex(pattern) => operators::regex::matches(pattern, value, state),
            Op::Bits(test) => test.matches(value),
            Op::ElemMatch(condition) => condition.matches(value, state),
            Op::Geo(query) => {
                // An area may have many edges, and so may the value.
                const AREA_UNITS: usize = 64;
                let units = value.map_or(0, |value| AREA_UNITS + value.len_bytes() / 16);
                state.goes_on(units) && value.is_some_and(|value| query.matches(&value))
            }
            Op::Near(_) => true,
        }
    }
}

/// A parsed query filter.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Expr,
}

impl Filter {
    /// Parses a filter document where `$expr` is not allowed (code 224).
    ///
    /// Fails with the codes and messages of MongoDB: mostly 2 (`BadValue`) for an unknown operator or
    /// a wrong argument, 9 (`FailedToParse`), 14 (`TypeMismatch`), 15 (`Overflow`) for a filter that
    /// nests too deep, and 238 (`NotImplemented`) for an operator that this server lacks.
    pub fn parse(filter: &Doc) -> Result<Filter> {
        Filter::parse_collated(filter, Collator::BINARY)
    }

    /// As [`Filter::parse`], with conditions that compare strings by `collator`.
    pub fn parse_collated(filter: &Doc, collator: &Collator) -> Result<Filter> {
        let root = bounds::parsing(|| {
            operators::parse_document(filter, Context::without_expressions(collator))
        })?;
        operators::text::check(&root)?;
        operators::geo::check_no_near(&root)?;
        Ok(Filter { root })
    }

    /// Parses the filter document of a query, which may hold `$expr`. Fails as [`Filter::parse`], and
    /// with the codes of a wrong expression. It may also ask for what is near a point, once.
    pub fn parse_with(filter: &Doc, environment: &Environment<'_>) -> Result<Filter> {
        let root =
            bounds::parsing(|| operators::parse_document(filter, Context::top(environment)))?;
        operators::text::check(&root)?;
        operators::geo::check_query(&root)?;
        let filter = Filter { root };
        if filter.text().is_some() && filter.near().is_some() {
            return Err(Error::bad_value(
                "text and geoNear not allowed in same query",
            ));
        }
        Ok(filter)
    }

    /// Parses a filter inside of a pipeline, which cannot ask for what is near a point (5626500).
    /// Otherwise as [`Filter::parse_with`].
    pub fn parse_in_pipeline(filter: &Doc, environment: &Environment<'_>) -> Result<Filter> {
        let root = operators::parse_document(filter, Context::in_pipeline(environment))?;
        operators::geo::check_no_near(&root)?;
        Ok(Filter { root })
    }

    /// Parses the filter of a command that lists something. It may hold `$expr`, but neither `$where` nor what needs an
    /// index. Fails as [`Filter::parse_in_pipeline`], and with 2 (`BadValue`) for `$text`.
    pub fn parse_for_list(filter: &Doc, environment: &Environment<'_>) -> Result<Filter> {
        let filter = Filter::parse_in_pipeline(filter, environment)?;
        operators::text::check(&filter.root)?;
        match filter.text() {
            Some(_) => Err(Error::bad_value("$text is not allowed in this context")),
            None => Ok(filter),
        }
    }

    /// The filter with the `$near` of a query.
    pub fn of_near(path: &str, near: Near) -> Filter {
        Filter {
            root: Expr::Leaf(Leaf {
                path: Path::new(path),
                op: Op::Near(Arc::new(near)),
            }),
        }
    }

    /// The `$near` of the filter, and the path of the geometry.
    pub fn near(&self) -> Option<(&Path, &Arc<Near>)> {
        match operators::geo::near_of(&self.root)? {
            Leaf {
                path,
                op: Op::Near(near),
            } => Some((path, near)),
            _ => None,
        }
    }

    /// The filter without conditions.
    pub fn all() -> Filter {
        Filter {
            root: Expr::And(Vec::new()),
        }
    }

    /// The conjunction of `filters`.
    pub fn all_of<'a>(filters: impl IntoIterator<Item = &'a Filter>) -> Filter {
        let roots = filters.into_iter().map(|filter| filter.root.clone());
        Filter {
            root: parse::all_of(roots.collect()),
        }
    }

    /// The conditions that all have to hold.
    pub fn conditions(&self) -> Vec<&Expr> {
        fn collect<'e>(expr: &'e Expr, found: &mut Vec<&'e Expr>) {
            match expr {
                Expr::And(children) => children.iter().for_each(|one| collect(one, found)),
                one => found.push(one),
            }
        }
        let mut found = Vec::new();
        collect(&self.root, &mut found);
        found
    }

    /// The filter of these conditions, which all have to hold.
    pub fn of_conditions<'e>(conditions: impl IntoIterator<Item = &'e Expr>) -> Filter {
        Filter {
            root: parse::all_of(conditions.into_iter().cloned().collect()),
        }
    }

    /// Whether the filter has no conditions.
    pub fn is_empty(&self) -> bool {
        matches!(&self.root, Expr::And(children) if children.is_empty())
    }

    /// The parts of a document that decide whether it passes.
    pub fn required_fields(&self) -> RequiredFields {
        let mut required = RequiredFields::none();
        self.root.paths(&mut |path| required.add(path));
        required
    }

    /// The conditions, for the planner and for deriving an upserted document.
    pub fn predicates(&self) -> &Expr {
        &self.root
    }

    /// The `$text` of the filter, if it has one.
    pub fn text(&self) -> Option<&Text> {
        fn find(expr: &Expr) -> Option<&Text> {
            match expr {
                Expr::Text(text) => Some(text),
                Expr::And(children) | Expr::Or(children) => children.iter().find_map(find),
                _ => None,
            }
        }
        find(&self.root)
    }

    /// The `$text` of the filter, after the index is known.
    pub fn text_match(&self) -> Option<&Arc<TextMatch>> {
        match self.text() {
            Some(Text::Bound(bound)) => Some(bound),
            _ => None,
        }
    }

    /// The filter with its `$text` bound to a text index.
    pub fn with_text_index(&self, spec: &Arc<TextSpec>) -> Filter {
        fn bind(expr: &Expr, spec: &Arc<TextSpec>) -> Expr {
            let all = |children: &[Expr]| children.iter().map(|child| bind(child, spec)).collect();
            match expr {
                Expr::Text(Text::Unbound(query)) => {
                    Expr::Text(Text::Bound(Arc::new(query.bind(spec.clone()))))
                }
                Expr::And(children) => Expr::And(all(children)),
                Expr::Or(children) => Expr::Or(all(children)),
                other => other.clone(),
            }
        }
        Filter {
            root: bind(&self.root, spec),
        }
    }

    /// Whether `doc` passes. A condition that cannot be evaluated counts as not passed;
    /// [`Filter::try_matches`] returns its error.
    pub fn matches(&self, doc: &Doc) -> bool {
        let mut state = State::default();
        eval::matches_document(&self.root, doc, &mut state) && state.error.is_none()
    }

    /// Whether `doc` passes, or why that is unknown: a regular expression that needs too many
    /// steps (code 5073414), or an expression that fails for this document.
    pub fn try_matches(&self, doc: &Doc) -> Result<bool> {
        let mut state = State::default();
        let matched = eval::matches_document(&self.root, doc, &mut state);
        match state.error.take() {
            Some(error) => Err(*error),
            None => Ok(matched),
        }
    }

    /// Finds in documents that pass the array element that the positional operator `$` stands for.
    pub fn matched_element(&self) -> MatchedElement {
        MatchedElement::from_filter(&self.root)
    }

    /// The value that `path` must equal in every document that passes, if the filter says so at its
    /// top level: `{_id: 5}`, `{$and: [{_id: {$eq: 5}}, …]}`.
    pub fn equality(&self, path: &str) -> Option<Value<'_>> {
        fn find<'e>(expr: &'e Expr, path: &str) -> Option<Value<'e>> {
            match expr {
                Expr::And(children) => children.iter().find_map(|child| find(child, path)),
                Expr::Leaf(Leaf {
                    path: at,
                    op: Op::Compare(comparison),
                }) if comparison.relation() == Relation::Eq && at.as_str() == path => {
                    Some(comparison.value())
                }
                _ => None,
            }
        }
        find(&self.root, path)
    }
}

impl TryFrom<&Doc> for Filter {
    type Error = Error;

    fn try_from(filter: &Doc) -> Result<Filter> {
        Filter::parse(filter)
    }
}

#[cfg(test)]
mod tests;
