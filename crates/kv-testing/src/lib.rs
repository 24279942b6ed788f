//! For the tests of storage engines: the conformance suite of the seam ([`conformance`](macro@conformance)), and an engine
//! in memory ([`Memory`]) that passes it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "this is code of tests: a failed expectation is a failed test"
)]

pub mod checks;
mod keyspace;
mod member_log;
mod memory;
mod operators;

pub use keyspace::Keyspace;
pub use member_log::{Loss, MemoryLog, Violations};
pub use memory::{Memory, MemoryCursor, MemoryOptions, MemorySnapshot, MemoryTransaction};
pub use operators::{Adds, Appends, Careful, Numbers, number, to_bytes};

/// Declares one test for each check of the conformance suite. Its argument is a function that returns an empty [`Keyspace`], or
/// `None` where the engine cannot be tested.
#[macro_export]
macro_rules! conformance {
    ($fresh:path) => {
        $crate::conformance! { $fresh:
            commits_are_seen_by_later_snapshots_only
            a_snapshot_does_not_change_while_others_commit
            a_commit_is_seen_as_a_whole_or_not_at_all
            cursors_go_both_ways_over_many_pages
            bounds_of_cursors_hold
            large_values_are_kept
            messages_are_applied_in_their_order
            counters_of_concurrent_writers_add_up
            ranges_of_many_keys_are_deleted_with_other_operations
            what_is_too_large_is_refused
            a_random_history_agrees_with_a_model
            a_random_history_of_long_keys_agrees_with_a_model
            guarded_writers_conflict_and_blind_ones_do_not
            a_conflict_leaves_nothing_of_the_commit
            transactions_see_their_writes_and_conflict
            a_dropped_transaction_leaves_nothing
            waits_for_transactions_end_by_interrupts
            trees_are_created_and_dropped
            tree_ids_are_unique_and_clocks_agree
            stamped_keys_are_in_the_order_of_their_commits
            stamps_that_are_not_reserved_are_asked_for
            what_was_flushed_is_there_after_a_restart
        }
    };
    ($fresh:path: $($check:ident)*) => {
        $(
            #[test]
            fn $check() {
                if let Some(keyspace) = $fresh() {
                    $crate::checks::$check(&keyspace);
                }
            }
        )*
    };
}
