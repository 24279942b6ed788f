//! The parts of a page: tables, charts, head and style.

use std::fmt::Write;

/// A table with its heading.
#[derive(Clone, Debug)]
pub struct Table {
    pub title: String,
    /// The first row names the columns.
    pub rows: Vec<Vec<String>>,
    /// Cells in bold, by row and column.
    pub bold: Vec<(usize, usize)>,
}

impl Table {
    /// A table without bold cells.
    pub fn new(title: impl Into<String>, rows: Vec<Vec<String>>) -> Table {
        Table {
            title: title.into(),
            rows,
            bold: Vec::new(),
        }
    }

    pub fn of_pairs(title: &str, pairs: &[(&str, String)]) -> Table {
        let mut rows = vec![vec!["what".to_owned(), "value".to_owned()]];
        rows.extend(
            pairs
                .iter()
                .map(|(name, value)| vec![(*name).to_owned(), value.clone()]),
        );
        Table::new(title, rows)
    }

    /// As columns of text.
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

impl Table {
    /// As Markdown, under a heading of this level.
    pub fn to_markdown(&self, level: usize) -> String {
        let mut out = format!("\n{} {}\n\n", "#".repeat(level), self.title);
        for (index, row) in self.rows.iter().enumerate() {
            let cell = |(column, cell): (usize, &String)| {
                let text = cell.replace('|', "\\|");
                if self.bold.contains(&(index, column)) {
                    format!("**{text}**")
                } else {
                    text
                }
            };
            let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(out, "| {} |", cells.join(" | "));
            if index == 0 {
                let _ = writeln!(out, "|{}", " --- |".repeat(row.len()));
            }
        }
        out
    }

    pub fn to_html(&self) -> String {
        let mut out = format!(
            "<h3>{}</h3>\n<div class=\"wide\"><table>\n",
            escape(&self.title)
        );
        for (index, row) in self.rows.iter().enumerate() {
            let head = index == 0;
            if head {
                out.push_str("<thead>");
            }
            out.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let tag = if head || column == 0 { "th" } else { "td" };
                let text = escape(cell);
                let _ = if self.bold.contains(&(index, column)) {
                    write!(out, "<{tag}><b>{text}</b></{tag}>")
                } else {
                    write!(out, "<{tag}>{text}</{tag}>")
                };
            }
            out.push_str("</tr>");
            out.push_str(if head { "</thead>\n<tbody>\n" } else { "\n" });
        }
        out.push_str("</tbody></table></div>\n");
        out
    }
}

/// The beginning of a section; `</section>` ends it.
pub fn open_section(id: &str, title: &str, about: &str) -> String {
    let mut out = format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n",
        escape(id),
        escape(title)
    );
    if !about.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(about));
    }
    out
}

pub fn list(items: &[String]) -> String {
    let mut out = String::from("<ul>\n");
    for item in items {
        let _ = writeln!(out, "<li>{}</li>", escape(item));
    }
    out + "</ul>\n"
}

pub fn figure(svg: &str) -> String {
    format!("<figure>{svg}</figure>\n")
}

/// A command to type.
pub fn command(text: &str) -> String {
    format!("<h3>How to repeat</h3>\n<pre>{}</pre>\n", escape(text))
}

/// A page around its body. Chapters are (id, title).
pub fn whole(title: &str, under: &str, sections: &[(&str, &str)], body: &str) -> String {
    let mut links = String::new();
    for (id, title) in sections {
        let _ = write!(links, "<a href=\"#{}\">{}</a> ", escape(id), escape(title));
    }
    let (title, under) = (escape(title), escape(under));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{title}</h1>\n<p>{under}</p>\n<nav>{links}</nav></header>\n\
         <main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// Plain, wide enough for tables, and readable in the dark.
const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #2b2f36; --dim: #667; --line: #d9dde3; --paper: #fff; --tint: #f5f7fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6ea; --dim: #a0a6b0; --line: #3a3f47; --paper: #16181c; --tint: #1f2227; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0; }
header { background: var(--tint); border-bottom: 1px solid var(--line); padding: 1.5rem max(1rem, 50vw - 32rem) 1rem; }
main { max-width: 64rem; margin: 0 auto; padding: 0 1rem 4rem; }
h1 { margin: 0; font-size: 1.7rem; }
h2 { margin: 2.5rem 0 .5rem; font-size: 1.35rem; }
h3 { margin: 1.6rem 0 .4rem; font-size: 1rem; }
header p { margin: .3rem 0 .8rem; color: var(--dim); }
nav a { margin-right: 1.2rem; white-space: nowrap; color: inherit; }
figure { margin: 1rem 0; }
svg { max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line); border-radius: 6px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; font-weight: normal; padding: .22rem 1.4rem .22rem 0; border-bottom: 1px solid var(--line); }
thead th { font-weight: 600; }
tbody th { color: var(--dim); }
pre { background: var(--tint); padding: .8rem 1rem; overflow-x: auto; border-radius: 6px; }
";

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
        let mut table = Table::of_pairs("Result", &[("a|b", "1<2".to_owned())]);
        assert_eq!(
            table.to_markdown(2),
            "\n## Result\n\n| what | value |\n| --- | --- |\n| a\\|b | 1<2 |\n"
        );
        let html = table.to_html();
        assert!(
            html.contains("<tr><th>a|b</th><td>1&lt;2</td></tr>"),
            "{html}"
        );
        table.bold = vec![(1, 1)];
        assert!(table.to_markdown(2).contains("| a\\|b | **1<2** |"));
        assert!(table.to_html().contains("<td><b>1&lt;2</b></td>"));
        assert_eq!(list(&["x<y".to_owned()]), "<ul>\n<li>x&lt;y</li>\n</ul>\n");
        assert_eq!(table.to_text(), "Result\n  what  value\n  a|b   1<2\n");
        assert_eq!(escape("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }

    #[test]
    fn a_page_stands_alone() {
        let body = format!(
            "{}{}</section>",
            open_section("a", "A & B", "x"),
            figure("<svg/>")
        );
        let page = whole("T<", "u", &[("a", "A & B")], &body);
        for part in [
            "<h1>T&lt;</h1>",
            "<a href=\"#a\">A &amp; B</a>",
            "<section id=\"a\">\n<h2>A &amp; B</h2>\n<p>x</p>\n<figure><svg/></figure>",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        assert!(!page.contains("http"), "nothing is fetched from elsewhere");
    }
}
