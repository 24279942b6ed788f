//! The report of a run: its sections, for people and for programs.

use std::fs;
use std::path::Path;

use frond_bson::{DocBuf, extjson};
use frond_client::{Error, Result, uri::without_passwords};

use super::page::{self, Table};
use super::plot;
use super::section::{Columns, Section};
use crate::format::thousands;
use crate::machine::Machine;
use crate::system::Description;

#[derive(Clone, Debug)]
pub struct Server {
    /// Its name, with a number if another one has the same.
    pub label: String,
    /// Its connection string; empty for a null server inside this process.
    pub uri: String,
    pub description: Description,
}

pub struct Report {
    columns: Columns,
    started: jiff::Timestamp,
    command: String,
    servers: Table,
    machine: Table,
    pub sections: Vec<Section>,
}

impl Report {
    /// A report without sections.
    pub fn new(servers: Vec<Server>, started: jiff::Timestamp, machine: &Machine) -> Report {
        let row = |name: &str, value: &dyn Fn(&Server) -> String| {
            let mut row = vec![name.to_owned()];
            row.extend(servers.iter().map(value));
            row
        };
        let mut names: Vec<&'static str> = Vec::new();
        for (name, _) in servers.iter().flat_map(|server| &server.description.facts) {
            if !names.contains(name) {
                names.push(name);
            }
        }
        let mut rows = vec![
            row("what", &|server| server.label.clone()),
            row("uri", &|server| server.uri.clone()),
        ];
        rows.extend(names.into_iter().map(|name| {
            row(name, &|server| {
                let mut facts = server.description.facts.iter();
                let fact = facts.find(|(fact, _)| *fact == name);
                fact.map_or_else(|| "-".to_owned(), |(_, value)| value.clone())
            })
        }));
        let memory = machine.memory_bytes as f64 / 1_048_576.0;
        let machine = [
            ("frond-bench", env!("CARGO_PKG_VERSION").to_owned()),
            ("processor", machine.cpu.clone()),
            ("cores", machine.cores.to_string()),
            ("memory", format!("{} MiB", thousands(memory))),
            ("system", machine.system.clone()),
        ];
        Report {
            columns: Columns {
                nulls: servers.iter().map(|s| s.description.null).collect(),
                labels: servers.into_iter().map(|server| server.label).collect(),
            },
            started,
            command: command_line(std::env::args()),
            servers: Table::new("Servers", rows),
            machine: Table::of_pairs("Client's machine", &machine),
            sections: Vec::new(),
        }
    }

