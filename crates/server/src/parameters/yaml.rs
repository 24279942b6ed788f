//! Loading YAML within limits. Aliases are copies of what they name, so a short text can stand for a huge one; and the loader calls
//! itself for each level.

use std::collections::HashMap;

use yaml_rust2::parser::{Event, Parser};
use yaml_rust2::{Yaml, YamlLoader};

/// A longer text is no configuration file.
pub const BYTES_MAX: usize = 1 << 20;

/// Levels of lists and mappings. Settings need four.
const DEPTH_MAX: usize = 32;

/// Bytes of all values, with each alias counted as what it names.
const EXPANDED_BYTES_MAX: u64 = 16 << 20;

/// Bytes that a value takes besides its text, about.
const NODE_BYTES: u64 = 64;

/// The documents of a text.
pub fn load(text: &str) -> Result<Vec<Yaml>, String> {
    check(text)?;
    YamlLoader::load_from_str(text).map_err(|error| format!("not valid YAML: {error}"))
}

/// Checks a text level by level, without the loader.
fn check(text: &str) -> Result<(), String> {
    if text.len() > BYTES_MAX {
        return Err(format!("longer than {BYTES_MAX} bytes"));
    }
    let mut parser = Parser::new_from_str(text);
    // The lists and mappings around the current place: their anchors, and their bytes up to here.
    let mut open: Vec<(usize, u64)> = Vec::new();
    let mut anchors: HashMap<usize, u64> = HashMap::new();
    let mut all = 0_u64;
    loop {
        let (event, mark) = parser
            .next_token()
            .map_err(|error| format!("not valid YAML: {error}"))?;
        let (anchor, bytes) = match event {
            Event::StreamEnd => return Ok(()),
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                open.push((anchor, NODE_BYTES));
                if open.len() > DEPTH_MAX {
                    return Err(format!(
                        "line {} is nested deeper than {DEPTH_MAX} levels",
                        mark.line()
                    ));
                }
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().unwrap_or_default(),
            Event::Scalar(text, _, anchor, _) => (anchor, NODE_BYTES + text.len() as u64),
            Event::Alias(anchor) => {
                let bytes = anchors.get(&anchor).copied().unwrap_or(NODE_BYTES);
                all = all.saturating_add(bytes);
                if all > EXPANDED_BYTES_MAX {
                    return Err(format!(
                        "the aliases up to line {} stand for more than {EXPANDED_BYTES_MAX} bytes",
                        mark.line()
                    ));
                }
                (0, bytes)
            }
            _ => continue,
        };
        if anchor > 0 {
            anchors.insert(anchor, bytes);
        }
        if let Some((_, outer)) = open.last_mut() {
            *outer = outer.saturating_add(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_take_too_much_memory_is_refused() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let inner = vec![format!("*a{}", level - 1); 10].join(", ");
            laughs.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
        }
        let big = format!(
            "a: &a {}\nb: [{}]\n",
            "x".repeat(1 << 19),
            vec!["*a"; 100].join(", ")
        );
        for (text, why) in [
            (laughs, "aliases"),
            (big, "aliases"),
            ("- ".repeat(1 << 18), "nested deeper"),
            ("[".repeat(200), "nested deeper"),
            ("{a: ".repeat(100), "nested deeper"),
            ("? ".repeat(1 << 18), "nested deeper"),
            (" ".repeat(BYTES_MAX + 1), "longer than"),
            ("a: *none".to_owned(), "not valid"),
        ] {
            let error = load(&text).err().unwrap_or_default();
            let start: String = text.chars().take(30).collect();
            assert!(error.contains(why), "{start}: {error}");
        }
    }

    #[test]
    fn aliases_of_ordinary_files_work() {
        let text = "net: &net\n  port: 1\nother: *net\nlist: [&x 1, *x]\n";
        let loaded = load(text).unwrap_or_default();
        assert_eq!(loaded[0]["other"]["port"].as_i64(), Some(1));
        assert_eq!(loaded[0]["list"][1].as_i64(), Some(1));
        assert_eq!(load("").map(|found| found.len()), Ok(0));
    }
}
