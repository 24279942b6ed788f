//! Multikey paths: which path components of an index or a sort are arrays.

/// For each field of an index or a sort, the components of its path whose values were arrays.
///
/// Component `i` of `a.b.c` is the value of `a` (0), of `a.b` (1) or of `a.b.c` (2). The last bit of a set stands
/// for its component and all deeper ones. MongoDB calls this the multikey paths of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultikeyPaths {
    /// A set of components for each field, up to the last field that met an array.
    fields: Vec<u32>,
}

/// The last bit of a set of components.
const LAST: usize = 31;

impl MultikeyPaths {
    /// The sets of components of the leading fields; the others met no array.
    pub fn from_sets(mut fields: Vec<u32>) -> MultikeyPaths {
        while fields.last() == Some(&0) {
            fields.pop();
        }
        MultikeyPaths { fields }
    }

    /// The sets of components, up to the last field that met an array.
    pub fn sets(&self) -> &[u32] {
        &self.fields
    }

    /// Whether no field met an array.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Whether the path of this field met an array.
    pub fn has_array(&self, field: usize) -> bool {
        self.set(field) != 0
    }

    /// The components of this field that were arrays, one bit each.
    pub fn set(&self, field: usize) -> u32 {
        self.fields.get(field).copied().unwrap_or(0)
    }

    /// Whether this component of this field was an array.
    pub fn contains(&self, field: usize, component: usize) -> bool {
        self.set(field) & (1 << component.min(LAST)) != 0
    }

    /// Adds a component of a field.
    pub fn insert(&mut self, field: usize, component: usize) {
        self.insert_set(field, 1 << component.min(LAST));
    }

    /// Adds all components of a field: it has several values, and which arrays they come from is not known.
    pub fn insert_all(&mut self, field: usize) {
        self.insert_set(field, u32::MAX);
    }

    /// Adds a set of components of a field.
    pub fn insert_set(&mut self, field: usize, components: u32) {
        if components == 0 {
            return;
        }
        if self.fields.len() <= field {
            self.fields.resize(field + 1, 0);
        }
        self.fields[field] |= components;
    }

    /// Adds all that `other` has.
    pub fn extend(&mut self, other: &MultikeyPaths) {
        for (field, components) in other.fields.iter().enumerate() {
            self.insert_set(field, *components);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_components() {
        let mut paths = MultikeyPaths::default();
        assert!(paths.is_empty() && !paths.has_array(3));
        paths.insert(1, 0);
        paths.insert(1, 2);
        assert!(paths.contains(1, 0) && !paths.contains(1, 1) && paths.contains(1, 2));
        assert!(!paths.has_array(0) && paths.has_array(1) && !paths.has_array(2));
        paths.insert(0, 40);
        assert!(paths.contains(0, 31) && paths.contains(0, 99) && !paths.contains(0, 30));
        let mut other = MultikeyPaths::default();
        other.insert_all(2);
        other.extend(&paths);
        assert_eq!(other.sets(), [1 << 31, 0b101, u32::MAX]);
        assert_eq!(MultikeyPaths::from_sets(vec![5, 0, 0]).sets(), [5]);
    }
}
