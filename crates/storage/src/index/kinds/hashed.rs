//! Hashed indexes: one field holds the hash of its value, see [`frond_query::hash64`].
//!
//! Hashes have no order, so only equality and `$in` bound the field. Numbers are hashed without their fraction, so
//! the filter is always applied again. An array cannot be hashed, so a document has one hash.

use frond_bson::{Collator, Doc, DocBuf, Value, key};
use frond_error::{Error, Result};
use frond_query::hash64;
use frond_query::paths::Path;

use super::{Kind, Parsed, Request, check_path, ordinary_field};
use crate::index::field::{Holds, IndexField};
use crate::index::route::Route;
use crate::index::slots::{Part, Slots};
use crate::index::spec::{IndexMethod, IndexSpec, PlanRequest};
use crate::intervals::{Interval, Intervals};

/// The line in [`super::KINDS`].
pub(super) const KIND: Kind = Kind {
    name: "hashed",
    options: &[],
    own_only: &[],
    parse: Some(parse),
};

fn parse(request: &Request<'_>) -> Result<Parsed> {
    let mut fields = Vec::new();
    let mut hashed = Vec::new();
    for (position, (path, direction)) in request.key.iter().enumerate() {
        if !matches!(direction, Value::String(_)) {
            fields.push(ordinary_field(path, direction)?);
            continue;
        }
        check_path(path)?;
        hashed.push((position, Path::new(path)));
        fields.push(IndexField {
            path: path.to_owned(),
            direction: key::Direction::Ascending,
            holds: Holds::Computed(0),
        });
    }
    let count = hashed.len();
    let Some((position, path)) = hashed.pop().filter(|_| count == 1) else {
        return Err(Error::location(
            31303,
            format!(
                "A maximum of one index field is allowed to be hashed but found {count} for 'key' {}",
                crate::text::document(request.key)
            ),
        ));
    };
    Ok(Parsed {
        fields,
        key: None,
        options: DocBuf::new(),
        method: Some(std::sync::Arc::new(Hashed { position, path })),
    })
}

/// The hashed field of an index.
#[derive(Debug)]
struct Hashed {
    /// Its position among the parts.
    position: usize,
    path: Path,
}

impl Hashed {
    /// The value at the path. An array there or on the path is an error.
    fn value<'a>(&self, mut doc: &'a Doc) -> Result<Option<Value<'a>>> {
        let mut rest = self.path.components().iter();
        let mut depth = 0;
        while let Some(component) = rest.next() {
            depth += 1;
            match doc.get(component.name()) {
                Some(Value::Array(_)) => return Err(self.array(depth)),
                value if rest.len() == 0 => return Ok(value),
                Some(Value::Document(inner)) => doc = inner,
                _ => break,
            }
        }
        Ok(None)
    }

    #[cold]
    fn array(&self, depth: usize) -> Error {
        let names = self.path.components().iter().take(depth);
        let path: Vec<&str> = names.map(|component| component.name()).collect();
        Error::location(
            16766,
            format!(
                "Error: hashed indexes do not currently support array values. Found array at path: {}",
                path.join(".")
            ),
        )
    }
}

/// The hashes of the values that a set of ranges consists of. `None` if it has more than single values.
fn hashes(values: &Intervals, collator: &Collator) -> Option<Intervals> {
    let mut all = Vec::new();
    for interval in values.as_slice() {
        let value = interval.value()?;
        match value {
            // Strings that the collation finds equal have different hashes.
            text if collator.affects(&text) => return None,
            // The filter also matches elements of arrays, which the index lacks.
            Value::Array(_) => return None,
            number if number.is_number() => {
                all.push(point(number));
                // The double of this value has another hash than equal numbers of other types.
                if frond_bson::compare(&number, &Value::Double(BEYOND)).is_eq() {
                    all.extend([i64::MIN, i64::MAX].map(|same| point(Value::Int64(same))));
                }
            }
            other => all.push(point(other)),
        }
    }
    Some(Intervals::union_of(all))
}

/// The first number beyond the range of 64-bit integers.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

