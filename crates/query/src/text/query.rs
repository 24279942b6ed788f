//! The argument of `$text`, and the match of documents.

use std::collections::BTreeSet;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf, Value};

use super::tokenizer::{Fold, Tokenizer, fold};
use super::{Language, TextSpec, TextVersion};
use frond_error::{Error, ErrorCode, Result};

/// A parsed `$text`, before the text index is known.
#[derive(Clone, Debug)]
pub struct TextQuery {
    search: String,
    language: Option<&'static Language>,
    fold: Fold,
}

/// A [`TextQuery`] over the texts of an index.
#[derive(Clone, Debug)]
pub struct TextMatch {
    spec: Arc<TextSpec>,
    fold: Fold,
    /// The terms to search for in the index; a document's score is the sum of theirs.
    terms: BTreeSet<String>,
    /// The same terms with case and diacritics where these matter.
    positive: BTreeSet<String>,
    negated: BTreeSet<String>,
    phrases: Vec<String>,
    negated_phrases: Vec<String>,
}

impl TextQuery {
    /// Parses `{$search: "…", $language: "…", $caseSensitive: …, $diacriticSensitive: …}`.
    ///
    /// # Errors
    /// 2 (`BadValue`), 4 (`NoSuchKey`) without `$search`, 14 (`TypeMismatch`).
    pub fn parse(argument: Value<'_>) -> Result<TextQuery> {
        let Value::Document(doc) = argument else {
            return Err(Error::bad_value("$text expects an object"));
        };
        let search = text(doc, "$search")?.ok_or_else(|| {
            Error::new(ErrorCode::NoSuchKey, "Missing expected field \"$search\"")
        })?;
        let language = text(doc, "$language")?.map(Language::find).transpose()?;
        let fold = Fold {
            keep_case: flag(doc, "$caseSensitive")?,
            keep_diacritics: flag(doc, "$diacriticSensitive")?,
            is_of_ascii: false,
        };
        let known = [
            "$search",
            "$language",
            "$caseSensitive",
            "$diacriticSensitive",
        ];
        if doc.iter().any(|(name, _)| !known.contains(&name)) {
            return Err(Error::bad_value("extra fields in $text"));
        }
        Ok(TextQuery {
            search: search.to_owned(),
            language,
            fold,
        })
    }

    /// The query over the texts that an index covers.
    pub fn bind(&self, spec: Arc<TextSpec>) -> TextMatch {
        let language = self.language.unwrap_or(spec.default_language());
        let fold = Fold {
            is_of_ascii: spec.fold().is_of_ascii,
            ..self.fold
        };
        let parts = Parts::parse(&self.search);
        let tokenizer = Tokenizer::new(language);
        let collect = |text: &str, options: Fold| {
            let mut terms = BTreeSet::new();
            tokenizer.for_each(text, options, true, |term| {
                terms.insert(term);
                true
            });
            terms
        };
        TextMatch {
            terms: collect(&parts.positive, spec.fold()),
            positive: collect(&parts.positive, fold),
            negated: collect(&parts.negative, fold),
            phrases: parts.phrases,
            negated_phrases: parts.negated_phrases,
            fold,
            spec,
        }
    }
}

fn wrong_type(name: &str, expected: &str, value: &Value<'_>) -> Error {
    let found = value.type_name();
    Error::type_mismatch(format!(
        "\"{name}\" had the wrong type. Expected {expected}, found {found}"
    ))
}

fn text<'a>(doc: &'a Doc, name: &str) -> Result<Option<&'a str>> {
    match doc.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(name, "string", &other)),
    }
}

fn flag(doc: &Doc, name: &str) -> Result<bool> {
    match doc.get(name) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(value),
        Some(other) => Err(wrong_type(name, "bool", &other)),
    }
}

/// A parsed search string.
#[derive(Default)]
struct Parts {
    positive: String,
    negative: String,
    phrases: Vec<String>,
    negated_phrases: Vec<String>,
}

