//! Progress on the terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::format::thousands;
use crate::report::Row;

/// A progress bar on a terminal, a line for every 5% elsewhere, nothing with `--quiet`.
pub struct Progress {
    bar: ProgressBar,
    total: u64,
    unit: &'static str,
    label: String,
    lines: bool,
    next_line_at: u64,
    from: Duration,
}

/// The unit of a run that takes a given time.
pub const SECONDS: &str = "seconds";

impl Progress {
    /// Starts to show a run of `total` units. The label names the server; it may be empty.
    pub fn new(label: &str, total: u64, unit: &'static str, quiet: bool) -> Self {
        let label = if label.is_empty() {
            String::new()
        } else {
            format!("{label}: ")
        };
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::new(total);
        if quiet || !terminal {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        } else {
            let style = ProgressStyle::with_template(
                "{prefix}{bar:30} {percent:>3}%  {human_pos}/{human_len}  {msg}  {elapsed}, {eta} to go",
            );
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.set_prefix(label.clone());
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Progress {
            bar,
            total,
            unit,
            label,
            lines: !quiet && !terminal,
            next_line_at: total / 20,
            from: Duration::ZERO,
        }
    }

    /// Starts when the server's own time is `from`, if seconds are shown.
    pub fn from(mut self, from: Duration) -> Self {
        self.from = from;
        self
    }

    /// Shows the latest figures: the speed now, on the whole, and over the last 5% so far; of seconds, the speed and the
    /// latency.
    pub fn show(&mut self, row: &Row, others: u64, exit_speed: Option<f64>) {
        let now = thousands(row.per_s);
        let (count, text) = if self.unit == SECONDS {
            let text = format!("{now} transactions/s, 99% within {:.1} ms", row.p99_ms);
            ((row.elapsed_s - self.from.as_secs_f64()) as u64, text)
        } else {
            let count = row.count + others;
            let whole = thousands(count as f64 / row.elapsed_s.max(1e-9));
            let exit = exit_speed.map_or_else(|| "-".to_owned(), thousands);
            let text = format!("{now}/s now, {whole}/s on average, {exit}/s in the last 5%");
            (count, text)
        };
        if self.lines && count >= self.next_line_at {
            let percent = count as f64 * 100.0 / self.total.max(1) as f64;
            eprintln!(
                "{}{percent:5.1}%  {:>13} {}  {:8.1} s  {text}",
                self.label,
                thousands(count as f64),
                self.unit,
                row.elapsed_s,
            );
            self.next_line_at = count + (self.total / 20).max(1);
        }
        self.bar.set_position(count);
        self.bar.set_message(text);
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
