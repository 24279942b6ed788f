//! Passwords in the settings.

use std::fmt;

use zeroize::Zeroizing;

/// Replaces a password that is shown.
pub const SHOWN: &str = "<password>";

/// A password that was given as a setting. It is wiped when it is dropped, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Keeps a password.
    pub fn new(password: &str) -> Secret {
        Secret(Zeroizing::new(password.to_owned()))
    }

    /// The password.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

/// The arguments of a command line without the values of the options that are passwords. `flags` are the names of these
/// options.
pub fn without_secrets(arguments: Vec<String>, flags: &[&str]) -> Vec<String> {
    let mut is_secret = false;
    let shown = arguments.into_iter().map(|argument| {
        if std::mem::take(&mut is_secret) {
            drop(Zeroizing::new(argument));
            return SHOWN.to_owned();
        }
        let Some(option) = argument.strip_prefix("--") else {
            return argument;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if !flags.contains(&name) {
            return argument;
        }
        match value {
            Some(_) => {
                let shown = format!("--{name}={SHOWN}");
                drop(Zeroizing::new(argument));
                shown
            }
            None => {
                is_secret = true;
                argument
            }
        }
    });
    shown.collect()
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
