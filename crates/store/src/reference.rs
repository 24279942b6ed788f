//! Which options of collections and indexes are unsupported, for the page on compatibility.

use frond_storage::index::kinds::KINDS;

/// One family of options.
pub struct Options {
    /// The command or stage that has them.
    pub title: &'static str,
    pub names: Vec<&'static str>,
    /// Those that MongoDB has and this server does not: an error names them.
    pub unsupported: Vec<&'static str>,
}

/// Options of `create`, options and kinds of `createIndexes`.
pub fn options() -> Vec<Options> {
    let (there, unsupported): (Vec<_>, Vec<_>) =
        KINDS.iter().partition(|kind| kind.parse.is_some());
    let mut of_indexes = vec![
        "clustering",
        "collation",
        "compression",
        "expireAfterSeconds",
        "hidden",
        "name",
        "pageSize",
        "partialFilterExpression",
        "prepareUnique",
        "readPageSize",
        "sparse",
        "unique",
        "v",
    ];
    of_indexes.extend(there.iter().flat_map(|kind| kind.options));
    of_indexes.sort_unstable();
    let mut kinds = vec!["1", "-1", "compound", "multikey (over parallel arrays too)"];
    kinds.extend(there.iter().skip(1).map(|kind| kind.name));
    vec![
        Options {
            title: "Collection options",
            names: frond_storage::options::SUPPORTED.to_vec(),
            unsupported: frond_storage::options::NOT_SUPPORTED.to_vec(),
        },
        Options {
            title: "Index options",
            names: of_indexes,
            unsupported: frond_storage::index::parse::not_supported(),
        },
        Options {
            title: "Index kinds",
            names: kinds,
            unsupported: unsupported.iter().map(|kind| kind.name).collect(),
        },
    ]
}
