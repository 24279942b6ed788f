//! Progress on the terminal: bars, or lines where there is none.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Interval at which a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A bar, to which all threads add.
pub struct Progress {
    bar: ProgressBar,
    label: String,
    quiet: bool,
    lines: bool,
    began: Instant,
    last_line: Mutex<Instant>,
}

impl Progress {
    /// Starts a bar of `total` documents; 0 if that is not known.
    pub fn new(label: &str, total: u64, quiet: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = if total == 0 {
            ProgressBar::no_length()
        } else {
            ProgressBar::new(total)
        };
        if quiet || !terminal {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        } else {
            let template = if total == 0 {
                "{prefix} {spinner} {human_pos} documents, {per_sec}, {elapsed} {msg}"
            } else {
                "{prefix} {bar:30} {percent:>3}%  {human_pos}/{human_len}, {per_sec}, {eta} to go {msg}"
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_prefix(label.to_owned());
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Progress {
            bar,
            label: label.to_owned(),
            quiet,
            lines: !quiet && !terminal,
            began: Instant::now(),
            last_line: Mutex::new(Instant::now()),
        }
    }

    pub fn add(&self, documents: u64) {
        self.bar.inc(documents);
        if !self.lines {
            return;
        }
        let Ok(mut last) = self.last_line.try_lock() else {
            return;
        };
        if last.elapsed() >= LINE_EVERY {
            *last = Instant::now();
            eprintln!("{}: {}", self.label, self.counts());
        }
    }

    fn counts(&self) -> String {
        let seconds = self.began.elapsed().as_secs_f64();
        let count = self.bar.position();
        let of = match self.bar.length() {
            Some(length) => format!(" of {length}"),
            None => String::new(),
        };
        format!(
            "{count}{of} documents, {:.0}/s",
            count as f64 / seconds.max(0.001)
        )
    }

    /// Ends the bar with a line.
    pub fn finish(self) {
        self.bar.finish_and_clear();
        if !self.quiet {
            eprintln!(
                "{}: {} in {:.1} s",
                self.label,
                self.counts(),
                self.began.elapsed().as_secs_f64()
            );
        }
    }
}
