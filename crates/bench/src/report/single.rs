//! The report of one server: a title, a chart, tables.

use std::fs;
use std::path::Path;

use super::page::{self, Section};
use crate::error::{Error, Result};

/// What a report shows to people.
#[derive(Clone, Debug)]
pub struct Page {
    /// Name of the workload.
    pub title: &'static str,
    /// The tables, most wanted first.
    pub sections: Vec<Section>,
}

impl Page {
    /// As Markdown, with a link to the chart.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut out = format!("# {}\n\n![Chart](chart.svg)\n", self.title);
        for section in &self.sections {
            out.push_str(&section.to_markdown(2));
        }
        out
    }

    /// As HTML with the chart in it, which needs nothing else.
    #[must_use]
    pub fn to_html(&self, svg: &str) -> String {
        let tables: String = self.sections.iter().map(Section::to_html).collect();
        page::whole(
            self.title,
            "",
            &[],
            &format!("{}{tables}", page::figure(svg)),
        )
    }
}

/// Writes a report: for people, for programs, and the chart.
pub fn write_files(folder: &Path, page: &Page, json: &str, svg: &str) -> Result<()> {
    for (name, text) in [
        ("summary.json", json),
        ("summary.md", &page.to_markdown()),
        ("chart.html", &page.to_html(svg)),
        ("chart.svg", svg),
    ] {
        let path = folder.join(name);
        fs::write(&path, text)
            .map_err(|error| Error::Io(format!("writing {}", path.display()), error))?;
    }
    Ok(())
}
