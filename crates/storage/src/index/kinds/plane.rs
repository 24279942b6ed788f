//! `2d` indexes: the first field holds the cells of legacy pairs in a square grid, as numbers that keep
//! neighbouring cells together. The other fields are ordinary.
//!
//! A document without a pair is left out.

use std::sync::Arc;

use frond_bson::{Doc, DocBuf, Value, key};
use frond_error::{Error, ErrorCode, Result};
use frond_query::geo::grid::{Grid, query_spans};
use frond_query::geo::{Near, flat_keys};
use frond_query::paths::Path;

use super::geo::{conditions_on, number_option, route, values_at};
use super::near::{GeoCells, GeoField, plane_intervals, signed};
use super::{Kind, Parsed, Request, check_path, ordinary_field};
use crate::index::field::{Holds, IndexField};
use crate::index::route::Route;
use crate::index::slots::{Part, Slots};
use crate::index::spec::{IndexMethod, PlanRequest};

const OPTIONS: &[&str] = &["bits", "min", "max"];

/// The line in [`super::KINDS`].
pub(super) const KIND: Kind = Kind {
    name: "2d",
    options: OPTIONS,
    own_only: &[],
    parse: Some(parse),
};

fn parse(request: &Request<'_>) -> Result<Parsed> {
    let mut fields = Vec::new();
    let mut own = None;
    for (path, direction) in request.key.iter() {
        if !matches!(direction, Value::String(_)) {
            fields.push(ordinary_field(path, direction)?);
            continue;
        }
        check_path(path)?;
        if own.is_some() {
            return Err(Error::location(16800, "can't have 2 geo fields"));
        }
        if !fields.is_empty() {
            return Err(Error::location(16801, "2d has to be first in index"));
        }
        fields.push(IndexField {
            path: path.to_owned(),
            direction: key::Direction::Ascending,
            holds: Holds::Computed(0),
        });
        own = Some(Path::new(path));
    }
    let path = own.ok_or_else(|| Error::location(16802, "no geo field specified"))?;
    let mut options = DocBuf::new();
    for name in OPTIONS {
        if let Some(value) = request.spec.get(name) {
            options.push(name, value);
        }
    }
    Ok(Parsed {
        fields,
        key: None,
        options,
        method: Some(Arc::new(Plane {
            path,
            grid: grid(request.spec)?,
        })),
    })
}

fn grid(spec: &Doc) -> Result<Grid> {
    let default = Grid::default();
    let bits = number_option(spec, "bits")?.map_or(i64::from(default.bits), |bits| bits as i64);
    let invalid = |message: String| Error::new(ErrorCode::InvalidOptions, message);
    let bits = u32::try_from(bits)
        .ok()
        .filter(|bits| (1..=32).contains(bits))
        .ok_or_else(|| {
            invalid(format!(
                "bits for hash must be > 0 and <= 32, but {bits} bits were specified"
            ))
        })?;
    let min = number_option(spec, "min")?.unwrap_or(default.min);
    let max = number_option(spec, "max")?.unwrap_or(default.max);
    // Also false for NaN.
    if !(min < max && min.is_finite() && max.is_finite()) {
        return Err(invalid(format!(
            "region for hash must be valid and have positive area, but [{min}, {max}] was specified"
        )));
    }
    Ok(Grid { min, max, bits })
}

/// The geospatial field of an index.
#[derive(Debug)]
struct Plane {
    path: Path,
    grid: Grid,
}

impl IndexMethod for Plane {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn parts<'a>(&self, doc: &'a Doc, out: &mut Slots<'a>) -> Result<()> {
        let mut keys = Vec::new();
        for value in values_at(doc, &self.path) {
            keys.extend(flat_keys(&value, &self.grid)?);
        }
        keys.sort_unstable();
        keys.dedup();
        if keys.len() > 1 {
            out.set_multikey(0);
        }
        for key in keys {
            out.push(0, [Part::Value(Value::Int64(signed(key)))]);
        }
        Ok(())
    }

    fn is_affected(&self, touches: &dyn Fn(&str) -> bool) -> bool {
        touches(self.path.as_str())
    }

    fn routes(&self, request: &PlanRequest<'_>) -> Vec<Route> {
        let mut queries = conditions_on(request.filter, &self.path);
        let spans = queries.find_map(|query| query_spans(query, &self.grid));
        let fields = spans.map(|spans| (0, plane_intervals(&spans)));
        route(request, fields.into_iter().collect())
    }

    fn near(&self, path: &Path, near: &Near) -> Option<GeoField> {
        (self.path == *path && near.fits_2d()).then_some(GeoField {
            position: 0,
            cells: GeoCells::Plane(self.grid),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::index::keys::IndexKeys;
    use crate::index::spec::IndexSpec;
    use frond_bson::doc;

    #[test]
    fn pairs_have_entries() {
        let spec = IndexSpec::parse(&doc! {"key": {"g": "2d", "a": 1}, "max": 500}).unwrap();
        let count = |doc: &Doc| {
            let mut keys = IndexKeys::default();
            keys.generate(&spec, doc, 5).map(|()| keys.len())
        };
        for (doc, expected) in [
            (doc! {"g": [1, 2]}, Ok(1)),
            (doc! {"g": [499, 499], "a": [1, 2]}, Ok(2)),
            (doc! {"g": [[1, 2], [100, 100]]}, Ok(2)),
            (doc! {"g": "x"}, Ok(0)),
            (doc! {"a": 1}, Ok(0)),
            (doc! {"g": [501, 0]}, Err(13027)),
            (doc! {"g": [-181, 0]}, Err(13027)),
        ] {
            let found = count(&doc).map_err(|error| error.code().code());
            assert_eq!(found, expected, "{doc:?}");
        }
    }

    #[test]
    fn options_are_checked() {
        for (spec, code) in [
            (doc! {"key": {"a": 1, "g": "2d"}}, 16801),
            (doc! {"key": {"g": "2d", "h": "2d"}}, 16800),
            (doc! {"key": {"g": "2d"}, "bits": 0}, 72),
            (doc! {"key": {"g": "2d"}, "bits": 33}, 72),
            (doc! {"key": {"g": "2d"}, "bits": "x"}, 14),
            (doc! {"key": {"g": "2d"}, "min": 10, "max": 10}, 72),
        ] {
            let error = IndexSpec::parse(&spec).unwrap_err();
            assert_eq!(error.code().code(), code, "{spec:?}: {error}");
        }
    }
}
