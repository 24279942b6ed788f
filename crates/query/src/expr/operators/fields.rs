//! The fields of a document that is made of many parts.

use crate::bounds;
use frond_error::Result;
use std::collections::HashMap;

/// With more fields than this, a map finds them.
const LISTED_MAX: usize = 16;

/// Fields in the order in which they came. One that comes again keeps its place and takes the new value.
#[derive(Debug)]
pub(crate) struct Fields<'v, T> {
    list: Vec<(&'v str, T)>,
    places: HashMap<&'v str, usize>,
}

impl<'v, T> Fields<'v, T> {
    pub(crate) fn new() -> Fields<'v, T> {
        Fields {
            list: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// Sets a field.
    ///
    /// # Errors
    /// Those of the bounds of the evaluation.
    pub(crate) fn set(&mut self, name: &'v str, value: T) -> Result<()> {
        let known = match self.list.len() {
            ..=LISTED_MAX => self.list.iter().position(|(known, _)| *known == name),
            _ => {
                if self.places.is_empty() {
                    let all = self.list.iter().enumerate();
                    self.places.extend(all.map(|(at, (name, _))| (*name, at)));
                }
                self.places.get(name).copied()
            }
        };
        if let Some((_, old)) = known.and_then(|at| self.list.get_mut(at)) {
            *old = value;
            return Ok(());
        }
        // The list and the map double when they are full, and the old ones are copied.
        bounds::reserve_list::<[(&str, T); 4]>(1)?;
        if !self.places.is_empty() {
            self.places.insert(name, self.list.len());
        }
        self.list.push((name, value));
        Ok(())
    }

    /// The fields in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(&'v str, T)> {
        self.list.iter()
    }
}
