//! Ending on SIGINT and SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{Error, Result};

/// Signals. The first one asks for an orderly end, a second one ends the process.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    asked: Arc<AtomicBool>,
    /// Ends the waits of all connections.
    pub stop: Arc<AtomicBool>,
}

impl Signals {
    /// Listens to SIGINT and SIGTERM.
    pub fn listen() -> Result<Signals> {
        let signals = Signals::default();
        for signal in [SIGINT, SIGTERM] {
            let asked = &signals.asked;
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(asked))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(asked)))
                .map_err(|error| Error::Io("handling signals".to_owned(), error))?;
        }
        Ok(signals)
    }

    /// Whether a signal came.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Fails if a signal came.
    pub fn check(&self) -> Result<()> {
        if self.is_asked() {
            return Err(frond_client::Error::Stopped.into());
        }
        Ok(())
    }
}
