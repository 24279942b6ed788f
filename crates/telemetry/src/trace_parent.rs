//! The span of a client that a command belongs to.
//!
//! A client passes it as W3C's `traceparent` (<https://www.w3.org/TR/trace-context/#traceparent-header>) in the field
//! `comment` of a command: as the field `traceparent` of a document, or inside of a text in the form of sqlcommenter,
//! `traceparent='00-…-01'`.

use frond_bson::Value;

/// The span of a client, as it came with a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "otlp"),
    allow(dead_code, reason = "only the exporter reads it")
)]
pub struct TraceParent {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    pub(crate) flags: u8,
}

/// Bytes of a `traceparent` of version 00.
const LENGTH: usize = 55;

impl TraceParent {
    /// Reads the `traceparent` of a command's comment, if there is one that is well-formed.
    #[must_use]
    pub fn of_comment(comment: &Value<'_>) -> Option<TraceParent> {
        match comment {
            Value::Document(fields) => TraceParent::parse(fields.get_str("traceparent")?),
            Value::String(text) => {
                let (_, rest) = text.split_once("traceparent")?;
                let rest = rest.trim_start_matches(['=', ':', ' ', '\'', '"']);
                TraceParent::parse(rest.get(..LENGTH)?)
            }
            _ => None,
        }
    }

    /// Reads a `traceparent`. A version after 00 may have further fields, which are ignored, as W3C asks for.
    #[must_use]
    pub fn parse(text: &str) -> Option<TraceParent> {
        let mut parts = text.split('-');
        let mut hex = |digits: usize| {
            let part = parts.next()?;
            let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            (part.len() == digits && part.bytes().all(is_hex)).then_some(part)
        };
        let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        if version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let parent = TraceParent {
            trace: u128::from_str_radix(trace, 16).ok()?,
            span: u64::from_str_radix(span, 16).ok()?,
            flags: u8::from_str_radix(flags, 16).ok()?,
        };
        (parent.trace != 0 && parent.span != 0).then_some(parent)
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::{ToValue, doc};

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_trace_parent_is_found_in_comments() {
        let parent = TraceParent::parse(GOOD).expect("it is well-formed");
        assert_eq!(parent.trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((parent.span, parent.flags), (0xb7ad_6b71_6920_3331, 1));
        let fields = doc! {"traceparent": GOOD, "more": 1};
        let sqlcommenter = format!("app='x',traceparent='{GOOD}',y='z'");
        let plain = format!("traceparent={GOOD}");
        let found = [
            fields.to_value(),
            Value::String(&sqlcommenter),
            Value::String(&plain),
        ];
        for comment in found {
            assert_eq!(
                TraceParent::of_comment(&comment),
                Some(parent.clone()),
                "{comment:?}"
            );
        }
        let short = format!("traceparent={}", &GOOD[..50]);
        let without = [
            Value::String("no trace"),
            Value::String(&short),
            Value::String("traceparent=é"),
            Value::Int32(1),
        ];
        for comment in without {
            assert_eq!(TraceParent::of_comment(&comment), None, "{comment:?}");
        }
    }

    #[test]
    fn malformed_parents_are_ignored() {
        let zero_trace = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let upper = GOOD.to_uppercase();
        for text in [
            "",
            zero_trace,
            &upper,
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
        ] {
            assert_eq!(TraceParent::parse(text), None, "{text}");
        }
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more";
        assert!(TraceParent::parse(later).is_some_and(|parent| parent.flags == 0));
    }
}
