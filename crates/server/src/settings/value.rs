//! The value that an operator sets.

use std::path::PathBuf;

use super::Secret;

/// A value on the command line or in the configuration file.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingValue {
    Switch(bool),
    Text(String),
    Secret(Secret),
    List(Vec<String>),
    Integer(i64),
    Number(f64),
}

impl SettingValue {
    pub fn switch(&self) -> Result<bool, String> {
        match self {
            SettingValue::Switch(on) => Ok(*on),
            _ => Err("must be true or false".into()),
        }
    }

    /// Fails if a setting of MongoDB that this server does not support is switched on.
    pub fn only_off(&self, advice: &str) -> Result<(), String> {
        if self.switch()? {
            return Err(format!("is not supported by this server: {advice}"));
        }
        Ok(())
    }

    pub fn text(&self) -> Result<&str, String> {
        match self {
            SettingValue::Text(text) => Ok(text),
            _ => Err("must be text".into()),
        }
    }

    pub fn path(&self) -> Result<PathBuf, String> {
        match self.text()? {
            "" => Err("must not be empty".into()),
            path => Ok(PathBuf::from(path)),
        }
    }

    pub fn secret(&self) -> Result<Secret, String> {
        match self {
            SettingValue::Secret(secret) => Ok(secret.clone()),
            _ => Err("must be text".into()),
        }
    }

    pub fn list(&self) -> Result<&[String], String> {
        match self {
            SettingValue::List(parts) => Ok(parts),
            _ => Err("must be a list".into()),
        }
    }

    pub fn integer<T: TryFrom<i64>>(&self) -> Result<T, String> {
        match self {
            SettingValue::Integer(n) => T::try_from(*n).map_err(|_| "is out of range".into()),
            _ => Err("must be a whole number".into()),
        }
    }

    pub fn number(&self) -> Result<f64, String> {
        match self {
            SettingValue::Number(n) => Ok(*n),
            SettingValue::Integer(n) => Ok(*n as f64),
            _ => Err("must be a number".into()),
        }
    }
}
