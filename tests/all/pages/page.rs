//! The parts of a page that are generated from runs. They are enclosed by two comments, which name their template
//! in `benchmarks/pages/`:
//!
//! ```text
//! <!-- figures: insertion -->
//! …
//! <!-- /figures -->
//! ```

const OPEN: &str = "<!-- figures: ";
const CLOSE: &str = "<!-- /figures -->\n";

/// A piece of a page.
#[derive(Debug, PartialEq)]
pub enum Piece<'a> {
    /// Text that is written by hand.
    Hand(&'a str),
    /// The line that opens a part, the name of the part, and its text.
    Part(&'a str, &'a str, &'a str),
}

/// Cuts a page into its pieces.
pub fn pieces(page: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find(OPEN) {
        let (before, from) = rest.split_at(start);
        let unfinished = || format!("{} has no end", from.lines().next().unwrap_or_default());
        let (line, after) = from.split_once('\n').ok_or_else(unfinished)?;
        let name = line[OPEN.len()..]
            .strip_suffix(" -->")
            .ok_or_else(unfinished)?;
        let (inside, after) = after.split_once(CLOSE).ok_or_else(unfinished)?;
        if inside.contains(OPEN) {
            return Err(unfinished());
        }
        pieces.extend([Piece::Hand(before), Piece::Part(line, name, inside)]);
        rest = after;
    }
    pieces.push(Piece::Hand(rest));
    Ok(pieces)
}

/// The page with its parts as `write` makes them.
pub fn rewrite(
    page: &str,
    mut write: impl FnMut(&str) -> Result<String, String>,
) -> Result<String, String> {
    let mut out = String::new();
    for piece in pieces(page)? {
        match piece {
            Piece::Hand(text) => out.push_str(text),
            Piece::Part(line, name, _) => {
                let text = write(name).map_err(|error| format!("{name}: {error}"))?;
                out.push_str(&format!("{line}\n{}\n{CLOSE}", text.trim_end()));
            }
        }
    }
    Ok(out)
}
