//! A `$match` moves before stages that do not change the fields it requires, so that indexes can serve it
//! and fewer documents are processed.

use crate::aggregate::stages::{Stage, transform::Transform};
use crate::required_fields::{RequiredFields, Requirement};

pub(super) fn apply(stages: &mut [Stage]) {
    for start in 1..stages.len() {
        let mut at = start;
        while let Some(before) = at.checked_sub(1)
            && let (Some(earlier), Some(Stage::Filter(filter))) =
                (stages.get(before), stages.get(at))
        {
            if !leaves(earlier, &filter.filter.required_fields()) {
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

/// Whether a stage does not change the required fields, and only passes or drops documents.
fn leaves(stage: &Stage, required: &RequiredFields) -> bool {
    if required.is_whole() {
        return false;
    }
    let untouched = |path: &str| required.requirement(first_name(path)) == Requirement::None;
    match stage {
        Stage::Sort(sort) => sort.limit.is_none(),
        Stage::Unwind(unwind) => {
            untouched(&unwind.path()) && unwind.index_name().is_none_or(untouched)
        }
        Stage::Lookup(lookup) => untouched(lookup.written_name()),
        Stage::Transform(transform) => match &**transform {
            Transform::Add(fields) => fields.names().all(untouched),
            Transform::Project(projection) => {
                (required.paths()).all(|path| projection.keeps(first_name(path)))
            }
            Transform::Replace(..) => false,
        },
        _ => false,
    }
}
