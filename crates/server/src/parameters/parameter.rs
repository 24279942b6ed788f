//! One entry of the table.

use std::borrow::Cow;

use frond_bson::{OwnedValue, Value};
use frond_error::Result;

use super::kind::Kind;
use super::runtime::{Setter, boolean, number};
use crate::settings::{SettingValue, Settings};
use crate::state::Server;

/// Changes the settings, or returns the reason why a value is refused.
pub type Apply = fn(&mut Settings, &SettingValue) -> std::result::Result<(), String>;

/// A parameter of the server. Entries take the fields that they do not name from [`Parameter::EMPTY`].
pub struct Parameter {
    /// Long option of the command line, without dashes.
    pub option: &'static str,
    /// Former names of the option.
    pub option_aliases: &'static [&'static str],
    /// Path in the configuration file; empty if `setParameter.NAME` is the only one.
    pub key: &'static str,
    /// Further paths in the configuration file, besides `setParameter.NAME`.
    pub key_aliases: &'static [&'static str],
    /// Name in `getParameter`, `setParameter` and `--setParameter`.
    pub name: &'static str,
    /// Whether `--setParameter` takes the name, if there is a start-up setting.
    pub is_named_at_start: bool,
    pub kind: Kind,
    /// In the form of the command line; empty if there is no default, or if it depends on the machine.
    pub default: &'static str,
    /// One line for the help and the pages, in which `{default}` stands for the default.
    pub doc: &'static str,
    /// Further sentences for the pages.
    pub long_doc: &'static str,
    /// Something without which the setting is refused.
    pub needs: Option<Need>,
    /// Applies a value of the start. None if it cannot be set at the start.
    pub apply: Option<Apply>,
    /// Reads the current value. All named parameters have it.
    pub get: Option<fn(&Server) -> OwnedValue>,
    /// None if it cannot be set at runtime.
    pub set: Option<Setter>,
}

/// Something without which a setting is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Encrypted connections. A switch that is off needs nothing.
    Tls,
    /// The storage engine tikv.
    Tikv,
    /// Data files; the string is the reason for servers that have none.
    DataFiles(&'static str),
}

impl Parameter {
    /// Only for `..Parameter::EMPTY`.
    pub const EMPTY: Parameter = Parameter {
        option: "",
        option_aliases: &[],
        key: "",
        key_aliases: &[],
        name: "",
        is_named_at_start: true,
        kind: Kind::ReadOnly,
        default: "",
        doc: "",
        long_doc: "",
        needs: None,
        apply: None,
        get: None,
        set: None,
    };

    /// The preferred path in the configuration file, which `getCmdLineOpts` shows.
    pub fn key(&self) -> Cow<'static, str> {
        if self.key.is_empty() {
            Cow::Owned(format!("setParameter.{}", self.name))
        } else {
            Cow::Borrowed(self.key)
        }
    }

    /// All paths in the configuration file, the preferred one first.
    pub fn keys(&self) -> Vec<Cow<'static, str>> {
        let mut keys = vec![self.key()];
        keys.extend(self.key_aliases.iter().copied().map(Cow::Borrowed));
        if self.is_start_parameter() && !self.key.is_empty() {
            keys.push(Cow::Owned(format!("setParameter.{}", self.name)));
        }
        keys
    }

    /// Whether it has this path in the configuration file.
    pub fn has_key(&self, key: &str) -> bool {
        (self.key == key && !key.is_empty())
            || self.key_aliases.contains(&key)
            || (self.is_start_parameter() && key.strip_prefix("setParameter.") == Some(self.name))
    }

    /// Whether `--setParameter` takes it.
    pub fn is_start_parameter(&self) -> bool {
        self.apply.is_some() && self.is_named_at_start && !self.name.is_empty()
    }

    /// The name for error messages: the option if there is one, else the key.
    pub fn label(&self) -> String {
        if self.option.is_empty() {
            self.key().into_owned()
        } else {
            format!("--{} ({})", self.option, self.key())
        }
    }

    /// [`Parameter::doc`] with the default.
    pub fn help(&self) -> String {
        self.doc.replace("{default}", self.default)
    }

    /// Changes the running server by one of the parameter's setters.
    ///
    /// # Errors
    /// `TypeMismatch` (14), `BadValue` (2), those of the setter.
    pub fn change(&self, set: Setter, server: &Server, value: &Value<'_>) -> Result<()> {
        let integer = || {
            let (low, high) = match self.kind {
                Kind::Integer(low, high) => (low, high),
                _ => (i64::MIN, i64::MAX),
            };
            number(self.name, value, low, high)
        };
        match set {
            Setter::Switch(set) => set(server, boolean(self.name, value)?),
            Setter::Integer(set) => set(server, integer()?),
            Setter::TryInteger(set) => set(server, integer()?)?,
            Setter::Value(set) => set(server, value)?,
        }
        Ok(())
    }
}
