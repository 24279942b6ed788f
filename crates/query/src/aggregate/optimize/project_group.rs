//! A `$project` before a `$group` that reads only fields which the projection passes on unchanged does nothing.

use crate::aggregate::stages::{Stage, transform::Transform};
use crate::required_fields::RequiredFields;

pub(super) fn apply(stages: &mut Vec<Stage>) {
    let mut at = stages.len();
    while let Some(before) = at.checked_sub(1) {
        if let (Some(earlier), Some(Stage::Group(group))) = (stages.get(before), stages.get(at)) {
            let mut required = RequiredFields::none();
            group.reads(&mut |path| required.add(&path));
            if passes(earlier, &required) {
                // The group is now at `before`: there may be another projection in front of it.
                stages.remove(before);
            }
        }
        at = before;
    }
}

/// Whether a stage gives a document for each document, in which the required fields are unchanged.
fn passes(stage: &Stage, required: &RequiredFields) -> bool {
    let Stage::Transform(transform) = stage else {
        return false;
    };
    let Transform::Project(projection) = &**transform else {
        return false;
    };
    // An expression may fail.
    let mut paths = required.paths();
    !required.is_whole()
        && !projection.computes()
        && paths.all(|path| projection.keeps(first_name(path)))
}

fn first_name(path: &str) -> &str {
    path.split('.').next().unwrap_or_default()
}
