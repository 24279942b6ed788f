//! The settings of the audit log.

use std::path::PathBuf;

use frond_bson::{DocBuf, extjson};
use frond_query::matcher::Filter;

/// Where audit events go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditDestination {
    File,
    Syslog,
    Console,
}

/// The format of events in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditFormat {
    /// One line for each event.
    #[default]
    Json,
    /// One document after the other.
    Bson,
}

/// The audit log at the start.
#[derive(Clone, Debug, Default)]
pub struct AuditSettings {
    /// None if nothing is audited.
    pub destination: Option<AuditDestination>,
    /// See [`AuditFormat`].
    pub format: AuditFormat,
    /// The file of [`AuditDestination::File`].
    pub path: Option<PathBuf>,
    /// A query that selects the events that are recorded, in place of all.
    pub filter: Option<DocBuf>,
    /// Whether commands that are permitted make events, too.
    pub authorization_success: bool,
    /// Whether `setAuditConfig` changes the filter, and not these settings.
    pub is_runtime: bool,
    /// Whether commands go on whose events cannot be written.
    pub continues: bool,
}

impl AuditSettings {
    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check(&self, is_explicit: impl Fn(&str) -> bool) -> Result<(), String> {
        let Some(destination) = self.destination else {
            let keys = [
                "format",
                "path",
                "filter",
                "runtimeConfiguration",
                "onFailure",
            ];
            for key in keys {
                if is_explicit(&format!("auditLog.{key}")) {
                    return Err(format!("auditLog.{key} needs auditLog.destination"));
                }
            }
            if self.authorization_success {
                return Err("auditAuthorizationSuccess needs auditLog.destination".to_owned());
            }
            return Ok(());
        };
        match (destination, &self.path) {
            (AuditDestination::File, None) => {
                return Err("auditLog.destination file needs auditLog.path".to_owned());
            }
            (AuditDestination::File, Some(_)) | (_, None) => {}
            (_, Some(_)) => return Err("auditLog.path needs auditLog.destination file".to_owned()),
        }
        if self.format == AuditFormat::Bson && destination != AuditDestination::File {
            return Err("auditLog.format BSON needs auditLog.destination file".to_owned());
        }
        for (key, name) in [
            ("auditLog.filter", "auditLog.filter"),
            (
                "setParameter.auditAuthorizationSuccess",
                "auditAuthorizationSuccess",
            ),
        ] {
            if self.is_runtime && is_explicit(key) {
                return Err(format!(
                    "{name} must not be set with auditLog.runtimeConfiguration: setAuditConfig changes it"
                ));
            }
        }
        Ok(())
    }
}

/// Reads a filter: a query on events, as JSON or in the form of the shell.
///
/// # Errors
/// If it is neither, or no query.
pub fn parse_audit_filter(text: &str) -> Result<DocBuf, String> {
    let filter = extjson::parse(text)
        .or_else(|_| extjson::parse_legacy(text))
        .map_err(|error| format!("is no document: {error}"))?;
    Filter::parse(&filter).map_err(|error| format!("is no query: {}", error.message()))?;
    Ok(filter)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;

    #[test]
    fn filters_are_queries_in_the_forms_of_the_shell() {
        let cases = [
            (
                r#"{"atype": "authCheck"}"#,
                Some(doc! {"atype": "authCheck"}),
            ),
            (
                "{ atype: { $in: [ 'dropCollection' ] }, 'param.ns': /^a/ }",
                Some(doc! {
                    "atype": {"$in": ["dropCollection"]},
                    "param.ns": frond_bson::Value::Regex { pattern: "^a", options: "" },
                }),
            ),
            ("{}", Some(doc! {})),
            ("", None),
            ("[1]", None),
            ("{atype: ", None),
            ("{atype: {$nonsense: 1}}", None),
            ("{$and: []}", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_audit_filter(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn settings_that_do_not_fit_together_are_refused() {
        let file = AuditSettings {
            destination: Some(AuditDestination::File),
            path: Some("/a".into()),
            ..AuditSettings::default()
        };
        let none = AuditSettings::default();
        let cases: Vec<(AuditSettings, &[&str], &str)> = vec![
            (none.clone(), &[], ""),
            (file.clone(), &["auditLog.filter"], ""),
            (none.clone(), &["auditLog.filter"], "auditLog.filter needs"),
            (
                none.clone(),
                &["auditLog.onFailure"],
                "auditLog.onFailure needs",
            ),
            (
                AuditSettings {
                    authorization_success: true,
                    ..none.clone()
                },
                &[],
                "auditAuthorizationSuccess needs",
            ),
            (
                AuditSettings {
                    path: None,
                    ..file.clone()
                },
                &[],
                "needs auditLog.path",
            ),
            (
                AuditSettings {
                    destination: Some(AuditDestination::Console),
                    ..file.clone()
                },
                &[],
                "auditLog.path needs auditLog.destination file",
            ),
            (
                AuditSettings {
                    destination: Some(AuditDestination::Syslog),
                    format: AuditFormat::Bson,
                    ..none.clone()
                },
                &[],
                "BSON needs",
            ),
            (
                AuditSettings {
                    is_runtime: true,
                    ..file.clone()
                },
                &["auditLog.filter"],
                "auditLog.filter must not",
            ),
            (
                AuditSettings {
                    is_runtime: true,
                    ..file.clone()
                },
                &["setParameter.auditAuthorizationSuccess"],
                "auditAuthorizationSuccess must not",
            ),
        ];
        for (settings, explicit, expected) in cases {
            let checked = settings.check(|key| explicit.contains(&key));
            match checked {
                Ok(()) => assert_eq!(expected, "", "{settings:?}"),
                Err(why) => assert!(!expected.is_empty() && why.contains(expected), "{why}"),
            }
        }
    }
}
