//! The searched fields of a document, and their weights.

use std::collections::BTreeMap;

use frond_bson::{Doc, Value};

use super::Language;
use super::tokenizer::{Fold, Tokenizer};
use crate::characters::spaced;
use frond_error::{Error, Result};

/// The name that stands for every field.
pub const WILDCARD: &str = "$**";

/// Weights are below this.
pub const WEIGHT_LIMIT: i32 = 100_000;

/// The specification of a text index.
#[derive(Clone, Debug)]
pub struct TextSpec {
    weights: BTreeMap<String, f64>,
    wildcard: bool,
    default_language: &'static Language,
    language_override: String,
    version: TextVersion,
}

/// The version of a text index, which decides how texts become terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextVersion {
    /// Of MongoDB 2.4: as the second, and only the document as a whole names a language.
    One,
    /// Of MongoDB 2.6: only the letters of ASCII have cases, and diacritics matter.
    Two,
    /// Of MongoDB 3.2 and later.
    #[default]
    Three,
}

impl TextVersion {
    /// The version with this number.
    pub fn from_number(number: i64) -> Option<TextVersion> {
        match number {
            1 => Some(TextVersion::One),
            2 => Some(TextVersion::Two),
            3 => Some(TextVersion::Three),
            _ => None,
        }
    }

    pub fn number(self) -> i32 {
        match self {
            TextVersion::One => 1,
            TextVersion::Two => 2,
            TextVersion::Three => 3,
        }
    }
}

impl TextSpec {
    /// The texts of fields with weights; the field [`WILDCARD`] is all of them. `language_override`
    /// is the field of a document that names its language.
    pub fn new<'a>(
        weights: impl IntoIterator<Item = (&'a str, f64)>,
        default_language: &'static Language,
        language_override: &str,
    ) -> TextSpec {
        let mut weights: BTreeMap<String, f64> = weights
            .into_iter()
            .map(|(path, weight)| (path.to_owned(), weight))
            .collect();
        let wildcard = weights.remove(WILDCARD).is_some();
        TextSpec {
            weights,
            wildcard,
            default_language,
            language_override: language_override.to_owned(),
            version: TextVersion::default(),
        }
    }

    /// The same in another version.
    #[must_use]
    pub fn with_version(mut self, version: TextVersion) -> TextSpec {
        self.version = version;
        self
    }

    pub fn version(&self) -> TextVersion {
        self.version
    }

    pub(super) fn fold(&self) -> Fold {
        Fold {
            is_of_ascii: self.version != TextVersion::Three,
            ..Fold::default()
        }
    }

