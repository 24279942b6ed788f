//! The meaning of a piece of code: a function, an expression, or the body of a function.

/// The ways to read a piece of code as the source of a function, in the order to try them.
pub fn readings(code: &str) -> Vec<String> {
    let code = trimmed(code);
    let function = format!("({code}\n)");
    // Comments at the end of the code end with the line.
    let expression = format!("(function() {{ return (\n{code}\n); }})");
    let body = format!("(function() {{ {code}\n}})");
    if begins_a_function(code) {
        vec![function, expression, body]
    } else {
        vec![expression, body]
    }
}

/// The code without space and comments before it, and without space and semicolons behind it.
fn trimmed(code: &str) -> &str {
    let mut rest = code.trim();
    loop {
        let after = if let Some(comment) = rest.strip_prefix("//") {
            comment.split_once('\n').map(|(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map(|(_, after)| after)
        } else {
            None
        };
        match after {
            Some(after) => rest = after.trim_start(),
            None => return rest.trim_end_matches([';', ' ', '\t', '\r', '\n']),
        }
    }
}

/// Whether the code begins as a function does. It may be more than that: `function() { … }()`.
fn begins_a_function(code: &str) -> bool {
    if let Some(rest) = code.strip_prefix("function") {
        return rest.starts_with(['(', '*', ' ', '\t', '\r', '\n', '/']);
    }
    // An arrow function: `x => …`, `(x, y) => …`.
    let name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let parameters = match code.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map(|(_, rest)| rest),
        None => Some(code.trim_start_matches(name)).filter(|rest| rest.len() < code.len()),
    };
    parameters.is_some_and(|rest| rest.trim_start().starts_with("=>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_expressions() {
        let functions = [
            "function() { return 1; }",
            "  function f(a) { return a } ; ",
            "/* x */ // y\nfunction(){}",
            "x => x + 1",
            "(a, b) => a",
            "() => { return 1 }",
        ];
        for code in functions {
            assert!(begins_a_function(trimmed(code)), "{code}");
        }
        let others = [
            "this.a > 5",
            "functional(1)",
            "(a) > (b)",
            "return 5",
            "1 // x => y",
        ];
        for code in others {
            assert!(!begins_a_function(trimmed(code)), "{code}");
        }
        assert_eq!(trimmed(" a;;\n"), "a");
        assert_eq!(trimmed("// only"), "// only");
    }
}
