//! The definition of a view, and its form as a document.

use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_error::ErrorCode;

use frond_storage::error::{Error, Result, command};
use frond_storage::namespace::Namespace;
use frond_storage::options::ViewOptions;

/// The collection that holds the views of a database.
pub(crate) const SYSTEM_VIEWS: &str = "system.views";

/// The collection that the profiler writes.
pub(crate) const SYSTEM_PROFILE: &str = "system.profile";

/// A query with a name, which reads like a collection.
#[derive(Clone, Debug)]
pub struct ViewDefinition {
    pub ns: Namespace,
    /// The collection or view that it reads, of the same database.
    pub on: String,
    pub pipeline: ArrayBuf,
    /// The collation of all reads of it.
    pub collation: Option<DocBuf>,
}

/// Error 166.
pub(crate) fn is_a_view(ns: &Namespace) -> Error {
    command(
        ErrorCode::CommandNotSupportedOnView,
        format!("Namespace {ns} is a view, not a collection"),
    )
}

impl ViewDefinition {
    pub(super) fn new(ns: &Namespace, view: &ViewOptions, options: &Doc) -> ViewDefinition {
        ViewDefinition {
            ns: ns.clone(),
            on: view.on.clone(),
            pipeline: view.pipeline.clone(),
            collation: options.get_doc("collation").map(Doc::to_owned),
        }
    }

    /// The options of `create` that make it.
    pub fn options(&self) -> DocBuf {
        let mut options = doc! {"viewOn": &self.on, "pipeline": &self.pipeline};
        if let Some(collation) = &self.collation {
            options.push("collation", collation);
        }
        options
    }

    /// The document in `system.views`.
    pub(super) fn to_doc(&self) -> DocBuf {
        let mut out = doc! {"_id": self.ns.as_str()};
        out.push_all(&self.options());
        out
    }

    /// The key of that document.
    pub(super) fn key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        frond_bson::key::encode(&Value::String(self.ns.as_str()), &mut key);
        key
    }

    pub(super) fn of_doc(stored: &Doc) -> Option<ViewDefinition> {
        let mut pipeline = ArrayBuf::new();
        for stage in stored.get_array("pipeline")?.values() {
            pipeline.push_value(&stage);
        }
        Some(ViewDefinition {
            ns: Namespace::parse(stored.get_str("_id")?).ok()?,
            on: stored.get_str("viewOn")?.to_owned(),
            pipeline,
            collation: stored.get_doc("collation").map(Doc::to_owned),
        })
    }

    /// The collection or view that it reads.
    pub(super) fn source(&self) -> Result<Namespace> {
        Namespace::new(self.ns.db(), &self.on)
    }

    /// All collections and views that it reads, those of its stages too.
    pub(super) fn reads(&self) -> Vec<Namespace> {
        let mut reads = read_by(self.ns.db(), &self.pipeline);
        reads.extend(self.source());
        reads
    }

    pub(super) fn has_collation_of(&self, other: &ViewDefinition) -> bool {
        same_collation(self.collation.as_deref(), other.collation.as_deref())
    }
}

/// The collections and views that the stages of a pipeline over `db` read besides their input.
pub(super) fn read_by(db: &str, pipeline: &Doc) -> Vec<Namespace> {
    let mut names = Vec::new();
    names_in(db, pipeline, &mut names);
    let names = names.into_iter();
    names
        .filter_map(|(db, name)| Namespace::new(db, name).ok())
        .collect()
}

/// The collections that the stages of a pipeline over `db` read besides their input, each with its database.
fn names_in<'a>(db: &'a str, pipeline: &'a Doc, names: &mut Vec<(&'a str, &'a str)>) {
    for (stage, argument) in pipeline
        .values()
        .filter_map(|stage| stage.as_doc()?.first())
    {
        match (stage, argument) {
            ("$unionWith", Value::String(name)) => names.push((db, name)),
            ("$lookup" | "$graphLookup" | "$unionWith", Value::Document(argument)) => {
                let name = argument.get("from").or(argument.get("coll"));
                let (db, name) = match name {
                    Some(Value::String(name)) => (db, Some(name)),
                    Some(Value::Document(spec)) => {
                        (spec.get_str("db").unwrap_or(db), spec.get_str("coll"))
                    }
                    _ => (db, None),
                };
                names.extend(name.map(|name| (db, name)));
                let inner = argument.get_array("pipeline").unwrap_or(Doc::empty());
                names_in(db, inner, names);
            }
            ("$facet", Value::Document(facets)) => facets
                .values()
                .filter_map(|facet| match facet {
                    Value::Array(pipeline) => Some(pipeline),
                    _ => None,
                })
                .for_each(|pipeline| names_in(db, pipeline, names)),
            _ => {}
        }
    }
}

pub(super) fn same_collation(a: Option<&Doc>, b: Option<&Doc>) -> bool {
    let plain =
        |collation: &&Doc| collation.get_str("locale") != Some("simple") && !collation.is_empty();
    match (a.filter(plain), b.filter(plain)) {
        (None, None) => true,
        (Some(a), Some(b)) => frond_bson::compare_docs(a, b).is_eq(),
        _ => false,
    }
}
