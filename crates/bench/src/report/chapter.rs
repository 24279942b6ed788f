//! What a workload has to say: figures of each server, tables, charts.

use super::page::Section;
use super::plot::{Axis, Panel};
use super::thousands;
use crate::contest::{Contest, Ending};

/// Whether more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// As with a rate.
    More,
    /// As with a time or a size.
    Less,
    /// It only tells something.
    Neither,
}

/// A number that each server has.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Its unit, such as "documents/s"; may be empty.
    pub unit: &'static str,
    /// How to compare it.
    pub better: Better,
    /// By server. `None` where there is none.
    pub values: Vec<Option<f64>>,
}

impl Figure {
    /// A rate.
    #[must_use]
    pub fn more(name: impl Into<String>, unit: &'static str, values: Vec<Option<f64>>) -> Figure {
        Figure {
            name: name.into(),
            unit,
            better: Better::More,
            values,
        }
    }

    /// A time or a size.
    #[must_use]
    pub fn less(name: impl Into<String>, unit: &'static str, values: Vec<Option<f64>>) -> Figure {
        Figure {
            better: Better::Less,
            ..Figure::more(name, unit, values)
        }
    }

    /// A number that is neither good nor bad.
    #[must_use]
    pub fn told(name: impl Into<String>, unit: &'static str, values: Vec<Option<f64>>) -> Figure {
        Figure {
            better: Better::Neither,
            ..Figure::more(name, unit, values)
        }
    }

    /// How many times better the first server is than another one.
    #[must_use]
    pub fn times_better(&self, than: usize) -> Option<f64> {
        let first = (*self.values.first()?)?;
        let other = (*self.values.get(than)?)?;
        let ratio = match self.better {
            Better::More => first / other,
            Better::Less => other / first,
            Better::Neither => return None,
        };
        ratio.is_finite().then_some(ratio)
    }

    /// A server's value as a share of the null server's.
    #[must_use]
    pub fn share(&self, server: usize, null: usize) -> Option<f64> {
        if self.better != Better::More || server == null {
            return None;
        }
        let share = (*self.values.get(server)?)? / (*self.values.get(null)?)?;
        share.is_finite().then_some(share)
    }
}

/// A drawing: panels over one axis.
#[derive(Clone)]
pub struct Chart {
    /// The panels.
    pub panels: Vec<Panel>,
    /// The axis ends here.
    pub x_max: f64,
    /// What the axis counts.
    pub x_unit: String,
    /// What its places mean.
    pub axis: Axis,
}

/// One workload's part of a report.
#[derive(Clone)]
pub struct Chapter {
    /// Name on the command line.
    pub workload: &'static str,
    /// Its heading.
    pub title: String,
    /// What it does, in a sentence or two.
    pub about: String,
    /// Settings by name.
    pub settings: Vec<(&'static str, String)>,
    /// How it ended, by server.
    pub endings: Vec<String>,
    /// The servers' numbers, most wanted first.
    pub figures: Vec<Figure>,
    /// More of them, for programs: people see them in tables.
    pub details: Vec<Figure>,
    /// More detail.
    pub tables: Vec<Section>,
    /// Drawings.
    pub charts: Vec<Chart>,
}

/// What the reports of all workloads need to know of the servers.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Their names.
    pub labels: Vec<String>,
    /// Whether each is a null server.
    pub nulls: Vec<bool>,
}

impl Columns {
    /// Of a run.
    #[must_use]
    pub fn of(contest: &Contest) -> Columns {
        Columns {
            labels: contest.labels(),
            nulls: contest.nulls(),
        }
    }

    /// The null server's column.
    #[must_use]
    pub fn null(&self) -> Option<usize> {
        self.nulls.iter().position(|null| *null)
    }
}

impl Chapter {
    /// An empty one.
    #[must_use]
    pub fn new(
        workload: &'static str,
        title: impl Into<String>,
        about: impl Into<String>,
    ) -> Chapter {
        Chapter {
            workload,
            title: title.into(),
            about: about.into(),
            settings: Vec::new(),
            endings: Vec::new(),
            figures: Vec::new(),
            details: Vec::new(),
            tables: Vec::new(),
            charts: Vec::new(),
        }
    }

