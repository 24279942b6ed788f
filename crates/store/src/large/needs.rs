//! What queries, updates and indexes look at, as [`Want`].

use frond_bson::Value;
use frond_query::matcher::Filter;
use frond_query::required_fields::RequiredFields;
use frond_query::sort::SortSpec;
use frond_query::update::Update;

use super::want::{EVERYTHING, Increment, Want};
use crate::catalog::Collection;

/// Adds required fields. False if everything is needed.
fn add(required: &RequiredFields, want: &mut Want) -> bool {
    if required.is_whole() {
        return false;
    }
    required.paths().for_each(|path| want.add(path));
    true
}

/// What a filter and a sort look at, with other paths and the `_id`.
pub fn of_query<'a>(
    filter: &Filter,
    sort: Option<&SortSpec>,
    shown: impl IntoIterator<Item = &'a str>,
) -> Want {
    let mut want = Want::paths(shown);
    want.add("_id");
    let by_parts = add(&filter.required_fields(), &mut want)
        && sort.is_none_or(|sort| add(&sort.required_fields(), &mut want));
    if by_parts { want } else { EVERYTHING.clone() }
}

/// What the indexes look at that `touches` concerns. `None` for everything.
pub fn of_indexes(collection: &Collection, touches: &dyn Fn(&str) -> bool) -> Option<Want> {
    let mut want = Want::paths(["_id"]);
    for index in &collection.indexes {
        let spec = &index.spec;
        if !spec.is_affected(touches) {
            continue;
        }
        if spec.special.is_some() || spec.clustering {
            return None;
        }
        for field in &spec.fields {
            want.add(&field.path);
        }
        if let Some(partial) = &spec.partial
            && !add(&partial.filter.required_fields(), &mut want)
        {
            return None;
        }
    }
    Some(want)
}

/// Adds what an update looks at, but for what its `$inc` looks at. False for everything.
pub fn of_update(update: &Update, want: &mut Want) -> bool {
    add(&update.required_fields_except_increments(), want)
}

/// The integers that an update adds. Others are looked at as they are.
pub fn increments(update: &Update) -> Vec<Increment> {
    let increment = |(path, value): (&str, Value<'_>)| {
        let integer = match value {
            Value::Int32(integer) => i64::from(integer),
            Value::Int64(integer) => integer,
            // Such an addition is never blind.
            _ => 0,
        };
        Increment::new(path, integer)
    };
    update.increments().map(increment).collect()
}