    /// Writes all files but the trace, which is there already. May be done again with more sections.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let svgs = self.charts()?;
        for (name, text) in [
            ("report.html", self.to_html(&svgs)),
            ("summary.md", self.to_markdown(&svgs)),
            ("summary.json", self.to_json()),
            ("results.csv", self.to_csv()?),
        ] {
            write_file(folder, name, &text)?;
        }
        for (name, svg) in svgs.iter().flatten() {
            write_file(folder, name, svg)?;
        }
        Ok(())
    }

    /// The charts of each section: (name of the file, drawing).
    fn charts(&self) -> Result<Vec<Vec<(String, String)>>> {
        let drawn = |section: &Section| {
            let charts = section.charts.iter().enumerate();
            charts
                .map(|(index, chart)| {
                    let name = match index {
                        0 => format!("{}.svg", section.workload),
                        _ => format!("{}-{}.svg", section.workload, index + 1),
                    };
                    let svg = plot::svg(&chart.panels, chart.x_max, &chart.x_unit, chart.axis)?;
                    Ok((name, svg))
                })
                .collect::<Result<Vec<_>>>()
        };
        self.sections.iter().map(drawn).collect()
    }

    /// A line for each workload.
    fn summary(&self) -> Vec<String> {
        let sections = self.sections.iter();
        sections
            .map(|section| section.summary(&self.columns))
            .collect()
    }

    fn title(&self) -> String {
        match self.sections.as_slice() {
            [section] => section.title.clone(),
            _ => "Workloads side by side".to_owned(),
        }
    }

    fn when(&self) -> String {
        self.started.strftime("%Y-%m-%d %H:%M UTC").to_string()
    }

    /// As Markdown, with links to the charts.
    fn to_markdown(&self, svgs: &[Vec<(String, String)>]) -> String {
        let mut out = format!(
            "# {}\n\n{}, measured on {}.\n",
            self.title(),
            self.columns.labels.join(", "),
            self.when()
        );
        out.push_str("\n## Summary\n\n");
        for line in self.summary() {
            out.push_str(&format!("- {line}\n"));
        }
        for (section, svgs) in self.sections.iter().zip(svgs) {
            out.push_str(&format!("\n## {}\n\n{}\n", section.title, section.about));
            for table in self.tables(section) {
                out.push_str(&table.to_markdown(3));
            }
            for (name, _) in svgs {
                out.push_str(&format!("\n![{}]({name})\n", section.title));
            }
        }
        for table in [&self.servers, &self.machine] {
            out.push_str(&table.to_markdown(2));
        }
        out.push_str(&format!(
            "\n## How to repeat\n\n```sh\n{}\n```\n",
            self.command
        ));
        out
    }

    /// As one HTML page that needs nothing else.
    fn to_html(&self, svgs: &[Vec<(String, String)>]) -> String {
        let mut body = page::open_section("summary", "Summary", "");
        body.push_str(&page::list(&self.summary()));
        body.push_str("</section>\n");
        for (section, svgs) in self.sections.iter().zip(svgs) {
            body.push_str(&page::open_section(
                section.workload,
                &section.title,
                &section.about,
            ));
            for (index, table) in self.tables(section).iter().enumerate() {
                body.push_str(&table.to_html());
                if index == 0 {
                    for (_, svg) in svgs {
                        body.push_str(&page::figure(svg));
                    }
                }
            }
            body.push_str("</section>\n");
        }
        body.push_str(&page::open_section("about", "How it was measured", ""));
        for table in [&self.servers, &self.machine] {
            body.push_str(&table.to_html());
        }
        body.push_str(&page::command(&self.command));
        body.push_str("</section>\n");
        let sections = self
            .sections
            .iter()
            .map(|section| (section.workload, section.title.as_str()))
            .chain([("about", "How it was measured")]);
        let sections: Vec<(&str, &str)> = [("summary", "Summary")]
            .into_iter()
            .chain(sections)
            .collect();
        let under = format!("{} · {}", self.columns.labels.join(" · "), self.when());
        page::whole(&self.title(), &under, &sections, &body)
    }

    fn tables(&self, section: &Section) -> Vec<Table> {
        let mut tables = vec![section.result(&self.columns)];
        tables.extend(section.tables.iter().cloned());
        tables.push(Table::of_pairs("Settings", &section.settings));
        tables
    }

    /// For programs: plain numbers, in the unit that stands beside them.
    pub fn to_json(&self) -> String {
        let mut doc = DocBuf::new();
        doc.push("started", self.started.to_string().as_str());
        doc.push("command", self.command.as_str());
        doc.push_array("servers", |servers| {
            for label in &self.columns.labels {
                servers.push(label.as_str());
            }
        });
        for table in [&self.servers, &self.machine] {
            doc.push_array(table.title.as_str(), |rows| {
                for row in table.rows.iter().skip(1) {
                    rows.push_array(|cells| {
                        for cell in row {
                            cells.push(cell.as_str());
                        }
                    });
                }
            });
        }
        doc.push_doc("workloads", |workloads| {
            for section in &self.sections {
                workloads.push_doc(section.workload, |out| self.section_json(section, out));
            }
        });
        let mut json = extjson::to_relaxed(&doc);
        json.push('\n');
        json
    }

    fn section_json(&self, section: &Section, out: &mut DocBuf) {
        out.push_doc("settings", |settings| {
            for (name, value) in &section.settings {
                settings.push(name, value.as_str());
            }
        });
        out.push_doc("ended", |endings| {
            for (label, ending) in self.columns.labels.iter().zip(&section.endings) {
                endings.push(label, ending.as_str());
            }
        });
        out.push_doc("figures", |result_rows| {
            for figure in section.result_rows.iter().chain(&section.details) {
                result_rows.push_doc(&figure.name, |out| {
                    out.push("unit", figure.unit);
                    for (label, value) in self.columns.labels.iter().zip(&figure.values) {
                        out.push(label, *value);
                    }
                });
            }
        });
    }

    /// A line for each figure of each server.
    fn to_csv(&self) -> Result<String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let mut record = |fields: [&str; 5]| writer.write_record(fields).map_err(csv_error);
        record(["workload", "server", "figure", "unit", "value"])?;
        for section in &self.sections {
            for figure in section.result_rows.iter().chain(&section.details) {
                for (label, value) in self.columns.labels.iter().zip(&figure.values) {
                    let value = value.map_or_else(String::new, |value| value.to_string());
                    record([section.workload, label, &figure.name, figure.unit, &value])?;
                }
            }
        }
        let bytes = writer
            .into_inner()
            .map_err(|error| csv_error(error.into_error().into()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn to_text(&self, folder: &Path) -> String {
        let mut out = String::new();
        for section in &self.sections {
            let mut table = section.result(&self.columns);
            table.title.clone_from(&section.title);
            out.push_str(&table.to_text());
            for table in &section.tables {
                out.push_str(&table.to_text());
            }
        }
        out.push_str("Summary\n");
        for line in self.summary() {
            out.push_str(&format!("  {line}\n"));
        }
        out.push_str(&format!(
            "report: {}\n",
            folder.join("report.html").display()
        ));
        out
    }
}

fn write_file(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(|error| Error::Io(format!("writing {}", path.display()), error))
}

fn csv_error(error: csv::Error) -> Error {
    Error::Io(
        "writing results.csv".to_owned(),
        std::io::Error::other(error),
    )
}

/// The command that made the report, without the folder of the program and without passwords.
fn command_line(words: impl IntoIterator<Item = String>) -> String {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let quoted = words.map(|word| {
        let word = if word.contains("://") {
            without_passwords(&word)
        } else {
            word
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    std::iter::once(name.unwrap_or_default())
        .chain(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_report_has_no_passwords() {
        let uri = "mongodb://ann:secret@host/?tls=true&tlsCertificateKeyFilePassword=hidden";
        let joined = format!("--uri={uri}");
        for words in [vec!["--uri", uri], vec![joined.as_str()]] {
            let words = ["/opt/frond", "bench"].into_iter().chain(words);
            let shown = command_line(words.map(str::to_owned));
            assert!(shown.starts_with("frond bench "), "{shown}");
            assert!(shown.contains("ann@host/?tls=true"), "{shown}");
            assert!(
                !shown.contains("secret") && !shown.contains("hidden"),
                "{shown}"
            );
        }
    }
}
