//! `$lookup` absorbs an `$unwind` of its result, so that no array is built.

use crate::aggregate::stages::Stage;

pub(super) fn apply(stages: &mut Vec<Stage>) {
    let mut at = 0;
    while at + 1 < stages.len() {
        let joined = match (stages.get(at), stages.get(at + 1)) {
            (Some(Stage::Lookup(lookup)), Some(Stage::Unwind(unwind)))
                if lookup.written_path() == unwind.path() =>
            {
                Some(Stage::LookupUnwind(lookup.clone(), unwind.clone()))
            }
            _ => None,
        };
        if let Some(joined) = joined {
            stages.remove(at + 1);
            if let Some(slot) = stages.get_mut(at) {
                *slot = joined;
            }
        }
        at += 1;
    }
}
