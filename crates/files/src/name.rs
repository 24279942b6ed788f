//! Names from a server or from a file as components of paths.

use std::fmt;

/// The most bytes of a name that file systems take.
const BYTES_MAX: usize = 255;

/// A name that cannot be a component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    name: String,
    why: &'static str,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start: String = self.name.chars().take(80).collect();
        let cut = if start.len() < self.name.len() {
            "…"
        } else {
            ""
        };
        // Debug escapes control characters, which could change what a terminal shows.
        write!(
            f,
            "{start:?}{cut} cannot be the name of a file or folder: {}",
            self.why
        )
    }
}

impl std::error::Error for NameError {}

/// The name, if a path that ends with it names something directly inside the folder before it.
///
/// # Errors
/// An empty or long name, `.`, `..`, separators of any system, and control characters.
pub fn component(name: &str) -> Result<&str, NameError> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name == "." || name == ".." {
        "it names a folder that exists"
    } else if name.contains(['/', '\\']) {
        "it has a separator of folders"
    } else if name.chars().any(char::is_control) {
        "it has a control character"
    } else if name.len() > BYTES_MAX {
        "it has more than 255 bytes"
    } else {
        return Ok(name);
    };
    Err(NameError {
        name: name.to_owned(),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_stays_in_its_folder() {
        let longest = "x".repeat(BYTES_MAX);
        for name in ["shop", "a.b", "..a", "a..", "...", "ä b", "$x", &longest] {
            assert_eq!(component(name), Ok(name));
        }
        let long = "x".repeat(BYTES_MAX + 1);
        let unsafe_names = [
            "",
            ".",
            "..",
            "/",
            "a/b",
            "../x",
            "../../x",
            "/etc",
            "a\\b",
            "a\0b",
            "a\nb",
            "\u{1b}[2J",
            "\u{7f}",
            &long,
        ];
        for name in unsafe_names {
            assert!(component(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_refusal_shows_no_control_characters() {
        let text = component("\u{1b}[2J/x").map_or_else(|error| error.to_string(), str::to_owned);
        assert!(text.starts_with("\"\\u{1b}[2J/x\" cannot be"), "{text}");
        let text =
            component(&"y".repeat(9000)).map_or_else(|error| error.to_string(), str::to_owned);
        assert!(text.len() < 200, "{text}");
    }
}
