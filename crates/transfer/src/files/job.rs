//! State that imports of every format share.

use super::options::ImportOptions;
use super::sink::{self, How, Sink, Written};
use crate::error::Result;
use crate::node::Node;
use crate::progress::Progress;
use crate::stop::Signals;

pub struct Job<'a> {
    pub options: &'a ImportOptions,
    pub signals: &'a Signals,
    pub node: &'a Node,
    /// Options of the writes.
    pub how: How,
}

impl Job<'_> {
    /// The file in words.
    pub fn name(&self) -> String {
        if self.options.file.as_os_str() == "-" {
            "standard input".to_owned()
        } else {
            self.options.file.display().to_string()
        }
    }

    /// Runs a reader, whose documents are written by threads. `place` names what its numbers count.
    pub fn run(
        &self,
        place: &str,
        progress: &Progress,
        reader: impl FnOnce(&mut Sink<'_>) -> Result<()>,
    ) -> Result<Written> {
        sink::run(
            self.node,
            usize::from(self.options.jobs),
            &self.how,
            place,
            progress,
            reader,
        )
    }
}
