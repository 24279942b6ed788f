//! A `$match` goes before stages that leave what it looks at as it is, so that indexes can serve it
//! and fewer documents are worked on.

use crate::aggregate::front::filter_paths;
use crate::aggregate::stages::{Stage, transform::Transform};
use std::collections::BTreeSet;

pub(super) fn apply(stages: &mut [Stage]) {
    for start in 1..stages.len() {
        let mut at = start;
        while let Some(before) = at.checked_sub(1)
            && let (Some(earlier), Some(Stage::Filter(filter))) =
                (stages.get(before), stages.get(at))
        {
            let mut names = BTreeSet::new();
            filter_paths(filter.filter.predicates(), &mut |path| {
                names.insert(first_name(&path).to_owned());
            });
            if !leaves(earlier, &names) {
                break;
            }
            stages.swap(before, at);
            at = before;
        }
    }
}

fn first_name(path: &str) -> &str {
    path.split('.').next().unwrap_or_default()
}

/// Whether a stage leaves the fields with these names as they are, and passes or drops documents
/// whole. The empty name stands for the whole document.
fn leaves(stage: &Stage, names: &BTreeSet<String>) -> bool {
    if names.contains("") {
        return false;
    }
    let untouched = |path: &str| !names.contains(first_name(path));
    match stage {
        Stage::Sort(sort) => sort.limit.is_none(),
        Stage::Unwind(unwind) => {
            untouched(&unwind.path()) && unwind.index_name().is_none_or(untouched)
        }
        Stage::Lookup(lookup) => untouched(lookup.written_name()),
        Stage::Transform(transform) => match &**transform {
            Transform::Add(fields) => fields.names().all(untouched),
            Transform::Project(projection) => names.iter().all(|name| projection.keeps(name)),
            Transform::Replace(..) => false,
        },
        _ => false,
    }
}
