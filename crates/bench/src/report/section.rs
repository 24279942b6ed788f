//! The report of one workload: figures of each server, tables, charts.

use super::page::Table;
use super::plot::{Axis, Curve, Panel, color};
use crate::format::{show, show_ratio, show_with_unit};

/// Which values of a figure are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Higher,
    /// A time or a size.
    Lower,
    /// Neither: the figure only informs.
    Neither,
}

/// A number that each server has.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultRow {
    pub name: String,
    /// Its unit, such as "documents/s"; may be empty.
    pub unit: &'static str,
    pub better: Better,
    /// By server. `None` where there is none.
    pub values: Vec<Option<f64>>,
}

impl ResultRow {
    pub fn new(
        better: Better,
        name: impl Into<String>,
        unit: &'static str,
        values: Vec<Option<f64>>,
    ) -> ResultRow {
        ResultRow {
            name: name.into(),
            unit,
            better,
            values,
        }
    }

    /// Ratio by which one server is better than another one.
    pub fn times_better(&self, server: usize, than: usize) -> Option<f64> {
        let (one, other) = ((*self.values.get(server)?)?, (*self.values.get(than)?)?);
        let ratio = match self.better {
            Better::Higher => one / other,
            Better::Lower => other / one,
            Better::Neither => return None,
        };
        ratio.is_finite().then_some(ratio)
    }

    /// The server with the best value among at least two, if no other one has the same.
    pub fn winner(&self, servers: &[usize]) -> Option<usize> {
        let mut measured = servers.iter().copied().filter(|server| {
            let value = self.values.get(*server).copied().flatten();
            value.is_some()
        });
        let first = measured.next()?;
        let second = measured.clone().next()?;
        self.times_better(first, second)?;
        let better = |one: usize, than: usize| self.times_better(one, than) > Some(1.0);
        let best = measured.fold(
            first,
            |best, server| if better(server, best) { server } else { best },
        );
        let values = servers
            .iter()
            .map(|server| self.values.get(*server).copied().flatten());
        let same = values.filter(|value| *value == self.values.get(best).copied().flatten());
        (same.count() == 1).then_some(best)
    }

    /// A server's value as a share of the null server's.
    pub fn share(&self, server: usize, null: usize) -> Option<f64> {
        if self.better != Better::Higher || server == null {
            return None;
        }
        let share = (*self.values.get(server)?)? / (*self.values.get(null)?)?;
        share.is_finite().then_some(share)
    }
}

/// Collects figures of results, of which there is one for each server.
pub struct ResultRows<'a, R> {
    pub results: &'a [R],
    pub list: Vec<ResultRow>,
}

impl<'a, R> ResultRows<'a, R> {
    pub fn new(results: &'a [R]) -> ResultRows<'a, R> {
        ResultRows {
            results,
            list: Vec::new(),
        }
    }

    pub fn add(
        &mut self,
        better: Better,
        name: impl Into<String>,
        unit: &'static str,
        value: impl Fn(&R) -> Option<f64>,
    ) {
        let values = self.results.iter().map(value).collect();
        self.list.push(ResultRow::new(better, name, unit, values));
    }

    /// A figure that only some runs have.
    pub fn add_known(
        &mut self,
        better: Better,
        name: impl Into<String>,
        unit: &'static str,
        value: impl Fn(&R) -> Option<f64>,
    ) {
        self.add(better, name, unit, value);
        let unknown = |figure: &mut ResultRow| figure.values.iter().all(Option::is_none);
        self.list.pop_if(unknown);
    }
}

#[derive(Clone)]
pub struct Chart {
    pub panels: Vec<Panel>,
    pub x_max: f64,
    pub x_unit: String,
    pub axis: Axis,
}

impl Chart {
    pub fn new(panels: Vec<Panel>, x_max: f64, x_unit: impl Into<String>) -> Chart {
        Chart {
            panels,
            x_max,
            x_unit: x_unit.into(),
            axis: Axis::Linear,
        }
    }
}

#[derive(Clone)]
pub struct Section {
    /// Name on the command line.
    pub workload: &'static str,
    pub title: String,
    /// Description of the workload in a sentence or two.
    pub about: String,
    pub settings: Vec<(&'static str, String)>,
    /// The ending of the workload on each server.
    pub endings: Vec<String>,
    /// The servers' numbers, most important first.
    pub result_rows: Vec<ResultRow>,
    /// The name of the figure in the summary; the first that has a winner if it is empty.
    pub headline: String,
    /// Further figures, for programs: people see them in tables.
    pub details: Vec<ResultRow>,
    pub tables: Vec<Table>,
    pub charts: Vec<Chart>,
}

/// The servers, as the columns of tables.
#[derive(Clone, Debug)]
pub struct Columns {
    pub labels: Vec<String>,
    /// Whether each is a null server.
    pub nulls: Vec<bool>,
}

impl Columns {
    /// The null server's column.
    pub fn null(&self) -> Option<usize> {
        self.nulls.iter().position(|null| *null)
    }

