//! Events for the listener of a store: background work and conditions that begin and end.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::Error;
use crate::damage::{Activity, ActivityEvent, EventListener};

/// An activity that has begun. Dropping it without [`Running::end`] does not notify the listener.
pub(crate) struct Running {
    listener: Arc<dyn EventListener>,
    activity: Activity,
    began: Instant,
}

impl Running {
    /// Reports the beginning.
    pub(crate) fn begin(
        listener: &Arc<dyn EventListener>,
        activity: Activity,
        bytes: u64,
        reason: Option<&Error>,
    ) -> Running {
        listener.activity(&ActivityEvent {
            activity,
            took: None,
            bytes,
            error: reason.map(Error::to_string),
        });
        Running {
            listener: listener.clone(),
            activity,
            began: Instant::now(),
        }
    }

    /// Reports the end.
    pub(crate) fn end(self, bytes: u64, error: Option<&Error>) {
        self.listener.activity(&ActivityEvent {
            activity: self.activity,
            took: Some(self.began.elapsed()),
            bytes,
            error: error.map(Error::to_string),
        });
    }
}

/// The conditions that hold.
#[derive(Default)]
pub(crate) struct Conditions {
    stall: Mutex<Option<Running>>,
    low_disk: Mutex<Option<Running>>,
}

impl Conditions {
    /// Reports when a condition begins or ends. `error` is the reason for it.
    pub(crate) fn report(
        &self,
        listener: &Arc<dyn EventListener>,
        activity: Activity,
        holds: bool,
        bytes: u64,
        error: Option<&Error>,
    ) {
        let condition = match activity {
            Activity::Stall => &self.stall,
            _ => &self.low_disk,
        };
        let mut running = condition.lock();
        if holds && running.is_none() {
            *running = Some(Running::begin(listener, activity, bytes, error));
        } else if !holds && let Some(ended) = running.take() {
            ended.end(bytes, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Options, Result, Store, TreeOptions, WriteSet};

    #[derive(Default)]
    struct Events(Mutex<Vec<ActivityEvent>>);

    impl EventListener for Events {
        fn activity(&self, event: &ActivityEvent) {
            self.0.lock().push(event.clone());
        }
    }

    impl Events {
        fn take(&self) -> Vec<(Activity, bool, Option<String>)> {
            let events = std::mem::take(&mut *self.0.lock());
            let shown = |event: ActivityEvent| (event.activity, event.took.is_some(), event.error);
            events.into_iter().map(shown).collect()
        }
    }

    fn open(directory: &std::path::Path) -> (Store, Arc<Events>) {
        let events = Arc::new(Events::default());
        let mut options = Options::new(directory);
        options.inline = true;
        options.listener = events.clone();
        (Store::open(options).unwrap(), events)
    }

    #[test]
    fn flushes_compactions_and_checkpoints_begin_and_end() {
        let directory = tempfile::tempdir().unwrap();
        let (store, events) = open(directory.path());
        let tree = store.allocate_tree();
        let mut set = WriteSet::new();
        set.create_tree(tree, &TreeOptions::default());
        set.put(tree, b"key", &[7; 1000]);
        store.commit(set, Durability::Synced).unwrap();
        events.take();
        store.checkpoint().unwrap();
        let all = std::mem::take(&mut *events.0.lock());
        let first = all
            .iter()
            .position(|event| event.activity == Activity::Flush);
        let all = <[ActivityEvent; 4]>::try_from(all[first.unwrap()..].to_vec());
        let [flush, flushed, checkpoint, written] = all.unwrap();
        assert_eq!((flush.activity, flush.took), (Activity::Flush, None));
        assert!(flush.bytes > 1000, "{flush:?}");
        assert!(flushed.activity == Activity::Flush && flushed.took.is_some());
        assert_eq!(checkpoint.activity, Activity::Checkpoint);
        assert!(written.took.is_some() && written.bytes > 0 && written.error.is_none());
        let engine = store.engine();
        let failed: Result<()> = engine.report(Activity::Compaction, 0, || Err(Error::NoStamp));
        assert!(failed.is_err());
        assert_eq!(
            events.take(),
            [
                (Activity::Compaction, false, None),
                (Activity::Compaction, true, Some(Error::NoStamp.to_string()))
            ]
        );
    }

    #[test]
    fn a_condition_begins_and_ends_once() {
        let directory = tempfile::tempdir().unwrap();
        let (store, events) = open(directory.path());
        events.take();
        let engine = store.engine();
        let reason = Error::NoStamp;
        for activity in [Activity::Stall, Activity::LowDisk] {
            for holds in [false, true, true, false, false] {
                engine.report_condition(activity, holds, 0, Some(&reason));
            }
            assert_eq!(
                events.take(),
                [
                    (activity, false, Some(reason.to_string())),
                    (activity, true, None)
                ]
            );
        }
    }
}