    /// Notes how a server's part ended.
    pub fn ended(&mut self, ending: &Ending) {
        self.endings.push(ending.to_string());
    }

    /// The figures as a table: a row for each, a column for each server, and how many times better
    /// the first one is than each other one; with a null server, their shares of it.
    #[must_use]
    pub fn result(&self, columns: &Columns) -> Section {
        let mut head = vec!["figure".to_owned()];
        head.extend(columns.labels.iter().cloned());
        let others: Vec<usize> = (1..columns.labels.len())
            .filter(|server| columns.nulls.get(*server) == Some(&false))
            .collect();
        for other in &others {
            let label = columns.labels.get(*other).map_or("", String::as_str);
            head.push(format!("times better than {label}"));
        }
        let null = columns.null().filter(|null| *null > 0);
        if null.is_some() {
            head.push("share of the null server".to_owned());
        }
        let mut ended = vec!["ended".to_owned()];
        ended.extend(self.endings.iter().cloned());
        ended.resize(head.len(), String::new());
        let mut rows = vec![head, ended];
        for figure in &self.figures {
            let mut row = vec![figure.name.clone()];
            row.extend(figure.values.iter().map(|value| show(*value, figure.unit)));
            let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, show_ratio);
            row.extend(
                others
                    .iter()
                    .map(|other| ratio(figure.times_better(*other))),
            );
            if let Some(null) = null {
                row.push(ratio(figure.share(0, null)));
            }
            rows.push(row);
        }
        Section {
            title: "Result".to_owned(),
            rows,
        }
    }
}

/// A value with its unit, with as many decimals as make sense.
#[must_use]
pub fn show(value: Option<f64>, unit: &str) -> String {
    let Some(value) = value else {
        return "-".to_owned();
    };
    let number = match value.abs() {
        _ if value.fract() == 0.0 => thousands(value),
        size if size >= 1000.0 => thousands(value),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    match unit {
        "" => number,
        unit => format!("{number} {unit}"),
    }
}

fn show_ratio(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 100.0 => thousands(ratio),
        ratio if ratio >= 10.0 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_as_many_decimals_as_make_sense() {
        for (value, unit, text) in [
            (None, "ms", "-"),
            (Some(3.0), "", "3"),
            (Some(151_234.56), "documents/s", "151,235 documents/s"),
            (Some(123.456), "ms", "123.5 ms"),
            (Some(1.234), "s", "1.23 s"),
            (Some(0.1234), "", "0.123"),
        ] {
            assert_eq!(show(value, unit), text);
        }
    }

    #[test]
    fn the_first_is_compared_with_the_others_and_with_null() {
        let columns = Columns {
            labels: vec!["A".to_owned(), "B".to_owned(), "null".to_owned()],
            nulls: vec![false, false, true],
        };
        let mut chapter = Chapter::new("insert", "W1", "");
        chapter.endings = vec!["complete".to_owned(); 3];
        chapter.figures = vec![
            Figure::more("speed", "/s", vec![Some(300.0), Some(20.0), Some(600.0)]),
            Figure::less("time", "s", vec![Some(2.0), Some(500.0), None]),
            Figure::told("threads", "", vec![Some(1.0), Some(1.0), Some(1.0)]),
            Figure::more("none", "", vec![Some(1.0), None, Some(0.0)]),
        ];
        let rows = chapter.result(&columns).rows;
        let text: Vec<String> = rows.iter().map(|row| row.join("|")).collect();
        assert_eq!(
            text,
            [
                "figure|A|B|null|times better than B|share of the null server",
                "ended|complete|complete|complete||",
                "speed|300 /s|20 /s|600 /s|15.0|0.50",
                "time|2 s|500 s|-|250|",
                "threads|1|1|1||",
                "none|1|-|0||",
            ]
        );
    }
}
