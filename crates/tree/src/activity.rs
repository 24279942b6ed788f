//! Events for the listener of a store: background work and conditions that begin and end.

use std::sync::Arc;
use std::time::Instant;

use crate::damage::{Activity, ActivityEvent, EventListener};
use crate::engine::Engine;
use crate::{Error, Result};

/// An activity that has begun. Dropping it without [`Running::end`] tells the listener nothing.
pub(crate) struct Running {
    listener: Arc<dyn EventListener>,
    activity: Activity,
    began: Instant,
}

impl Running {
    /// Reports the beginning.
    fn begin(
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
    fn end(self, bytes: u64, error: Option<&Error>) {
        self.listener.activity(&ActivityEvent {
            activity: self.activity,
            took: Some(self.began.elapsed()),
            bytes,
            error: error.map(Error::to_string),
        });
    }
}

impl Engine {
    /// Runs work, and reports its beginning and its end. `bytes` is the size at the beginning; at the end it is the number of bytes
    /// written to the data file meanwhile.
    pub(crate) fn report<T>(
        &self,
        activity: Activity,
        bytes: u64,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let running = Running::begin(&self.options.listener, activity, bytes, None);
        let (_, _, before) = self.runs.data.io_stats();
        let result = work();
        let (_, _, after) = self.runs.data.io_stats();
        running.end(after - before, result.as_ref().err());
        result
    }

    /// Reports when a condition begins or ends. `error` is the reason for it.
    pub(crate) fn report_condition(
        &self,
        activity: Activity,
        holds: bool,
        bytes: u64,
        error: Option<&Error>,
    ) {
        let condition = match activity {
            Activity::Stall => &self.conditions.stall,
            _ => &self.conditions.low_disk,
        };
        let mut running = condition.lock();
        if holds && running.is_none() {
            *running = Some(Running::begin(
                &self.options.listener,
                activity,
                bytes,
                error,
            ));
        } else if !holds && let Some(ended) = running.take() {
            ended.end(bytes, None);
        }
    }
}

/// The conditions that hold.
#[derive(Default)]
pub(crate) struct Conditions {
    stall: parking_lot::Mutex<Option<Running>>,
    low_disk: parking_lot::Mutex<Option<Running>>,
}