impl Parts {
    /// `-` before a word or a phrase negates up to the next space; quotation marks make phrases,
    /// whose words count as words too, unless the phrase is negated.
    fn parse(search: &str) -> Parts {
        let mut parts = Parts::default();
        let mut negated = false;
        let mut phrase_start = None;
        let mut after_space = true;
        let mut rest = search.char_indices().peekable();
        while let Some((at, c)) = rest.next() {
            let had_space = std::mem::take(&mut after_space);
            match c {
                ' ' | '\n' | '\u{b}' | '\u{c}' | '\r' => after_space = true,
                '-' => negated |= phrase_start.is_none() && had_space,
                '"' => match phrase_start.take() {
                    Some(start) => {
                        let phrase = search.get(start..at).unwrap_or_default().to_owned();
                        if negated {
                            parts.negated_phrases.push(phrase);
                        } else {
                            parts.phrases.push(phrase);
                        }
                    }
                    None => {
                        negated &= !had_space;
                        phrase_start = Some(at + 1);
                    }
                },
                _ => {
                    let mut end = at + c.len_utf8();
                    while let Some((next, c)) =
                        rest.next_if(|(_, c)| !" \n\u{b}\u{c}\r-\"".contains(*c))
                    {
                        end = next + c.len_utf8();
                    }
                    if phrase_start.is_some() && negated {
                        continue;
                    }
                    negated &= !had_space;
                    let words = if negated {
                        &mut parts.negative
                    } else {
                        &mut parts.positive
                    };
                    words.push_str(search.get(at..end).unwrap_or_default());
                    words.push(' ');
                }
            }
        }
        parts
    }
}

impl TextMatch {
    /// The version of the index.
    pub fn version(&self) -> TextVersion {
        self.spec.version()
    }

    /// The terms to search an index for.
    pub fn terms(&self) -> impl ExactSizeIterator<Item = &str> {
        self.terms.iter().map(String::as_str)
    }

    /// The query as `explain` shows it.
    pub fn describe(&self) -> DocBuf {
        fn push<'a>(out: &mut DocBuf, name: &str, list: impl Iterator<Item = &'a String>) {
            out.push_array(name, |array| {
                list.for_each(|text| array.push(text.as_str()))
            });
        }
        let mut out = DocBuf::new();
        push(&mut out, "terms", self.positive.iter());
        push(&mut out, "negatedTerms", self.negated.iter());
        push(&mut out, "phrases", self.phrases.iter());
        push(&mut out, "negatedPhrases", self.negated_phrases.iter());
        out
    }

    /// Whether a document passes: it has one of the terms, all phrases and nothing negated.
    ///
    /// # Errors
    /// Those of [`TextSpec::scores`].
    pub fn matches(&self, doc: &Doc) -> Result<bool> {
        let mut has_term = false;
        let mut has_negated = false;
        let mut phrases = vec![false; self.phrases.len()];
        let needle = |phrase: &String, language| fold(phrase, self.fold, language);
        self.spec.for_each_text(doc, &mut |text, language, _| {
            if !has_term || !self.negated.is_empty() {
                Tokenizer::new(language).for_each(text, self.fold, false, |term| {
                    has_term |= self.positive.contains(&term);
                    has_negated |= self.negated.contains(&term);
                    !(has_negated || (has_term && self.negated.is_empty()))
                });
            }
            if !(self.phrases.is_empty() && self.negated_phrases.is_empty()) {
                let text = fold(text, self.fold, language);
                for (phrase, found) in self.phrases.iter().zip(&mut phrases) {
                    *found = *found || text.contains(&needle(phrase, language));
                }
                has_negated |= (self.negated_phrases.iter())
                    .any(|phrase| text.contains(&needle(phrase, language)));
            }
            !has_negated
        })?;
        Ok(has_term && !has_negated && phrases.into_iter().all(|found| found))
    }

    /// The score of a document that passes.
    ///
    /// # Errors
    /// Those of [`TextSpec::scores`].
    pub fn score(&self, doc: &Doc) -> Result<f64> {
        let scores = self.spec.scores(doc)?;
        Ok(self.terms.iter().filter_map(|term| scores.get(term)).sum())
    }
}
