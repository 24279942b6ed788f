//! `2dsphere` indexes: some fields hold cells of the sphere that cover the geometries at their paths.
//!
//! A document without any of the geospatial fields is left out; one that lacks some of them has null there.

use std::sync::Arc;

use frond_bson::{Doc, DocBuf, Value, key};
use frond_error::{Error, Result};
use frond_query::geo::cells::{LEVEL_MAX, Levels, query_spans};
use frond_query::geo::{Near, cannot_extract, is_nothing, sphere_keys};
use frond_query::paths::Path;

use super::geo::{conditions_on, number_option, route, values_at};
use super::near::{GeoCells, GeoField, sphere_intervals};
use super::{Kind, Parsed, Request, check_path, ordinary_field, refuse};
use crate::index::field::{Holds, IndexField};
use crate::index::route::Route;
use crate::index::slots::{Part, Slots};
use crate::index::spec::{IndexMethod, PlanRequest};

const VERSION: &str = "2dsphereIndexVersion";
const COARSEST: &str = "coarsestIndexedLevel";
const FINEST: &str = "finestIndexedLevel";

/// The line in [`super::KINDS`].
pub(super) const KIND: Kind = Kind {
    name: "2dsphere",
    options: &[VERSION, COARSEST, FINEST],
    own_only: &[],
    parse: Some(parse),
};

const LATEST_VERSION: i64 = 3;

fn parse(request: &Request<'_>) -> Result<Parsed> {
    let mut fields = Vec::new();
    let mut geo = Vec::new();
    for (position, (path, direction)) in request.key.iter().enumerate() {
        if !matches!(direction, Value::String(_)) {
            fields.push(ordinary_field(path, direction)?);
            continue;
        }
        check_path(path)?;
        fields.push(IndexField {
            path: path.to_owned(),
            direction: key::Direction::Ascending,
            holds: Holds::Computed(geo.len()),
        });
        geo.push((position, Path::new(path)));
    }
    let level = |name: &str, default: u8| -> Result<i64> {
        let number = number_option(request.spec, name)?;
        Ok(number.map_or(i64::from(default), |number| number as i64))
    };
    let levels = Levels::default();
    let (coarsest, finest) = (
        level(COARSEST, levels.coarsest)?,
        level(FINEST, levels.finest)?,
    );
    if coarsest < 0 {
        return Err(Error::location(16747, "coarsestIndexedLevel must be >= 0"));
    }
    if finest > i64::from(LEVEL_MAX) {
        return Err(Error::location(16748, "finestIndexedLevel must be <= 30"));
    }
    if finest < coarsest {
        return Err(Error::location(
            16749,
            "finestIndexedLevel must be >= coarsestIndexedLevel",
        ));
    }
    let version = number_option(request.spec, VERSION)?;
    let version = version.map_or(LATEST_VERSION, |number| number as i64);
    if !(1..=LATEST_VERSION).contains(&version) {
        return Err(refuse(format!(
            "unsupported geo index version {{ 2dsphereIndexVersion : {version} }}, only support \
             versions: [1,2,3]"
        )));
    }
    let mut options = DocBuf::new();
    for name in [FINEST, COARSEST] {
        if let Some(value) = request.spec.get(name) {
            options.push(name, value);
        }
    }
    match request.spec.get(VERSION) {
        Some(value) => options.push(VERSION, value),
        None => options.push(VERSION, LATEST_VERSION as i32),
    }
    let level = |number: i64| u8::try_from(number).unwrap_or(LEVEL_MAX);
    Ok(Parsed {
        fields,
        key: None,
        options,
        method: Some(Arc::new(Sphere {
            fields: geo,
            levels: Levels {
                coarsest: level(coarsest),
                finest: level(finest),
            },
            keeps_all: version < 2,
        })),
    })
}

/// The geospatial fields of an index.
#[derive(Debug)]
struct Sphere {
    /// Their positions among the parts, and their paths.
    fields: Vec<(usize, Path)>,
    levels: Levels,
    /// Whether documents without geometries have entries, too: version 1.
    keeps_all: bool,
}

