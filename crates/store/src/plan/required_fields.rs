//! The fields that queries, updates and deletes require, as [`FieldSet`].

use frond_bson::Value;
use frond_query::matcher::Filter;
use frond_query::required_fields::RequiredFields;
use frond_query::sort::SortSpec;
use frond_query::update::Update;

use crate::catalog::Collection;
use frond_storage::record::field_set::{ChangeFields, EVERYTHING, FieldSet, Increment};

/// Adds required fields. False if the whole document is required.
fn add(required: &RequiredFields, fields: &mut FieldSet) -> bool {
    if required.is_whole() {
        return false;
    }
    required.paths().for_each(|path| fields.add(path));
    true
}

/// The fields that a filter and a sort require, with the `shown` ones and the `_id`.
pub fn of_query<'a>(
    filter: &Filter,
    sort: Option<&SortSpec>,
    shown: impl IntoIterator<Item = &'a str>,
) -> FieldSet {
    let mut fields = FieldSet::paths(shown);
    fields.add("_id");
    let by_parts = add(&filter.required_fields(), &mut fields)
        && sort.is_none_or(|sort| add(&sort.required_fields(), &mut fields));
    if by_parts { fields } else { EVERYTHING.clone() }
}

/// The fields of the indexes that a change at the paths of `touches` can affect. `None` for the whole document.
fn of_indexes(collection: &Collection, touches: &dyn Fn(&str) -> bool) -> Option<FieldSet> {
    let mut fields = FieldSet::paths(["_id"]);
    for index in &collection.indexes {
        let spec = &index.spec;
        if !spec.is_affected(touches) {
            continue;
        }
        if spec.method.is_some() || spec.clustering {
            return None;
        }
        for field in &spec.fields {
            fields.add(&field.path);
        }
        if let Some(partial) = &spec.partial
            && !add(&partial.filter.required_fields(), &mut fields)
        {
            return None;
        }
    }
    Some(fields)
}

/// The fields that an update requires. `whole` if the result is the whole document; `is_blind` if fields that integers are
/// added to need not be read.
pub fn of_update(
    update: &Update,
    collection: &Collection,
    whole: bool,
    is_blind: bool,
) -> ChangeFields {
    let touched = update.paths_touched();
    let Some(mut fields) = of_indexes(collection, &|path| touched.affects(path)) else {
        return ChangeFields::everything();
    };
    let is_validated = collection.settings.validation.validator.is_some();
    if whole || is_validated || !add(&update.required_fields_except_increments(), &mut fields) {
        return ChangeFields::everything();
    }
    let mut increments = Vec::new();
    for (path, value) in update.increments() {
        let integer = match value {
            Value::Int32(integer) => i64::from(integer),
            Value::Int64(integer) => integer,
            // Such an `$inc` always reads the field.
            _ => 0,
        };
        let one = Increment::new(path, integer);
        // A field that is required for another reason is read.
        if !is_blind || fields.meets(&one.path) {
            fields.add(&one.dotted);
        } else {
            increments.push(one);
        }
    }
    ChangeFields::new(fields, increments)
}

/// The fields that a delete requires.
pub fn of_delete(collection: &Collection) -> ChangeFields {
    match of_indexes(collection, &|_| true) {
        Some(fields) => ChangeFields::parts(fields),
        None => ChangeFields::everything(),
    }
}
