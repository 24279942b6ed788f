//! The languages of text search: names, stop words, stems.

use rust_stemmers::{Algorithm, Stemmer};

use super::english;
use frond_error::{Error, Result};

/// A language whose words text search knows, or `none`.
#[derive(Debug)]
pub struct Language {
    name: &'static str,
    /// ISO 639-1.
    code: &'static str,
    algorithm: Option<Algorithm>,
}

const fn language(name: &'static str, code: &'static str, algorithm: Algorithm) -> Language {
    Language {
        name,
        code,
        algorithm: Some(algorithm),
    }
}

static NONE: Language = Language {
    name: "none",
    code: "",
    algorithm: None,
};

static ENGLISH: Language = language("english", "en", Algorithm::English);

static OTHERS: [Language; 14] = [
    language("danish", "da", Algorithm::Danish),
    language("dutch", "nl", Algorithm::Dutch),
    language("finnish", "fi", Algorithm::Finnish),
    language("french", "fr", Algorithm::French),
    language("german", "de", Algorithm::German),
    language("hungarian", "hu", Algorithm::Hungarian),
    language("italian", "it", Algorithm::Italian),
    language("norwegian", "nb", Algorithm::Norwegian),
    language("portuguese", "pt", Algorithm::Portuguese),
    language("romanian", "ro", Algorithm::Romanian),
    language("russian", "ru", Algorithm::Russian),
    language("spanish", "es", Algorithm::Spanish),
    language("swedish", "sv", Algorithm::Swedish),
    language("turkish", "tr", Algorithm::Turkish),
];

impl Language {
    /// English, the default of indexes.
    pub fn english() -> &'static Language {
        &ENGLISH
    }

    /// The language of this name or two-letter code, in any case.
    ///
    /// # Errors
    /// 2 (`BadValue`) for another name.
    pub fn find(name: &str) -> Result<&'static Language> {
        let lower = name.to_ascii_lowercase();
        [&NONE, &ENGLISH]
            .into_iter()
            .chain(&OTHERS)
            .find(|language| {
                language.name == lower || (!lower.is_empty() && language.code == lower)
            })
            .ok_or_else(|| {
                Error::bad_value(format!(
                    "unsupported language: \"{name}\" for text index version 3"
                ))
            })
    }

    /// The name, in lower case.
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn is_english(&self) -> bool {
        self.name == "english"
    }

    pub(super) fn is_turkish(&self) -> bool {
        self.name == "turkish"
    }

    /// Whether a word in lower case is a stop word.
    pub(super) fn is_stop_word(&self, word: &str) -> bool {
        if self.is_english() {
            return english::STOP_WORDS.binary_search(&word).is_ok();
        }
        // The lists are short and mostly sorted, but not by bytes.
        stop_words::lookup(self.code).is_some_and(|words| words.contains(&word))
    }

    pub(super) fn stemmer(&self) -> Option<Stemmer> {
        self.algorithm.map(Stemmer::create)
    }
}
