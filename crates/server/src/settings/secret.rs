//! Passwords in the settings.

use std::fmt;

use zeroize::Zeroizing;

/// Stands in outputs where a password would be.
pub const PASSWORD_PLACEHOLDER: &str = "<password>";

/// A password in a setting. It is wiped when it is dropped, and no output contains it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(password: &str) -> Secret {
        Secret(Zeroizing::new(password.to_owned()))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PASSWORD_PLACEHOLDER)
    }
}

/// The arguments of a command line without the values of `options`, which are passwords.
pub fn without_secrets(arguments: Vec<String>, options: &[&str]) -> Vec<String> {
    let mut is_secret = false;
    let redacted = arguments.into_iter().map(|argument| {
        if std::mem::take(&mut is_secret) {
            drop(Zeroizing::new(argument));
            return PASSWORD_PLACEHOLDER.to_owned();
        }
        let Some(option) = argument.strip_prefix("--") else {
            return argument;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if !options.contains(&name) {
            return argument;
        }
        match value {
            Some(_) => {
                let redacted = format!("--{name}={PASSWORD_PLACEHOLDER}");
                drop(Zeroizing::new(argument));
                redacted
            }
            None => {
                is_secret = true;
                argument
            }
        }
    });
    redacted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let secret = Secret::new("pencil");
        assert_eq!(secret.expose(), "pencil");
        assert_eq!(
            format!("{:?} {:?}", secret, secret.clone()),
            "<password> <password>"
        );
        let line = "frond serve --keyPassword pencil --port 1 --keyPassword=pencil --keyPasswordFile x --keyPassword";
        let shown = without_secrets(
            line.split(' ').map(str::to_owned).collect(),
            &["keyPassword"],
        );
        assert_eq!(
            shown.join(" "),
            "frond serve --keyPassword <password> --port 1 --keyPassword=<password> --keyPasswordFile x --keyPassword"
        );
    }
}
