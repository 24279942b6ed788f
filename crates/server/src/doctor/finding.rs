//! The findings of checks, and their printed form.

use std::fmt::Write;

use frond_bson::{DocBuf, extjson};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Good,
    Note,
    Warning,
    /// The server does not start, or data is in danger.
    Problem,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Good => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The subject of the check.
    pub area: &'static str,
    /// See [`Level`].
    pub level: Level,
    /// The result of the check.
    pub what: String,
    /// Advice; empty if nothing needs to be done.
    pub advice: String,
}

impl Finding {
    fn new(area: &'static str, level: Level, what: impl Into<String>, advice: &str) -> Finding {
        Finding {
            area,
            level,
            what: what.into(),
            advice: advice.to_owned(),
        }
    }

    /// As it should be.
    pub fn good(area: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(area, Level::Good, what, "")
    }

    pub fn note(area: &'static str, what: impl Into<String>, advice: &str) -> Finding {
        Finding::new(area, Level::Note, what, advice)
    }

    pub fn warning(area: &'static str, what: impl Into<String>, advice: &str) -> Finding {
        Finding::new(area, Level::Warning, what, advice)
    }

    /// To be changed before the server starts.
    pub fn problem(area: &'static str, what: impl Into<String>, advice: &str) -> Finding {
        Finding::new(area, Level::Problem, what, advice)
    }
}

/// The findings of one run.
#[derive(Default)]
pub struct Report(Vec<Finding>);

impl Report {
    pub fn extend(&mut self, found: impl IntoIterator<Item = Finding>) {
        self.0.extend(found);
    }

    /// The number of findings of a level.
    pub fn count(&self, level: Level) -> usize {
        self.0
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    }

    fn summary(&self) -> String {
        let count = |level, one: &str| match self.count(level) {
            1 => format!("1 {one}"),
            n => format!("{n} {one}s"),
        };
        format!(
            "{}, {}",
            count(Level::Problem, "problem"),
            count(Level::Warning, "warning")
        )
    }

    /// Lines for people, in the order of the checks.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for Finding {
            area,
            level,
            what,
            advice,
        } in &self.0
        {
            let _ = writeln!(text, "{:<8} {area}: {what}", level.name());
            if !advice.is_empty() {
                let _ = writeln!(text, "{:<8} -> {advice}", "");
            }
        }
        let _ = writeln!(text, "\n{}", self.summary());
        text
    }

    /// One document, as JSON.
    pub fn to_json(&self) -> String {
        let mut document = DocBuf::new();
        document.push("version", env!("CARGO_PKG_VERSION"));
        document.push("problems", self.count(Level::Problem) as i64);
        document.push("warnings", self.count(Level::Warning) as i64);
        document.push_array("findings", |list| {
            for finding in &self.0 {
                list.push_doc(|out| {
                    out.push("area", finding.area);
                    out.push("level", finding.level.name());
                    out.push("what", finding.what.as_str());
                    if !finding.advice.is_empty() {
                        out.push("advice", finding.advice.as_str());
                    }
                });
            }
        });
        extjson::to_relaxed(&document)
    }
}

/// Bytes in the largest unit that keeps the number short.
pub fn size(bytes: u64) -> String {
    let (unit, shift) = match bytes {
        0..0x400 => return format!("{bytes} bytes"),
        0x400..0x10_0000 => ("KiB", 10),
        0x10_0000..0x4000_0000 => ("MiB", 20),
        _ => ("GiB", 30),
    };
    format!("{:.1} {unit}", bytes as f64 / f64::from(1 << shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_as_text_and_as_json() {
        let mut report = Report::default();
        report.extend([
            Finding::good("limits", "fine"),
            Finding::problem("port", "in \"use\"", "choose another"),
        ]);
        assert_eq!(
            report.to_text(),
            "ok       limits: fine\nproblem  port: in \"use\"\n         -> choose another\n\n1 problem, 0 warnings\n"
        );
        let json = report.to_json();
        assert!(json.contains(r#""problems":1,"warnings":0"#), "{json}");
        assert!(json.contains(r#"{"area":"limits","level":"ok","what":"fine"}"#));
        assert!(json.contains(r#""what":"in \"use\"","advice":"choose another""#));
    }

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (5, "5 bytes"),
            (2048, "2.0 KiB"),
            (3 << 20, "3.0 MiB"),
            (5 << 40, "5120.0 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