    /// The columns of real servers.
    pub fn real(&self) -> Vec<usize> {
        let columns = self.nulls.iter().enumerate();
        columns
            .filter(|(_, null)| !**null)
            .map(|(n, _)| n)
            .collect()
    }

    fn label(&self, column: usize) -> &str {
        self.labels.get(column).map_or("", String::as_str)
    }

    /// A curve for each server that has points; that of a null server is dashed.
    pub fn curves<T>(&self, results: &[T], points: impl Fn(&T) -> Vec<(f64, f64)>) -> Vec<Curve> {
        let servers = self.labels.iter().zip(&self.nulls).zip(results);
        servers
            .enumerate()
            .map(|(index, ((label, null), result))| Curve {
                name: label.clone(),
                color: color(index),
                width: 2,
                dashed: *null,
                points: points(result),
            })
            .filter(|curve| !curve.points.is_empty())
            .collect()
    }

    /// A table of the rows of all servers, each with the server's name first if there are several. The names of its columns are
    /// divided by `|`.
    pub fn table<T>(
        &self,
        title: impl Into<String>,
        head: &str,
        results: &[T],
        rows: impl Fn(&T) -> Vec<Vec<String>>,
    ) -> Table {
        let mut first: Vec<String> = head.split('|').map(str::to_owned).collect();
        let several = self.labels.len() > 1;
        if several {
            first.insert(0, "server".to_owned());
        }
        let mut all = vec![first];
        for (label, result) in self.labels.iter().zip(results) {
            for mut row in rows(result) {
                if several {
                    row.insert(0, label.clone());
                }
                all.push(row);
            }
        }
        Table::new(title, all)
    }
}

impl Section {
    pub fn new(
        workload: &'static str,
        title: impl Into<String>,
        about: impl Into<String>,
    ) -> Section {
        Section {
            workload,
            title: title.into(),
            about: about.into(),
            settings: Vec::new(),
            endings: Vec::new(),
            result_rows: Vec::new(),
            headline: String::new(),
            details: Vec::new(),
            tables: Vec::new(),
            charts: Vec::new(),
        }
    }

    /// The figures as a table: a row for each with its unit, a column for each server, and how many
    /// times better the first one is than each other one; with a null server, the first one's share
    /// of it. The best server of each row is bold.
    pub fn result(&self, columns: &Columns) -> Table {
        let mut head = vec!["figure".to_owned(), "unit".to_owned()];
        let first_server = head.len();
        head.extend(columns.labels.iter().cloned());
        let real = columns.real();
        let others: Vec<usize> = real.iter().copied().filter(|n| *n > 0).collect();
        for other in &others {
            head.push(format!("times better than {}", columns.label(*other)));
        }
        let null = columns.null().filter(|null| *null > 0);
        if null.is_some() {
            head.push("share of the null server".to_owned());
        }
        let mut ended = vec!["ended".to_owned(), String::new()];
        ended.extend(self.endings.iter().cloned());
        ended.resize(head.len(), String::new());
        let mut table = Table::new("Result", vec![head, ended]);
        for figure in &self.result_rows {
            if let Some(winner) = figure.winner(&real) {
                table.bold.push((table.rows.len(), first_server + winner));
            }
            let mut row = vec![figure.name.clone(), figure.unit.to_owned()];
            row.extend(figure.values.iter().map(|value| show(*value)));
            let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, show_ratio);
            row.extend(
                others
                    .iter()
                    .map(|other| ratio(figure.times_better(0, *other))),
            );
            if let Some(null) = null {
                row.push(ratio(figure.share(0, null)));
            }
            table.rows.push(row);
        }
        table
    }