fn point(value: Value<'_>) -> Interval {
    let hash = Value::Int64(hash64(value));
    let mut encoded = Vec::new();
    key::encode(&hash, &mut encoded);
    Interval::point(encoded, hash.to_owned())
}

impl IndexMethod for Hashed {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn check(&self, spec: &IndexSpec) -> Result<()> {
        if spec.unique {
            return Err(Error::location(
                16764,
                "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.",
            ));
        }
        Ok(())
    }

    fn parts<'a>(&self, doc: &'a Doc, out: &mut Slots<'a>) -> Result<()> {
        let part = |value| Part::Value(Value::Int64(hash64(value)));
        match self.value(doc)? {
            Some(value) => out.push(0, [part(value)]),
            None => out.push_missing(0, [part(Value::Null)]),
        }
        Ok(())
    }

    fn is_affected(&self, touches: &dyn Fn(&str) -> bool) -> bool {
        touches(self.path.as_str())
    }

    fn routes(&self, request: &PlanRequest<'_>) -> Vec<Route> {
        let spec = &request.index.spec;
        let mut route = Route::ordinary(spec, request.multikey, request.conditions);
        route.is_exact = false;
        let values = request.conditions.ranges_of(self.path.as_str());
        if let Some(hashes) = hashes(&values, &spec.collator)
            && let Some(field) = route.bounds.fields.get_mut(self.position)
        {
            *field = hashes;
        }
        vec![route]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::index::keys::IndexKeys;
    use frond_bson::{ArrayBuf, doc};

    fn spec(key: DocBuf) -> Result<IndexSpec, crate::error::Error> {
        IndexSpec::parse(&doc! {"key": key})
    }

    fn keys(spec: &IndexSpec, doc: &Doc) -> Result<Vec<DocBuf>> {
        let mut keys = IndexKeys::default();
        keys.generate(spec, doc, 5)?;
        let fields = |(fields, lost): (&[u8], &[u8])| {
            crate::index::covered::fields_document(spec, fields, lost).unwrap()
        };
        Ok(keys.iter().map(fields).collect())
    }

    #[test]
    fn one_field_is_hashed() {
        let hash = |value: Value<'_>| hash64(value);
        let single = spec(doc! {"a.b": "hashed"}).unwrap();
        let null = doc! {"a.b": hash(Value::Null)};
        for (doc, key) in [
            (doc! {"a": {"b": 5}}, doc! {"a.b": hash(Value::Int32(5))}),
            (doc! {"a": {"b": 5.5}}, doc! {"a.b": hash(Value::Int32(5))}),
            (doc! {"a": 1}, null.clone()),
            (doc! {}, null),
        ] {
            assert_eq!(keys(&single, &doc).unwrap(), [key], "{doc:?}");
        }
        let compound = spec(doc! {"x": -1, "a": "hashed", "y": 1}).unwrap();
        let elements: ArrayBuf = [1, 2].into_iter().collect();
        let h = hash(Value::Int32(7));
        assert_eq!(
            keys(&compound, &doc! {"a": 7, "x": elements, "y": "z"}).unwrap(),
            [
                doc! {"x": 2, "a": h, "y": "z"},
                doc! {"x": 1, "a": h, "y": "z"}
            ]
        );
    }

    #[test]
    fn arrays_have_no_hash() {
        let spec = spec(doc! {"a.b": "hashed"}).unwrap();
        for (doc, path) in [
            (doc! {"a": {"b": [1]}}, "at path: a.b"),
            (doc! {"a": [{"b": 1}]}, "at path: a"),
        ] {
            let error = keys(&spec, &doc).unwrap_err();
            assert_eq!(error.code().code(), 16766);
            assert!(error.message().ends_with(path), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (wrong, code) in [
            (doc! {"key": {"a": "hashed", "b": "hashed"}}, 31303),
            (doc! {"key": {"a": "hashed"}, "unique": true}, 16764),
            (doc! {"key": {"$a": "hashed"}}, 67),
            (doc! {"key": {"a": "hashed", "b": 0}}, 67),
        ] {
            let error = IndexSpec::parse(&wrong).unwrap_err();
            assert_eq!(error.code().code(), code, "{wrong:?}");
        }
    }
}
