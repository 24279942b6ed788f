//! The report of a run: its chapters, for people and for programs.

use std::fs;
use std::path::Path;

use frond_bson::{DocBuf, extjson};

use super::chapter::{Chapter, Columns};
use super::page::{self, Section};
use super::{plot, thousands};
use crate::contest::Contest;
use crate::error::{Error, Result};

/// What stands around the chapters.
pub struct Book {
    columns: Columns,
    started: jiff::Timestamp,
    command: String,
    servers: Section,
    machine: Section,
    /// By workload.
    pub chapters: Vec<Chapter>,
}

impl Book {
    /// Of a run, still empty.
    #[must_use]
    pub fn new(contest: &Contest) -> Book {
        let mut rows = vec![vec!["what".to_owned()]];
        let mut names: Vec<&'static str> = Vec::new();
        for contestant in &contest.contestants {
            for (name, _) in &contestant.description.facts {
                if !names.contains(name) {
                    names.push(name);
                }
            }
        }
        rows[0].extend(contest.labels());
        let mut uris = vec!["uri".to_owned()];
        uris.extend(contest.contestants.iter().map(|c| c.uri.clone()));
        rows.push(uris);
        for name in names {
            let mut row = vec![name.to_owned()];
            for contestant in &contest.contestants {
                let facts = &contestant.description.facts;
                let value = facts.iter().find(|(fact, _)| *fact == name);
                row.push(value.map_or_else(|| "-".to_owned(), |(_, value)| value.clone()));
            }
            rows.push(row);
        }
        let machine = &contest.machine;
        let memory = machine.memory_bytes as f64 / 1_048_576.0;
        let machine = [
            ("frond-bench", env!("CARGO_PKG_VERSION").to_owned()),
            ("processor", machine.cpu.clone()),
            ("cores", machine.cores.to_string()),
            ("memory", format!("{} MiB", thousands(memory))),
            ("system", machine.system.clone()),
        ];
        Book {
            columns: Columns::of(contest),
            started: contest.started,
            command: command_line(),
            servers: Section {
                title: "Servers".to_owned(),
                rows,
            },
            machine: Section::of_pairs("Client's machine", &machine),
            chapters: Vec::new(),
        }
    }

    /// Writes all files but the trace, which is there already. May be done again with more chapters.
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

    /// The charts of each chapter: (name of the file, drawing).
    fn charts(&self) -> Result<Vec<Vec<(String, String)>>> {
        let drawn = |chapter: &Chapter| {
            let charts = chapter.charts.iter().enumerate();
            charts
                .map(|(index, chart)| {
                    let name = match index {
                        0 => format!("{}.svg", chapter.workload),
                        _ => format!("{}-{}.svg", chapter.workload, index + 1),
                    };
                    let svg = plot::svg(&chart.panels, chart.x_max, &chart.x_unit, chart.axis)?;
                    Ok((name, svg))
                })
                .collect::<Result<Vec<_>>>()
        };
        self.chapters.iter().map(drawn).collect()
    }

    fn title(&self) -> String {
        match self.chapters.as_slice() {
            [chapter] => chapter.title.clone(),
            _ => "Workloads side by side".to_owned(),
        }
    }

    fn when(&self) -> String {
        self.started.strftime("%Y-%m-%d %H:%M UTC").to_string()
    }

    /// As Markdown, with links to the charts.
    #[must_use]
    fn to_markdown(&self, svgs: &[Vec<(String, String)>]) -> String {
        let mut out = format!(
            "# {}\n\n{}, measured on {}.\n",
            self.title(),
            self.columns.labels.join(", "),
            self.when()
        );
        for (chapter, svgs) in self.chapters.iter().zip(svgs) {
            out.push_str(&format!("\n## {}\n\n{}\n", chapter.title, chapter.about));
            for section in self.sections(chapter) {
                out.push_str(&section.to_markdown(3));
            }
            for (name, _) in svgs {
                out.push_str(&format!("\n![{}]({name})\n", chapter.title));
            }
        }
        for section in [&self.servers, &self.machine] {
            out.push_str(&section.to_markdown(2));
        }
        out.push_str(&format!(
            "\n## How to repeat\n\n```sh\n{}\n```\n",
            self.command
        ));
        out
    }

