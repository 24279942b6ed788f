//! Operations on text that need not be UTF-8, by its bytes.

/// The number of code points: of the bytes that are no continuation bytes. MongoDB counts them in this way even if text is not
/// UTF-8.
pub(crate) fn code_points(text: &[u8]) -> usize {
    text.iter().filter(|byte| !is_continuation(**byte)).count()
}

/// Whether a byte is a continuation byte of UTF-8.
pub(crate) fn is_continuation(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// `count` characters from the character `start` on.
pub(crate) fn part(text: &str, start: usize, count: usize) -> &str {
    let skipped = |text: &str, count: usize| {
        let at = text.char_indices().nth(count);
        at.map_or(text.len(), |(at, _)| at)
    };
    let rest = text.get(skipped(text, start)..).unwrap_or_default();
    rest.get(..skipped(rest, count)).unwrap_or_default()
}

/// The text without the characters `chosen`, which are in order, at its start, its end, or both. Bytes that are not UTF-8 stay.
pub(crate) fn trim<'t>(text: &'t [u8], chosen: &[char], left: bool, right: bool) -> &'t [u8] {
    let mut text = text;
    let chosen = |c: char| chosen.binary_search(&c).is_ok();
    if left && let Some(first) = text.utf8_chunks().next() {
        let valid = first.valid();
        let cut = valid.len() - valid.trim_start_matches(chosen).len();
        text = text.get(cut..).unwrap_or_default();
    }
    if right
        && let Some(last) = text.utf8_chunks().last()
        && last.invalid().is_empty()
    {
        let valid = last.valid();
        let cut = valid.len() - valid.trim_end_matches(chosen).len();
        text = text.get(..text.len() - cut).unwrap_or_default();
    }
    text
}

/// The text with a space for each invalid sequence, so that words end there.
pub(crate) fn spaced(text: &[u8]) -> String {
    let parts: Vec<&str> = text.utf8_chunks().map(|chunk| chunk.valid()).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn code_points_of_valid_text_are_its_characters() {
        for text in ["", "abc", "äö", "日本", "a\u{10FFFF}b"] {
            assert_eq!(code_points(text.as_bytes()), text.chars().count(), "{text}");
        }
        assert_eq!(code_points(b"a\xFFb\x80"), 3);
    }

    #[test]
    fn trimming_keeps_what_is_not_utf8() {
        for (text, left, right, expected) in [
            (&b"  a "[..], true, true, &b"a"[..]),
            (b"  \xFF a ", true, true, b"\xFF a"),
            (b" a \xFF", true, true, b"a \xFF"),
            (b" \xFF \xFF ", true, true, b"\xFF \xFF"),
            (b" \xFF ", true, false, b"\xFF "),
            (b" \xFF ", false, true, b" \xFF"),
            (b"   ", true, true, b""),
            (b"\xC3", true, true, b"\xC3"),
            (b"", true, true, b""),
        ] {
            assert_eq!(trim(text, &[' '], left, right), expected, "{text:?}");
        }
    }

    #[test]
    fn words_end_where_text_is_not_utf8() {
        assert_eq!(spaced(b"a\xFFb \xE9"), "a b ");
        assert_eq!(spaced(b"\xFF\xFFa"), "  a");
        assert_eq!(spaced(b"a b"), "a b");
    }
}
