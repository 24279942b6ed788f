//! Which options of collections and indexes are lacking, for the page on compatibility.

/// One family of options.
pub struct Options {
    /// Whose options they are.
    pub title: &'static str,
    /// Those that work.
    pub names: &'static [&'static str],
    /// Those that MongoDB has and this server does not: an error names them.
    pub lacking: &'static [&'static str],
}

/// Options of `create` and of `createIndexes`.
pub const OPTIONS: &[Options] = &[
    Options {
        title: "Collection options",
        names: &[
            "collation (simple)",
            "compression",
            "pageSize",
            "readPageSize",
        ],
        lacking: &crate::options::NOT_SUPPORTED,
    },
    Options {
        title: "Index options",
        names: &[
            "collation (simple)",
            "compression",
            "hidden",
            "name",
            "pageSize",
            "partialFilterExpression",
            "readPageSize",
            "sparse",
            "unique",
            "v",
        ],
        lacking: &crate::index::spec::NOT_SUPPORTED,
    },
    Options {
        title: "Index kinds",
        names: &["1 and -1", "compound", "multikey", "over parallel arrays"],
        lacking: &["2d", "2dsphere", "hashed", "text", "wildcard"],
    },
];
