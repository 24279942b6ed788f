//! Documents of Extended JSON, one after another, with the lines on which they begin.

use std::io::BufRead;

use frond_bson::{DocBuf, extjson};

use crate::error::{Error, Result};

/// Largest text of a document: JSON takes a few times the space of BSON.
const TEXT_MAX: usize = 256 << 20;

/// Cuts a text into documents.
pub struct Documents<R> {
    file: R,
    name: String,
    /// The documents are in an array.
    array: bool,
    /// Version 1 of the format, with the forms of the shell.
    legacy: bool,
    line: u64,
    is_begun: bool,
    is_ended: bool,
    text: Vec<u8>,
}

impl<R: BufRead> Documents<R> {
    /// A file, named for errors.
    pub fn new(file: R, name: &str, array: bool, legacy: bool) -> Documents<R> {
        Documents {
            file,
            name: name.to_owned(),
            array,
            legacy,
            line: 1,
            is_begun: false,
            is_ended: false,
            text: Vec::new(),
        }
    }

    fn fail<T>(&self, line: u64, text: &str) -> Result<T> {
        Err(Error::Data(format!("{}, line {line}: {text}", self.name)))
    }

    /// The next byte, not taken.
    fn peek(&mut self) -> Result<Option<u8>> {
        let bytes = self
            .file
            .fill_buf()
            .map_err(|error| Error::Io(format!("reading {}", self.name), error))?;
        Ok(bytes.first().copied())
    }

    /// Skips white space, the order mark at the start, and where they may be the signs between the elements of an array.
    fn skip(&mut self) -> Result<Option<u8>> {
        loop {
            let Some(byte) = self.peek()? else {
                return Ok(None);
            };
            match byte {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' => {}
                0xEF | 0xBB | 0xBF if !self.is_begun => {}
                b'[' if self.array && !self.is_begun => self.is_begun = true,
                b',' if self.array && self.is_begun && !self.is_ended => {}
                b']' if self.array && self.is_begun && !self.is_ended => self.is_ended = true,
                other => return Ok(Some(other)),
            }
            self.file.consume(1);
        }
    }

    /// The next document and its line.
    pub fn next(&mut self) -> Result<Option<(DocBuf, u64)>> {
        let Some(first) = self.skip()? else {
            if self.array && !self.is_ended {
                return self.fail(self.line, "the array has no end");
            }
            return Ok(None);
        };
        let line = self.line;
        if self.array && !self.is_begun {
            return self.fail(line, "expected '[': with --jsonArray the file is one array");
        }
        if self.is_ended {
            return self.fail(line, "more text after the array");
        }
        if first != b'{' {
            let hint = if first == b'[' {
                "; --jsonArray reads an array"
            } else {
                ""
            };
            return self.fail(
                line,
                &format!("expected a document, found '{}'{hint}", char::from(first)),
            );
        }
        self.is_begun = true;
        self.cut(line)?;
        let text = match std::str::from_utf8(&self.text) {
            Ok(text) => text,
            Err(_) => return self.fail(line, "the text is not UTF-8"),
        };
        let parsed = if self.legacy {
            extjson::parse_legacy(text)
        } else {
            extjson::parse(text)
        };
        match parsed {
            Ok(document) => Ok(Some((document, line))),
            Err(error) => {
                let before = text.as_bytes().get(..error.offset()).unwrap_or_default();
                let more = before.iter().filter(|byte| **byte == b'\n').count() as u64;
                let is_legacy = !self.legacy && extjson::parse_legacy(text).is_ok();
                let hint = if is_legacy {
                    "; --legacy reads version 1 of the format and the forms of the shell"
                } else {
                    ""
                };
                self.fail(line + more, &format!("{error}{hint}"))
            }
        }
    }

