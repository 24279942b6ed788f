//! What queries, updates and indexes look at, as [`FieldSet`].

use frond_bson::Value;
use frond_query::matcher::Filter;
use frond_query::needs::Needs;
use frond_query::sort::SortSpec;
use frond_query::update::Update;

use crate::catalog::Collection;
use crate::record::field_set::{EVERYTHING, FieldSet, Increment};

/// Adds needs. False if everything is needed.
fn add(needs: &Needs, want: &mut FieldSet) -> bool {
    if needs.is_whole() {
        return false;
    }
    needs.paths().for_each(|path| want.add(path));
    true
}

/// What a filter and a sort look at, with other paths and the `_id`.
pub fn of_query<'a>(
    filter: &Filter,
    sort: Option<&SortSpec>,
    shown: impl IntoIterator<Item = &'a str>,
) -> FieldSet {
    let mut want = FieldSet::paths(shown);
    want.add("_id");
    let by_parts =
        add(&filter.needs(), &mut want) && sort.is_none_or(|sort| add(&sort.needs(), &mut want));
    if by_parts { want } else { EVERYTHING.clone() }
}

/// What the indexes look at that `touches` concerns. `None` for everything.
pub fn of_indexes(collection: &Collection, touches: &dyn Fn(&str) -> bool) -> Option<FieldSet> {
    let mut want = FieldSet::paths(["_id"]);
    for index in &collection.indexes {
        let spec = &index.spec;
        if !spec.is_affected(touches) {
            continue;
        }
        if spec.method.is_some() || spec.clustering {
            return None;
        }
        for field in &spec.fields {
            want.add(&field.path);
        }
        if let Some(partial) = &spec.partial
            && !add(&partial.filter.needs(), &mut want)
        {
            return None;
        }
    }
    Some(want)
}

/// Adds what an update looks at, but for what its `$inc` looks at. False for everything.
pub fn of_update(update: &Update, want: &mut FieldSet) -> bool {
    add(&update.needs_besides_increments(), want)
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
