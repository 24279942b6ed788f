//! A report as a page: a title, a chart, tables.

use std::fmt::Write;

/// A table with its heading.
#[derive(Clone, Debug)]
pub struct Section {
    /// What stands above it.
    pub title: String,
    /// The first row names the columns.
    pub rows: Vec<Vec<String>>,
}

impl Section {
    /// A table of names and values.
    #[must_use]
    pub fn of_pairs(title: &str, pairs: &[(&'static str, String)]) -> Section {
        let mut rows = vec![vec!["what".to_owned(), "value".to_owned()]];
        rows.extend(
            pairs
                .iter()
                .map(|(name, value)| vec![(*name).to_owned(), value.clone()]),
        );
        Section {
            title: title.to_owned(),
            rows,
        }
    }

    /// As columns of text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = format!("{}\n", self.title);
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                // Writing to a string cannot fail.
                let _ = write!(line, "  {cell:<width$}");
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out
    }
}

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
            // Writing to a string cannot fail.
            let _ = write!(out, "\n## {}\n\n", section.title);
            for (index, row) in section.rows.iter().enumerate() {
                let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
                let _ = writeln!(out, "| {} |", cells.join(" | "));
                if index == 0 {
                    let _ = writeln!(out, "|{}", " --- |".repeat(row.len()));
                }
            }
        }
        out
    }

    /// As HTML with the chart in it, which needs nothing else.
    #[must_use]
    pub fn to_html(&self, svg: &str) -> String {
        let mut tables = String::new();
        for section in &self.sections {
            let _ = writeln!(tables, "<h2>{}</h2>\n<table>", escape(&section.title));
            for (index, row) in section.rows.iter().enumerate() {
                let name = if index == 0 { "thead" } else { "tbody" };
                let mut cells = String::new();
                for (column, cell) in row.iter().enumerate() {
                    let tag = if index == 0 || column == 0 {
                        "th"
                    } else {
                        "td"
                    };
                    let _ = write!(cells, "<{tag}>{}</{tag}>", escape(cell));
                }
                let _ = writeln!(tables, "<{name}><tr>{cells}</tr></{name}>");
            }
            tables.push_str("</table>\n");
        }
        let title = escape(self.title);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n\
             body {{ font: 16px/1.5 system-ui, sans-serif; color: #333; max-width: 1000px; \
             margin: 2rem auto; padding: 0 1rem; }}\n\
             svg {{ max-width: 100%; height: auto; }}\n\
             table {{ border-collapse: collapse; }}\n\
             th, td {{ text-align: left; font-weight: normal; padding: .2rem 1.5rem .2rem 0; \
             border-bottom: 1px solid #ddd; }}\n\
             th {{ color: #666; }}\n</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
             {svg}\n{tables}</body>\n</html>\n"
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_written_for_both_kinds_of_page() {
        let page = Page {
            title: "A & B",
            sections: vec![Section::of_pairs("Result", &[("a|b", "1<2".to_owned())])],
        };
        let markdown = page.to_markdown();
        assert!(
            markdown.ends_with("## Result\n\n| what | value |\n| --- | --- |\n| a\\|b | 1<2 |\n"),
            "{markdown}"
        );
        let html = page.to_html("<svg></svg>");
        for part in ["<h1>A &amp; B</h1>\n<svg>", "<th>a|b</th><td>1&lt;2</td>"] {
            assert!(html.contains(part), "{html}");
        }
        let text = page
            .sections
            .iter()
            .map(Section::to_text)
            .collect::<String>();
        assert_eq!(text, "Result\n  what  value\n  a|b   1<2\n");
        assert_eq!(escape("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
