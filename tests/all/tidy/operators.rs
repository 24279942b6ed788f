//! Looks for conditions that mix `&&` and `||` without parentheses. Clippy's `precedence` knows arithmetic and bits only.

/// A unit of source text.
enum Token<'s> {
    /// Code that matters here: an operator, a bracket, a separator, or a word.
    Code(&'s str),
    /// A comment, blank, or anything else.
    Other(&'s str),
}

/// Length of the string literal at the beginning of the text; none if it begins with no literal.
fn literal_len(text: &str) -> Option<usize> {
    let raw = text.strip_prefix('b').unwrap_or(text);
    let prefix = text.len() - raw.len();
    if let Some(rest) = raw.strip_prefix('r') {
        let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
        let body = rest.get(hashes..)?.strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(prefix + 2 + hashes + body.find(&end)? + end.len());
    }
    let body = raw.strip_prefix(['"', '\''])?;
    let quote = raw.as_bytes()[0];
    let mut escaped = false;
    for (at, byte) in body.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            byte if byte == quote => return Some(prefix + at + 2),
            // A lifetime, and no character.
            _ if quote == b'\''
                && at > 0
                && body.is_char_boundary(at)
                && !body.starts_with('\\') =>
            {
                return None;
            }
            _ => {}
        }
    }
    None
}

/// The token that begins the text, which is not empty.
fn token(text: &str) -> Token<'_> {
    if text.starts_with("//") {
        return Token::Other(&text[..text.find('\n').unwrap_or(text.len())]);
    }
    if let Some(len) = literal_len(text) {
        return Token::Code(&text[..len]);
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let word = text.find(|c| !is_word(c)).unwrap_or(text.len());
    if word > 0 {
        return Token::Code(&text[..word]);
    }
    for operator in ["&&", "||", "=>", "->", "==", "!=", "<=", ">="] {
        if text.starts_with(operator) {
            return Token::Code(operator);
        }
    }
    let first = text.chars().next().map_or(1, char::len_utf8);
    if text.starts_with(char::is_whitespace) {
        Token::Other(&text[..first])
    } else {
        Token::Code(&text[..first])
    }
}

/// The lines on which an expression has its second kind of operator.
pub fn mixed(source: &str) -> Vec<usize> {
    let mut found = Vec::new();
    // Of each open bracket: whether there was an `&&`, and an `||`.
    let mut open = vec![[false; 2]];
    let (mut rest, mut line, mut before) = (source, 1, "");
    while !rest.is_empty() {
        let text = match token(rest) {
            Token::Code(code) => {
                let is_binary = !matches!(
                    before,
                    "" | "("
                        | "["
                        | "{"
                        | ","
                        | ";"
                        | "="
                        | "|"
                        | "=>"
                        | "->"
                        | "<"
                        | ":"
                        | "&"
                        | "&&"
                        | "||"
                        | "move"
                        | "return"
                );
                match code {
                    "(" | "[" => open.push([false; 2]),
                    "{" => {
                        if let Some(seen) = open.last_mut() {
                            *seen = [false; 2];
                        }
                        open.push([false; 2]);
                    }
                    ")" | "]" | "}" => {
                        if open.len() > 1 {
                            open.pop();
                        }
                        if let Some(seen) = open.last_mut().filter(|_| code == "}") {
                            *seen = [false; 2];
                        }
                    }
                    "&&" | "||" if is_binary => {
                        if let Some(seen) = open.last_mut() {
                            let was_mixed = seen[0] && seen[1];
                            seen[usize::from(code == "||")] = true;
                            if seen[0] && seen[1] && !was_mixed {
                                found.push(line);
                            }
                        }
                    }
                    "," | ";" | "=" | "=>" | "return" | "if" | "while" | "match" | "let" => {
                        if let Some(seen) = open.last_mut() {
                            *seen = [false; 2];
                        }
                    }
                    _ => {}
                }
                before = code;
                code
            }
            Token::Other(other) => other,
        };
        line += text.matches('\n').count();
        rest = &rest[text.len()..];
    }
    found
}

#[test]
fn mixed_conditions_are_seen() {
    for (source, lines) in [
        ("let a = b && c || d;", vec![1]),
        ("let a = b\n    || c && d;", vec![2]),
        ("if a == 1 || !b && f(c) { }", vec![1]),
        ("f(a && b || c)", vec![1]),
        ("let a = (b && c) || d;", vec![]),
        ("let a = b && c; let d = e || f;", vec![]),
        ("f(a && b, c || d)", vec![]),
        ("if let Some(a) = b && c { d || e }", vec![]),
        ("a && b.is_some_and(|c| c || d)", vec![]),
        ("a && run(|| b) && f(move || c)", vec![]),
        ("// a && b || c\nlet a = \"a && b || c\";", vec![]),
        ("let a = r#\"a \" && b || c\"#;", vec![]),
        (
            "match a { 'x' | '\\'' if b && c => d || e, _ => f }",
            vec![],
        ),
        ("fn f<'a>(a: &'a str) -> bool { a.x() && b || c }", vec![1]),
    ] {
        assert_eq!(mixed(source), lines, "{source}");
    }
}