    /// One line: which server is best at the headline figure, and how many times better it is than
    /// each other one.
    pub fn summary(&self, columns: &Columns) -> String {
        let real = columns.real();
        let named = |figure: &&ResultRow| figure.name == self.headline;
        let comparable = |figure: &&ResultRow| {
            figure.better != Better::Neither && figure.values.iter().any(Option::is_some)
        };
        let figure = self.result_rows.iter().find(named);
        let Some(figure) = figure.or_else(|| self.result_rows.iter().find(comparable)) else {
            return format!("{}: no figures", self.title);
        };
        let value = |server: usize| figure.values.get(server).copied().flatten();
        let shown = |server: usize| Some(show_with_unit(value(server)?, figure.unit));
        let result = |server: usize| Some(format!("{} {}", columns.label(server), shown(server)?));
        let mut line = format!("{}, {}: ", self.title, figure.name);
        let Some(winner) = figure.winner(&real) else {
            let results: Vec<String> = real.iter().filter_map(|n| result(*n)).collect();
            line.push_str(match results.len() {
                0 => "no result",
                _ => "",
            });
            return line + &results.join(", ");
        };
        let others = real.iter().copied().filter(|server| *server != winner);
        let times: Vec<String> = others
            .filter_map(|other| {
                let ratio = show_ratio(figure.times_better(winner, other)?);
                let (label, value) = (columns.label(other), shown(other)?);
                Some(format!("{ratio} times better than {label} ({value})"))
            })
            .collect();
        let value = shown(winner).unwrap_or_default();
        line.push_str(&format!("{} wins with {value}, ", columns.label(winner)));
        line + &times.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::Better::{Higher, Lower, Neither};
    use super::*;

    #[test]
    fn the_first_is_compared_with_the_others_and_with_null() {
        let columns = Columns {
            labels: vec!["A".to_owned(), "B".to_owned(), "null".to_owned()],
            nulls: vec![false, false, true],
        };
        let mut section = Section::new("insert", "W1", "");
        section.endings = vec!["complete".to_owned(); 3];
        section.result_rows = vec![
            ResultRow::new(
                Higher,
                "speed",
                "/s",
                vec![Some(300.0), Some(20.0), Some(600.0)],
            ),
            ResultRow::new(Lower, "time", "s", vec![Some(2.0), Some(500.0), None]),
            ResultRow::new(
                Neither,
                "threads",
                "",
                vec![Some(1.0), Some(1.0), Some(1.0)],
            ),
            ResultRow::new(Higher, "none", "", vec![Some(1.0), None, Some(0.0)]),
        ];
        let table = section.result(&columns);
        let text: Vec<String> = table.rows.iter().map(|row| row.join("|")).collect();
        assert_eq!(
            text,
            [
                "figure|unit|A|B|null|times better than B|share of the null server",
                "ended||complete|complete|complete||",
                "speed|/s|300|20|600|15.0|0.50",
                "time|s|2|500|-|250|",
                "threads||1|1|1||",
                "none||1|-|0||",
            ]
        );
        // The null server never wins, and one value alone does not either.
        assert_eq!(table.bold, [(2, 2), (3, 2)]);
    }

    #[test]
    fn the_summary_names_the_winner_and_by_how_much() {
        let columns = Columns {
            labels: ["A", "B", "C", "null"].map(str::to_owned).to_vec(),
            nulls: vec![false, false, false, true],
        };
        let mut section = Section::new("insert", "W1", "");
        assert_eq!(section.summary(&columns), "W1: no figures");
        let values = |values: [f64; 4]| values.map(Some).to_vec();
        section.result_rows = vec![
            ResultRow::new(Neither, "documents", "", values([5.0; 4])),
            ResultRow::new(Higher, "speed", "/s", values([20.0, 300.0, 100.0, 600.0])),
            ResultRow::new(Lower, "time", "s", vec![Some(2.0), Some(3.0), None, None]),
            ResultRow::new(Higher, "even", "", values([7.0, 7.0, 1.0, 9.0])),
            ResultRow::new(Higher, "one", "", vec![None, Some(7.0), None, Some(9.0)]),
        ];
        for (headline, line) in [
            (
                "",
                "W1, speed: B wins with 300 /s, 15.0 times better than A (20 /s), 3.00 times better than C (100 /s)",
            ),
            (
                "time",
                "W1, time: A wins with 2 s, 1.50 times better than B (3 s)",
            ),
            ("even", "W1, even: A 7, B 7, C 1"),
            ("one", "W1, one: B 7"),
        ] {
            section.headline = headline.to_owned();
            assert_eq!(section.summary(&columns), line);
        }
    }
}