    /// Takes the text up to the bracket that closes the first one.
    fn cut(&mut self, line: u64) -> Result<()> {
        self.text.clear();
        let (mut depth, mut escaped) = (0_u32, false);
        // The sign that ends the text in which the next byte lies.
        let mut quote = None;
        loop {
            let bytes = self
                .file
                .fill_buf()
                .map_err(|error| Error::Io(format!("reading {}", self.name), error))?;
            if bytes.is_empty() {
                return self.fail(line, "the document has no end");
            }
            let mut taken = 0;
            let mut lines = 0;
            let mut done = false;
            for byte in bytes {
                taken += 1;
                if *byte == b'\n' {
                    lines += 1;
                }
                if let Some(end) = quote {
                    match *byte {
                        _ if escaped => escaped = false,
                        b'\\' => escaped = true,
                        byte if byte == end => quote = None,
                        _ => {}
                    }
                    continue;
                }
                match byte {
                    b'"' => quote = Some(b'"'),
                    // A string in single quotes, or a regular expression.
                    b'\'' | b'/' if self.legacy => quote = Some(*byte),
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            done = true;
                            break;
                        }
                    }
                    _ => {}
                }
            }
            self.text
                .extend_from_slice(bytes.get(..taken).unwrap_or_default());
            self.file.consume(taken);
            self.line += lines;
            if done {
                return Ok(());
            }
            if self.text.len() > TEXT_MAX {
                return self.fail(line, "the document is too large");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use frond_bson::{Value, doc};

    fn read(text: &str, array: bool) -> Result<Vec<(DocBuf, u64)>> {
        let mut documents = Documents::new(text.as_bytes(), "f", array, true);
        let mut found = Vec::new();
        while let Some(next) = documents.next()? {
            found.push(next);
        }
        Ok(found)
    }

    #[test]
    fn documents_and_their_lines() {
        let text = "{\"a\": 1}\n\n {\n\"b\": \"}\\\"{\"\n} {\"c\": [{}]}\n";
        let found = read(text, false).unwrap();
        assert_eq!(
            found,
            [
                (doc! { "a": 1 }, 1),
                (doc! { "b": "}\"{" }, 3),
                (doc! { "c": [{}] }, 5)
            ]
        );
        let found = read("\u{feff}[{\"a\": 1},\n{\"a\": 2}\n]\n", true).unwrap();
        assert_eq!(found, [(doc! { "a": 1 }, 1), (doc! { "a": 2 }, 2)]);
        assert!(read("", false).unwrap().is_empty());
        assert!(read("[]", true).unwrap().is_empty());
    }

    #[test]
    fn errors_name_the_line() {
        for (text, array, part) in [
            ("{\"a\": 1}\n{\"a\": x}", false, "f, line 2"),
            ("{\"a\": 1}\n{\n\"a\":\n x}", false, "f, line 4"),
            ("{\"a\": 1}\n[1]", false, "--jsonArray"),
            ("{\"a\": 1", false, "no end"),
            ("{}", true, "expected '['"),
            ("[{}", true, "no end"),
            ("[{}] {}", true, "more text"),
        ] {
            let error = read(text, array).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn version_1_of_the_format() {
        let text = r#"{"r": {"$regex": "^a", "$options": "mi"}, "l": [{"$regex": "b"}], "d": {"$date": 5}, "n": {"$numberLong": "7"},
            "b": {"$binary": "YWJj", "$type": "00"}, "t": {"$timestamp": {"t": 1, "i": 2}}, "u": {"$undefined": true}}"#;
        let found = read(text, false).unwrap();
        let (found, _) = found.first().unwrap();
        assert_eq!(
            found.get("r"),
            Some(Value::Regex {
                pattern: "^a",
                options: "im"
            })
        );
        assert_eq!(
            found.get_array("l").unwrap().values().next(),
            Some(Value::Regex {
                pattern: "b",
                options: ""
            })
        );
        assert_eq!(found.get("d"), Some(Value::DateTime(5)));
        assert_eq!(found.get("n"), Some(Value::Int64(7)));
        assert_eq!(found.get("u"), Some(Value::Undefined));
    }
    #[test]
    fn documents_of_the_shell_end_at_their_brackets() {
        let text = "{ a: '}\\'{', r: /}\\/{/i, d: ISODate(\"1970-01-01\") }\n{ n: NaN, }";
        let found = read(text, false).unwrap();
        let (first, _) = found.first().unwrap();
        assert_eq!(first.get("a"), Some(Value::String("}'{")));
        assert_eq!(
            first.get("r"),
            Some(Value::Regex {
                pattern: "}/{",
                options: "i"
            })
        );
        assert_eq!(first.get("d"), Some(Value::DateTime(0)));
        let (second, line) = found.get(1).unwrap();
        assert_eq!(*line, 2);
        assert!(second.get_f64("n").unwrap().is_nan());
        let mut strict = Documents::new("{a: 1}".as_bytes(), "f", false, false);
        let error = strict.next().unwrap_err().to_string();
        assert!(error.contains("--legacy"), "{error}");
    }
}