    /// As one HTML page that needs nothing else.
    #[must_use]
    fn to_html(&self, svgs: &[Vec<(String, String)>]) -> String {
        let mut body = String::new();
        for (chapter, svgs) in self.chapters.iter().zip(svgs) {
            body.push_str(&page::open_chapter(
                chapter.workload,
                &chapter.title,
                &chapter.about,
            ));
            for (index, section) in self.sections(chapter).iter().enumerate() {
                body.push_str(&section.to_html());
                if index == 0 {
                    for (_, svg) in svgs {
                        body.push_str(&page::figure(svg));
                    }
                }
            }
            body.push_str("</section>\n");
        }
        body.push_str(&page::open_chapter("about", "How it was measured", ""));
        for section in [&self.servers, &self.machine] {
            body.push_str(&section.to_html());
        }
        body.push_str(&page::command(&self.command));
        body.push_str("</section>\n");
        let chapters: Vec<(&str, &str)> = self
            .chapters
            .iter()
            .map(|chapter| (chapter.workload, chapter.title.as_str()))
            .chain([("about", "How it was measured")])
            .collect();
        let under = format!("{} · {}", self.columns.labels.join(" · "), self.when());
        page::whole(&self.title(), &under, &chapters, &body)
    }

    fn sections(&self, chapter: &Chapter) -> Vec<Section> {
        let mut sections = vec![chapter.result(&self.columns)];
        sections.extend(chapter.tables.iter().cloned());
        sections.push(Section::of_pairs("Settings", &chapter.settings));
        sections
    }

    /// For programs: plain numbers, in the unit that stands beside them.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut doc = DocBuf::new();
        doc.push("started", self.started.to_string().as_str());
        doc.push("command", self.command.as_str());
        doc.push_array("servers", |servers| {
            for label in &self.columns.labels {
                servers.push(label.as_str());
            }
        });
        for section in [&self.servers, &self.machine] {
            doc.push_array(section.title.as_str(), |rows| {
                for row in section.rows.iter().skip(1) {
                    rows.push_array(|cells| {
                        for cell in row {
                            cells.push(cell.as_str());
                        }
                    });
                }
            });
        }
        doc.push_doc("workloads", |workloads| {
            for chapter in &self.chapters {
                workloads.push_doc(chapter.workload, |out| self.chapter_json(chapter, out));
            }
        });
        let mut json = extjson::to_relaxed(&doc);
        json.push('\n');
        json
    }

    fn chapter_json(&self, chapter: &Chapter, out: &mut DocBuf) {
        out.push_doc("settings", |settings| {
            for (name, value) in &chapter.settings {
                settings.push(name, value.as_str());
            }
        });
        out.push_doc("ended", |endings| {
            for (label, ending) in self.columns.labels.iter().zip(&chapter.endings) {
                endings.push(label, ending.as_str());
            }
        });
        out.push_doc("figures", |figures| {
            for figure in chapter.figures.iter().chain(&chapter.details) {
                figures.push_doc(&figure.name, |out| {
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
        for chapter in &self.chapters {
            for figure in chapter.figures.iter().chain(&chapter.details) {
                for (label, value) in self.columns.labels.iter().zip(&figure.values) {
                    let value = value.map_or_else(String::new, |value| value.to_string());
                    record([chapter.workload, label, &figure.name, figure.unit, &value])?;
                }
            }
        }
        let bytes = writer
            .into_inner()
            .map_err(|error| csv_error(error.into_error().into()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// For the terminal.
    #[must_use]
    pub fn to_text(&self, folder: &Path) -> String {
        let mut out = String::new();
        for chapter in &self.chapters {
            let mut section = chapter.result(&self.columns);
            section.title.clone_from(&chapter.title);
            out.push_str(&section.to_text());
            for table in &chapter.tables {
                out.push_str(&table.to_text());
            }
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

/// The command that made the report, without the folder of the program.
fn command_line() -> String {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let quoted = words.map(|word| {
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
