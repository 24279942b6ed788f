//! Tables of cases, and coverings against the predicates they serve.

#![allow(clippy::unwrap_used)]

mod coverings;
mod parsing;
mod predicates;

use frond_bson::DocBuf;

use crate::testing::json;

/// A geometry in the notation of the `mongo` shell, with its GeoJSON type in front: `Point [1, 2]`.
pub(super) fn geo(text: &str) -> DocBuf {
    match text.split_once(' ') {
        Some(("GeometryCollection", inner)) => json(&format!(
            "{{type: \"GeometryCollection\", geometries: {inner}}}"
        )),
        Some((kind, coordinates)) => {
            json(&format!("{{type: \"{kind}\", coordinates: {coordinates}}}"))
        }
        None => panic!("{text}"),
    }
}
