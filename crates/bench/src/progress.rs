//! Progress on the terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::format::thousands;

/// A progress bar on a terminal, a line for every 5% elsewhere, nothing with `--quiet`.
pub struct Progress {
    bar: ProgressBar,
    total: u64,
    unit: &'static str,
    label: String,
    lines: bool,
    next_line_at: u64,
}

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
        }
    }

    /// Shows the latest figures: the speed now, on the whole, and over the last 5% so far.
    pub fn show(&mut self, elapsed_s: f64, count: u64, now_per_s: f64, exit_speed: Option<f64>) {
        let whole = count as f64 / elapsed_s.max(1e-9);
        let text = format!(
            "{}/s now, {}/s on average, {}/s in the last 5%",
            thousands(now_per_s),
            thousands(whole),
            exit_speed.map_or_else(|| "-".to_owned(), thousands),
        );
        if self.lines && count >= self.next_line_at {
            let percent = count as f64 * 100.0 / self.total.max(1) as f64;
            eprintln!(
                "{}{percent:5.1}%  {:>13} {}  {elapsed_s:8.1} s  {text}",
                self.label,
                thousands(count as f64),
                self.unit,
            );
            self.next_line_at = count + self.total / 20;
        }
        self.bar.set_position(count);
        self.bar.set_message(text);
    }

    /// Shows the position and a text.
    pub fn tell(&mut self, count: u64, text: &str) {
        if self.lines && count >= self.next_line_at {
            let percent = count as f64 * 100.0 / self.total.max(1) as f64;
            eprintln!("{}{percent:5.1}%  {text}", self.label);
            self.next_line_at = count + (self.total / 20).max(1);
        }
        self.bar.set_position(count);
        self.bar.set_message(text.to_owned());
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