    /// The language of queries and documents that name none.
    pub fn default_language(&self) -> &'static Language {
        self.default_language
    }

    /// The paths that decide about the terms of a document; `None` for all.
    pub fn reads(&self) -> Option<Vec<String>> {
        if self.wildcard {
            return None;
        }
        let mut paths = vec![self.language_override.clone()];
        for path in self.weights.keys() {
            // Documents on the way may name a language.
            for (at, _) in path.match_indices('.') {
                let parent = path.get(..at).unwrap_or_default();
                paths.push(format!("{parent}.{}", self.language_override));
            }
            paths.push(path.clone());
        }
        Some(paths)
    }

    /// The terms of a document with their scores, in order.
    ///
    /// # Errors
    /// 17261 and 17262 if a document names a language that is not a string or not known.
    pub fn scores(&self, doc: &Doc) -> Result<BTreeMap<String, f64>> {
        let mut scores = BTreeMap::new();
        self.for_each_text(doc, &mut |text, language, weight| {
            score(text, language, weight, self.fold(), &mut scores);
            true
        })?;
        Ok(scores)
    }

    /// Calls `found` with every text of a document, its language and its weight, until it returns
    /// false.
    pub(super) fn for_each_text(
        &self,
        doc: &Doc,
        found: &mut dyn FnMut(&str, &'static Language, f64) -> bool,
    ) -> Result<()> {
        let language = self.language(doc, self.default_language)?;
        self.document(doc, "", language, found).map(|_| ())
    }

    /// The language of a document inside of one in another language.
    fn language(&self, doc: &Doc, outer: &'static Language) -> Result<&'static Language> {
        match doc.get(&self.language_override) {
            None => Ok(outer),
            Some(Value::String(name)) => match (Language::find(name), self.version) {
                (Ok(language), _) => Ok(language),
                // Such texts have neither stop words nor stems.
                (Err(_), TextVersion::One) => Language::find("none"),
                (Err(_), _) => Err(Error::location(
                    17262,
                    format!("language override unsupported: {name}"),
                )),
            },
            Some(name) if name.is_string() => Err(Error::location(
                17262,
                "language override unsupported: it has to be valid UTF-8",
            )),
            Some(_) => Err(Error::location(
                17261,
                "found language override field in document with non-string type",
            )),
        }
    }

    /// Whether the walk goes on. The recursion ends because validated documents nest at most 200
    /// deep.
    fn document(
        &self,
        doc: &Doc,
        prefix: &str,
        language: &'static Language,
        found: &mut dyn FnMut(&str, &'static Language, f64) -> bool,
    ) -> Result<bool> {
        for (name, value) in doc.iter() {
            if self.wildcard && name == self.language_override {
                continue;
            }
            let goes_on = if prefix.is_empty() {
                self.value(value, name, language, false, found)?
            } else {
                let path = format!("{prefix}.{name}");
                self.value(value, &path, language, false, found)?
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn value(
        &self,
        value: Value<'_>,
        path: &str,
        language: &'static Language,
        in_array: bool,
        found: &mut dyn FnMut(&str, &'static Language, f64) -> bool,
    ) -> Result<bool> {
        let weight = self.weights.get(path);
        match value {
            Value::String(text) if self.wildcard || weight.is_some() => {
                Ok(found(text, language, weight.copied().unwrap_or(1.0)))
            }
            Value::NotUtf8(_) if value.is_string() && (self.wildcard || weight.is_some()) => {
                let text = spaced(value.string_bytes().unwrap_or_default());
                Ok(found(&text, language, weight.copied().unwrap_or(1.0)))
            }
            Value::Document(inner) if self.wildcard || self.leads_further(path) => {
                let language = match self.version {
                    TextVersion::One => language,
                    _ => self.language(inner, language)?,
                };
                self.document(inner, path, language, found)
            }
            Value::Array(items)
                if self.wildcard
                    || (!in_array && (weight.is_some() || self.leads_further(path))) =>
            {
                for item in items.values() {
                    if !self.value(item, path, language, true, found)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    /// Whether a field with a weight lies below a path.
    fn leads_further(&self, path: &str) -> bool {
        let below = format!("{path}.");
        self.weights
            .range(below.clone()..)
            .next()
            .is_some_and(|(known, _)| known.starts_with(&below))
    }
}

/// Statistics of a term within one text.
#[derive(Default)]
struct Count {
    count: f64,
    frequency: f64,
    /// Weight of the next occurrence: each counts half of the one before.
    next: f64,
}

/// Adds the scores of the terms of one text.
fn score(
    text: &str,
    language: &'static Language,
    weight: f64,
    fold: Fold,
    scores: &mut BTreeMap<String, f64>,
) {
    let mut terms: BTreeMap<String, Count> = BTreeMap::new();
    let mut tokens = 0.0;
    Tokenizer::new(language).for_each(text, fold, true, |term| {
        let count = terms.entry(term).or_default();
        count.next = if count.next == 0.0 {
            1.0
        } else {
            count.next / 2.0
        };
        count.count += 1.0;
        count.frequency += count.next;
        tokens += 1.0;
        true
    });
    for (term, count) in terms {
        // A term that is a large part of the text counts more, and most if it is all of it.
        let share = 0.5 * count.count / tokens + 0.5;
        let whole = if text.len() == term.len() && text.eq_ignore_ascii_case(&term) {
            1.1
        } else {
            1.0
        };
        *scores.entry(term).or_default() += weight * count.frequency * share * whole;
    }
}
