//! `arrayFilters`: the elements that `$[name]` selects.

use crate::matcher::Filter;
use frond_bson::{Collator, Doc, DocBuf, Value};
use frond_error::{Error, Result};
use std::collections::BTreeMap;

/// The array filters of an update, by identifier.
#[derive(Default)]
pub(crate) struct ArrayFilters {
    by_name: BTreeMap<String, Filter>,
}

impl std::fmt::Debug for ArrayFilters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl ArrayFilters {
    /// Reads the filters; each is a query on one name.
    pub(crate) fn parse(filters: &[&Doc], collator: &Collator) -> Result<ArrayFilters> {
        let mut by_name = BTreeMap::new();
        for spec in filters {
            let mut name = None;
            top_level_name(spec, &mut name)?;
            let Some(name) = name else {
                return Err(Error::failed_to_parse(
                    "Cannot use an expression without a top-level field name in arrayFilters",
                ));
            };
            let filter = Filter::parse_collated(spec, collator)
                .map_err(|error| error.context("Error parsing array filter"))?;
            if by_name.insert(name.clone(), filter).is_some() {
                return Err(Error::failed_to_parse(format!(
                    "Found multiple array filters with the same top-level field name {name}"
                )));
            }
        }
        Ok(ArrayFilters { by_name })
    }

    /// Checks that every filter is used by a path and every name in a path has a filter. `uses` are
    /// the paths with such names, and the names.
    pub(crate) fn check_use(&self, uses: &[(&str, &str)], update: &Doc) -> Result<()> {
        let mut unused: BTreeMap<&str, ()> =
            self.by_name.keys().map(|n| (n.as_str(), ())).collect();
        for (path, name) in uses.iter().filter(|(_, name)| !name.is_empty()) {
            if !self.by_name.contains_key(*name) {
                return Err(Error::bad_value(format!(
                    "No array filter found for identifier '{name}' in path '{path}'"
                )));
            }
            unused.remove(name);
        }
        match unused.keys().next() {
            None => Ok(()),
            Some(name) => Err(Error::failed_to_parse(format!(
                "The array filter for identifier '{name}' was not used in the update {}",
                crate::display::doc(update)
            ))),
        }
    }

    /// Whether the filter takes an element; the empty name takes all.
    ///
    /// # Errors
    /// Those of [`Filter::try_matches`].
    pub(crate) fn matches(&self, name: &str, value: &Value<'_>) -> Result<bool> {
        if name.is_empty() {
            return Ok(true);
        }
        let Some(filter) = self.by_name.get(name) else {
            return Ok(false);
        };
        let mut wrapped = DocBuf::new();
        wrapped.push_value(name, value);
        filter.try_matches(&wrapped)
    }
}

/// Finds the one name that all conditions of a filter begin with.
fn top_level_name(filter: &Doc, found: &mut Option<String>) -> Result<()> {
    for (key, value) in filter.iter() {
        if matches!(key, "$and" | "$or" | "$nor") {
            if let Value::Array(branches) = value {
                for branch in branches.values() {
                    if let Value::Document(branch) = branch {
                        top_level_name(branch, found)?;
                    }
                }
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        let name = key.split('.').next().unwrap_or(key);
        let starts_lower = name.starts_with(|c: char| c.is_ascii_lowercase());
        if !starts_lower || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(Error::bad_value(format!(
                "Error parsing array filter :: caused by :: The top-level field name must be an \
                 alphanumeric string beginning with a lowercase letter, found '{name}'"
            )));
        }
        match found {
            None => *found = Some(name.to_owned()),
            Some(other) if other != name => {
                return Err(Error::failed_to_parse(format!(
                    "Error parsing array filter :: caused by :: Expected a single top-level field \
                     name, found '{other}' and '{name}'"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
