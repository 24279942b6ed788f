//! Limits of the stages of queries.

use frond_store::QueryLimit;

use crate::parameters::kind::Kind;
use crate::parameters::parameter::Parameter;
use crate::parameters::runtime::{Setter, owned};

/// A limit of one stage of one query.
macro_rules! limit {
    ($name:literal, $limit:expr, $doc:literal) => {
        Parameter {
            name: $name,
            kind: Kind::Integer(1, i64::MAX),
            doc: $doc,
            get: Some(|server| owned(server.store.queries().limit($limit) as i64)),
            set: Some(Setter::Integer(|server, limit| {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                server.store.queries().set_limit($limit, limit);
            })),
            ..Parameter::EMPTY
        }
    };
}

pub static QUERY: &[Parameter] = &[
    Parameter {
        name: "allowDiskUseByDefault",
        kind: Kind::Switch(true),
        doc: "Let stages that exceed their memory write to temporary files, unless allowDiskUse says otherwise",
        get: Some(|server| owned(server.store.queries().disk_use_by_default())),
        set: Some(Setter::Switch(|server, on| {
            server.store.queries().set_disk_use_by_default(on);
        })),
        ..Parameter::EMPTY
    },
    limit!(
        "internalDocumentSourceBucketAutoMaxMemoryBytes",
        QueryLimit::BucketAuto,
        "Bytes of memory of a $bucketAuto"
    ),
    limit!(
        "internalDocumentSourceGraphLookupMaxMemoryBytes",
        QueryLimit::GraphLookup,
        "Bytes of memory of a $graphLookup"
    ),
    limit!(
        "internalDocumentSourceGroupMaxMemoryBytes",
        QueryLimit::Group,
        "Bytes of memory of a $group"
    ),
    limit!(
        "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
        QueryLimit::SetWindowFields,
        "Bytes of memory of a $setWindowFields"
    ),
    limit!(
        "internalQueryFacetBufferSizeBytes",
        QueryLimit::Facet,
        "Bytes of memory of a $facet"
    ),
    limit!(
        "internalQueryMaxAllowedDensifyDocs",
        QueryLimit::DensifyDocuments,
        "Documents that a $densify may generate"
    ),
    limit!(
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        QueryLimit::Sort,
        "Bytes of memory of a sort without an index"
    ),
];
