//! Splitting text into words, and folding case and diacritics.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use rust_stemmers::Stemmer;
use unicode_normalization::UnicodeNormalization;

use super::Language;

/// Distinctions that folding preserves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fold {
    pub(super) keep_case: bool,
    pub(super) keep_diacritics: bool,
    /// As version 1 and 2 of text indexes: only the letters of ASCII have cases, only characters of ASCII divide words, and all
    /// diacritics matter.
    pub(super) is_of_ascii: bool,
}

/// Characters between words: space, dashes, quotation marks, punctuation and symbols.
const DELIMITERS: &str = r"\p{White_Space}\p{Dash}\p{Hyphen}\p{Quotation_Mark}\p{Terminal_Punctuation}\p{Pattern_Syntax}\p{Sentence_Terminal}";

fn compile(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

static DELIMITER: LazyLock<Option<Regex>> = LazyLock::new(|| compile(&format!("[{DELIMITERS}]")));

static DIACRITIC: LazyLock<Option<Regex>> = LazyLock::new(|| compile(r"[\p{Diacritic}\p{M}]"));

fn is_one_of(class: &LazyLock<Option<Regex>>, c: char) -> bool {
    let mut buffer = [0; 4];
    let text = c.encode_utf8(&mut buffer);
    class.as_ref().is_some_and(|regex| regex.is_match(text))
}

fn is_delimiter(c: char, language: &Language, fold: Fold) -> bool {
    if fold.is_of_ascii && !c.is_ascii() {
        return false;
    }
    if language.is_english() && matches!(c, '\'' | '\u{2018}' | '\u{2019}') {
        return false;
    }
    if c.is_ascii() {
        return c != '_'
            && !c.is_ascii_alphanumeric()
            && (c == ' ' || !c.is_control() || c.is_ascii_whitespace());
    }
    // The fast path for most letters.
    if c.is_alphanumeric() {
        return false;
    }
    is_one_of(&DELIMITER, c)
}

fn lower(c: char, language: &Language, fold: Fold) -> char {
    match c {
        c if fold.is_of_ascii => c.to_ascii_lowercase(),
        'I' if language.is_turkish() => 'ı',
        'İ' => 'i',
        c if c.is_ascii() => c.to_ascii_lowercase(),
        c => c.to_lowercase().next().unwrap_or(c),
    }
}

/// Folds case and drops diacritics, unless they are to be kept.
pub(super) fn fold(text: &str, fold: Fold, language: &Language) -> String {
    let cased: Cow<'_, str> = if fold.keep_case {
        text.into()
    } else {
        text.chars().map(|c| lower(c, language, fold)).collect()
    };
    if fold.keep_diacritics || fold.is_of_ascii || cased.is_ascii() {
        return cased.into_owned();
    }
    // The dotless i of Turkish is a letter of its own.
    cased
        .nfd()
        .filter(|c| c.is_ascii() || !is_one_of(&DIACRITIC, *c))
        .nfc()
        .collect()
}

/// The words of texts in one language.
pub(super) struct Tokenizer {
    language: &'static Language,
    stemmer: Option<Stemmer>,
}

impl Tokenizer {
    pub(super) fn new(language: &'static Language) -> Tokenizer {
        Tokenizer {
            language,
            stemmer: language.stemmer(),
        }
    }

    /// Calls `found` with the stem of every word, until it returns false. `skip_stop_words` leaves
    /// out stop words.
    pub(super) fn for_each(
        &self,
        text: &str,
        options: Fold,
        skip_stop_words: bool,
        mut found: impl FnMut(String) -> bool,
    ) {
        for word in text.split(|c| is_delimiter(c, self.language, options)) {
            if word.is_empty() {
                continue;
            }
            let lower = |c| lower(c, self.language, options);
            let lowered: String = word.chars().map(lower).collect();
            if skip_stop_words && self.language.is_stop_word(&lowered) {
                continue;
            }
            let cased = if options.keep_case { word } else { &lowered };
            let stem = match &self.stemmer {
                Some(stemmer) => stemmer.stem(cased),
                None => Cow::Borrowed(cased),
            };
            let term = if options.keep_diacritics || options.is_of_ascii {
                stem.into_owned()
            } else {
                let keep_case = Fold {
                    keep_case: true,
                    keep_diacritics: false,
                    is_of_ascii: false,
                };
                fold(&stem, keep_case, self.language)
            };
            if !found(term) {
                return;
            }
        }
    }
}
