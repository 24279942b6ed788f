//! Progress on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of bytes on the standard error, if that is a terminal.
pub struct Meter {
    bar: Option<ProgressBar>,
    is_quiet: bool,
}

impl Meter {
    /// One that shows a bar, or, if `is_quiet`, nothing but notes.
    pub fn new(is_quiet: bool) -> Meter {
        Meter {
            bar: None,
            is_quiet,
        }
    }

    /// Sets the total number of bytes.
    pub fn begin(&mut self, bytes: u64) {
        self.end();
        if self.is_quiet {
            return;
        }
        let bar = ProgressBar::new(bytes);
        let template = "{bar:30} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        self.bar = Some(bar);
    }

    /// Adds bytes that are done.
    pub fn advance(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Prints a line beside the bar.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }
}

/// A number of bytes for people.
pub fn bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}
