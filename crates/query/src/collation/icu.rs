//! The rules of languages, by ICU4X.
//!
//! Its data are those of CLDR, its algorithm that of the Unicode Collation Algorithm. Sort keys are
//! stored in indexes, so the version is fixed in the manifest, and a test holds keys of it.

use std::cmp::Ordering;
use std::fmt;

use frond_bson::{Collate, Doc, DocBuf};
use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::provider::{
    Baked, CollationDiacriticsV1, CollationJamoV1, CollationMetadata, CollationMetadataV1,
    CollationReorderingV1, CollationRootV1, CollationSpecialPrimariesV1, CollationTailoringV1,
};
use icu_collator::{Collator, CollatorBorrowed, CollatorPreferences};
use icu_locale_core::Locale;
use icu_normalizer::provider::{
    Baked as NormalizerBaked, NormalizerNfdDataV1, NormalizerNfdTablesV1,
};
use icu_provider::prelude::{DataError, DataPayload, DataProvider, DataRequest, DataResponse};

use super::{Alternate, CaseFirst, Options};
use frond_error::{Error, Result};

/// Rules for strings and the specification that they come from.
pub(super) struct Icu {
    spec: DocBuf,
    rules: Rules,
}

enum Rules {
    /// As the data have them.
    Baked(CollatorBorrowed<'static>),
    /// With another order of accents than the data have.
    Own(Box<Collator>),
}

impl Icu {
    /// The rules of a language tag with options. `backwards` is given where it is not what the data
    /// of the locale say.
    pub(super) fn new(
        tag: &str,
        options: &Options,
        backwards: Option<bool>,
        spec: DocBuf,
    ) -> Result<Icu> {
        let locale = Locale::try_from_str(tag)
            .map_err(|error| Error::internal(format!("the locale '{tag}' is wrong: {error}")))?;
        let mut preferences = CollatorPreferences::from(&locale);
        preferences.case_first = Some(match options.case_first {
            CaseFirst::Upper => CollationCaseFirst::Upper,
            CaseFirst::Lower => CollationCaseFirst::Lower,
            CaseFirst::Off => CollationCaseFirst::False,
        });
        preferences.numeric_ordering = Some(if options.numeric_ordering {
            CollationNumericOrdering::True
        } else {
            CollationNumericOrdering::False
        });
        let mut wanted = CollatorOptions::default();
        wanted.strength = Some(match options.strength {
            1 => Strength::Primary,
            2 => Strength::Secondary,
            3 => Strength::Tertiary,
            4 => Strength::Quaternary,
            _ => Strength::Identical,
        });
        wanted.case_level = Some(if options.case_level {
            CaseLevel::On
        } else {
            CaseLevel::Off
        });
        wanted.alternate_handling = Some(match options.alternate {
            Alternate::NonIgnorable => AlternateHandling::NonIgnorable,
            Alternate::Shifted => AlternateHandling::Shifted,
        });
        wanted.max_variable = Some(if options.max_variable_is_space {
            MaxVariable::Space
        } else {
            MaxVariable::Punctuation
        });
        let rules = match backwards {
            None => CollatorBorrowed::try_new(preferences, wanted).map(Rules::Baked),
            Some(backwards) => {
                let provider = Backwards(backwards);
                Collator::try_new_unstable(&provider, preferences, wanted)
                    .map(|collator| Rules::Own(Box::new(collator)))
            }
        };
        match rules {
            Ok(rules) => Ok(Icu { spec, rules }),
            Err(error) => Err(Error::internal(format!(
                "the data of the locale '{tag}' are missing: {error}"
            ))),
        }
    }
}

impl Collate for Icu {
    fn compare(&self, a: &str, b: &str) -> Ordering {
        match &self.rules {
            Rules::Baked(collator) => collator.compare(a, b),
            Rules::Own(collator) => collator.as_borrowed().compare(a, b),
        }
    }

    fn sort_key(&self, text: &str, out: &mut Vec<u8>) {
        let Ok(()) = match &self.rules {
            Rules::Baked(collator) => collator.write_sort_key_to(text, out),
            Rules::Own(collator) => collator.as_borrowed().write_sort_key_to(text, out),
        };
    }

    fn spec(&self) -> &Doc {
        &self.spec
    }
}

impl fmt::Debug for Icu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Icu").field(&self.spec).finish()
    }
}

/// The data with accents compared from the end of the string, or not, whatever the locale says:
/// ICU4X has no option for it.
struct Backwards(bool);

/// The bit of a locale's metadata that says so.
const BACKWARDS: u32 = 1 << 7;

impl DataProvider<CollationMetadataV1> for Backwards {
    fn load(
        &self,
        request: DataRequest<'_>,
    ) -> Result<DataResponse<CollationMetadataV1>, DataError> {
        let found: DataResponse<CollationMetadataV1> = Baked.load(request)?;
        let bits = found.payload.get().bits;
        let bits = if self.0 {
            bits | BACKWARDS
        } else {
            bits & !BACKWARDS
        };
        Ok(DataResponse {
            metadata: found.metadata,
            payload: DataPayload::from_owned(CollationMetadata { bits }),
        })
    }
}

macro_rules! unchanged {
    ($($marker:ty => $source:expr),* $(,)?) => {$(
        impl DataProvider<$marker> for Backwards {
            fn load(&self, request: DataRequest<'_>) -> Result<DataResponse<$marker>, DataError> {
                $source.load(request)
            }
        }
    )*};
}

unchanged! {
    CollationSpecialPrimariesV1 => Baked,
    CollationRootV1 => Baked,
    CollationTailoringV1 => Baked,
    CollationDiacriticsV1 => Baked,
    CollationJamoV1 => Baked,
    CollationReorderingV1 => Baked,
    NormalizerNfdDataV1 => NormalizerBaked,
    NormalizerNfdTablesV1 => NormalizerBaked,
}