impl Sphere {
    /// The keys of the geometries at a path.
    fn keys(&self, doc: &Doc, path: &Path) -> Result<Vec<i64>> {
        let values = values_at(doc, path);
        if let [value] = values.as_slice()
            && is_nothing(value)
        {
            return Ok(Vec::new());
        }
        let mut keys = Vec::new();
        for value in &values {
            let found = sphere_keys(value, self.levels);
            keys.extend(found.map_err(|reason| cannot_extract(doc, &reason))?);
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

impl IndexMethod for Sphere {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn parts<'a>(&self, doc: &'a Doc, out: &mut Slots<'a>) -> Result<()> {
        let keys = self.fields.iter().map(|(_, path)| self.keys(doc, path));
        let keys: Vec<Vec<i64>> = keys.collect::<Result<_>>()?;
        if !self.keeps_all && keys.iter().all(Vec::is_empty) {
            return Ok(());
        }
        for (slot, (keys, (position, _))) in keys.iter().zip(&self.fields).enumerate() {
            if keys.is_empty() {
                out.push_missing(slot, [Part::Value(Value::Null)]);
            }
            if keys.len() > 1 {
                out.set_multikey(*position);
            }
            for key in keys {
                out.push(slot, [Part::Value(Value::Int64(*key))]);
            }
        }
        Ok(())
    }

    fn is_affected(&self, touches: &dyn Fn(&str) -> bool) -> bool {
        self.fields.iter().any(|(_, path)| touches(path.as_str()))
    }

    fn routes(&self, request: &PlanRequest<'_>) -> Vec<Route> {
        let fields = self.fields.iter().filter_map(|(position, path)| {
            let mut queries = conditions_on(request.filter, path);
            let spans = queries.find_map(|query| query_spans(query, self.levels))?;
            Some((*position, sphere_intervals(&spans)))
        });
        route(request, fields.collect())
    }

    fn near(&self, path: &Path, near: &Near) -> Option<GeoField> {
        let (position, _) = self.fields.iter().find(|(_, own)| own == path)?;
        near.is_spherical().then_some(GeoField {
            position: *position,
            cells: GeoCells::Sphere(self.levels),
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

    fn count(spec: &IndexSpec, doc: &Doc) -> Result<usize> {
        let mut keys = IndexKeys::default();
        keys.generate(spec, doc, 5)?;
        Ok(keys.len())
    }

    #[test]
    fn documents_with_a_geometry_have_entries() {
        let spec = IndexSpec::parse(&doc! {"key": {"g": "2dsphere", "a": 1, "h": "2dsphere"}});
        let spec = spec.unwrap();
        let empty = DocBuf::new();
        let nothing = frond_bson::ArrayBuf::new();
        let line = doc! {"type": "LineString", "coordinates": [[1, 1], [20, 20]]};
        for (doc, expected) in [
            (doc! {"g": [1, 2]}, 1),
            (doc! {"h": {"type": "Point", "coordinates": [1, 2]}}, 1),
            (doc! {"a": 1}, 0),
            (doc! {"g": null, "h": &empty}, 0),
            (doc! {"g": &nothing}, 0),
            (doc! {"g": [1, 2], "a": [1, 2, 3]}, 3),
        ] {
            assert_eq!(count(&spec, &doc), Ok(expected), "{doc:?}");
        }
        assert!(count(&spec, &doc! {"g": &line}).unwrap() > 1);
        for doc in [
            doc! {"g": "x"},
            doc! {"g": [200, 0]},
            doc! {"g": [[1, 2], [3, 4]]},
            doc! {"g": [1, 2], "h": {"type": "x"}},
        ] {
            let error = count(&spec, &doc).unwrap_err();
            assert_eq!(error.code().code(), 16755);
            assert!(
                error.message().starts_with("Can't extract geo keys: {"),
                "{error}"
            );
        }
        let paths = IndexSpec::parse(&doc! {"key": {"a.g": "2dsphere"}}).unwrap();
        let several = doc! {"a": [{"g": [1, 2]}, {"g": [50, 2]}]};
        assert_eq!(count(&paths, &several), Ok(2));
    }

    #[test]
    fn options_are_checked_and_filled_in() {
        let shown = IndexSpec::parse(&doc! {"key": {"g": "2dsphere"}}).unwrap();
        assert_eq!(shown.doc.get_i32(VERSION), Some(3));
        for (option, value, code) in [
            (VERSION, Value::Int32(4), 67),
            (VERSION, Value::String("x"), 14),
            (FINEST, Value::Int32(31), 16748),
            (FINEST, Value::String("x"), 14),
            (COARSEST, Value::Int32(-1), 16747),
            (COARSEST, Value::Int32(24), 16749),
        ] {
            let mut spec = doc! {"key": {"g": "2dsphere"}};
            spec.push(option, value);
            let error = IndexSpec::parse(&spec).unwrap_err();
            assert_eq!(error.code().code(), code, "{option}: {error}");
        }
    }
}
