//! The argument of `$changeStream`.

use frond_bson::{Doc, Value};
use frond_error::ErrorCode;

use frond_oplog::token::Token;
use frond_storage::error::{Result, command};
use frond_storage::namespace::Namespace;
use frond_storage::options::read::Given;

/// The scope of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchScope {
    /// A collection, which need not exist.
    Collection(Namespace),
    /// All collections of a database.
    Database(String),
    /// All databases but `admin`, `config` and `local`.
    Cluster,
}

/// The documents that updates are shown with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullDocument {
    #[default]
    Default,
    /// The document as it is when the event is read.
    UpdateLookup,
    /// The document after the update, if its pre-image is stored.
    WhenAvailable,
    /// The document after the update, or an error.
    Required,
}

/// The documents before the change that events are shown with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeforeChange {
    #[default]
    Off,
    /// The pre-image, if it is stored.
    WhenAvailable,
    /// The pre-image, or an error.
    Required,
}

/// Where a stream begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With what is written from now on.
    Now,
    /// With what was written at this time, or later.
    At(u64),
    /// After an event; not after one that ended the stream.
    Resume(Token),
    /// After an event of any kind.
    After(Token),
}

impl Start {
    /// The token that the stream was given, or that of its time.
    pub fn token(&self) -> Option<Token> {
        match self {
            Start::Now => None,
            Start::At(time) => Some(Token::high_water_mark(*time)),
            Start::Resume(token) | Start::After(token) => Some(token.clone()),
        }
    }
}

/// A parsed `$changeStream`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub start: Start,
    pub full_document: FullDocument,
    pub before_change: BeforeChange,
    pub all_changes_for_cluster: bool,
    pub show_expanded_events: bool,
    pub show_system_events: bool,
    pub show_raw_update_description: bool,
    pub allow_to_run_on_config_db: bool,
    pub allow_to_run_on_system_ns: bool,
    /// Whether `updateLookup` finds only documents of the collection that was changed, and not those of another one that has
    /// its name now.
    pub match_uuid_for_look_up: bool,
}

const FULL_DOCUMENT: [(&str, FullDocument); 4] = [
    ("default", FullDocument::Default),
    ("updateLookup", FullDocument::UpdateLookup),
    ("whenAvailable", FullDocument::WhenAvailable),
    ("required", FullDocument::Required),
];

const BEFORE_CHANGE: [(&str, BeforeChange); 3] = [
    ("off", BeforeChange::Off),
    ("whenAvailable", BeforeChange::WhenAvailable),
    ("required", BeforeChange::Required),
];

const OPTIONS: [&str; 13] = [
    "resumeAfter",
    "startAfter",
    "startAtOperationTime",
    "fullDocument",
    "fullDocumentBeforeChange",
    "allChangesForCluster",
    "showExpandedEvents",
    "showSystemEvents",
    "showMigrationEvents",
    "showRawUpdateDescription",
    "allowToRunOnConfigDB",
    "allowToRunOnSystemNS",
    "matchCollectionUUIDForUpdateLookup",
];

impl Spec {
    /// Reads the argument of the stage.
    ///
    /// # Errors
    /// Those of MongoDB's parser: `TypeMismatch` (14), `BadValue` (2), `IDLUnknownField` (40415), `IDLDuplicateField`
    /// (40413), 50865 and 40674 for several places to begin, and errors of tokens.
    pub fn parse(argument: &Doc) -> Result<Spec> {
        let mut spec = Spec {
            start: Start::Now,
            full_document: FullDocument::Default,
            before_change: BeforeChange::Off,
            all_changes_for_cluster: false,
            show_expanded_events: false,
            show_system_events: false,
            show_raw_update_description: false,
            allow_to_run_on_config_db: false,
            allow_to_run_on_system_ns: false,
            match_uuid_for_look_up: false,
        };
        let (mut resume, mut after, mut at) = (None, None, None);
        for given in Given::each("$changeStream", argument, &OPTIONS)? {
            match given.name {
                "resumeAfter" => resume = Some(Token::parse(given.doc()?)?),
                "startAfter" => after = Some(Token::parse(given.doc()?)?),
                "startAtOperationTime" => match given.value {
                    Value::Timestamp(time) => at = Some(time.to_u64()),
                    _ => return Err(given.wrong_type("type 'timestamp'")),
                },
                "fullDocument" => spec.full_document = given.choice(&FULL_DOCUMENT)?,
                "fullDocumentBeforeChange" => spec.before_change = given.choice(&BEFORE_CHANGE)?,
                "allChangesForCluster" => spec.all_changes_for_cluster = given.boolean()?,
                "showExpandedEvents" => spec.show_expanded_events = given.boolean()?,
                "showSystemEvents" => spec.show_system_events = given.boolean()?,
                "showRawUpdateDescription" => {
                    spec.show_raw_update_description = given.boolean()?;
                }
                "allowToRunOnConfigDB" => spec.allow_to_run_on_config_db = given.boolean()?,
                "allowToRunOnSystemNS" => spec.allow_to_run_on_system_ns = given.boolean()?,
                "matchCollectionUUIDForUpdateLookup" => {
                    spec.match_uuid_for_look_up = given.boolean()?;
                }
                // `showMigrationEvents`: no chunks migrate here, so there are no such events.
                _ => drop(given.boolean()?),
            }
        }
        if resume.is_some() && after.is_some() {
            return Err(command(
                ErrorCode::Location(50865),
                "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage",
            ));
        }
        if at.is_some() && (resume.is_some() || after.is_some()) {
            return Err(command(
                ErrorCode::Location(40674),
                "Only one type of resume option is allowed, but multiple were found",
            ));
        }
        spec.start = match (resume, after, at) {
            (Some(token), ..) => Start::Resume(token),
            (_, Some(token), _) => Start::After(token),
            (_, _, Some(time)) => Start::At(time),
            _ => Start::Now,
        };
        Ok(spec)
    }

    /// Checks that the stream may be opened there. `db` and `coll` are what the command names.
    ///
    /// # Errors
    /// `InvalidOptions` (72), `InvalidNamespace` (73), `InvalidResumeToken` (260).
    pub fn check(&self, db: &str, coll: Option<&str>) -> Result<WatchScope> {
        let shown = format!("{db}.{}", coll.unwrap_or("$cmd.aggregate"));
        if self.all_changes_for_cluster && (db != "admin" || coll.is_some()) {
            return Err(command(
                ErrorCode::InvalidOptions,
                format!(
                    "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and \
                     with no collection name; found {shown}"
                ),
            ));
        }
        let is_allowed = match db {
            "admin" => self.all_changes_for_cluster,
            "local" => false,
            "config" => self.allow_to_run_on_config_db,
            _ => true,
        };
        if !is_allowed {
            return Err(command(
                ErrorCode::InvalidNamespace,
                format!("$changeStream may not be opened on the internal {db} database"),
            ));
        }
        if coll.is_some_and(|coll| coll.starts_with("system.")) && !self.allow_to_run_on_system_ns {
            return Err(command(
                ErrorCode::InvalidNamespace,
                format!("$changeStream may not be opened on the internal {shown} collection"),
            ));
        }
        if matches!(&self.start, Start::Resume(token) if token.from_invalidate) {
            return Err(command(
                ErrorCode::InvalidResumeToken,
                "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification",
            ));
        }
        let token = self.start.token();
        if coll.is_some() && token.is_some_and(|token| token.is_event && token.uuid.is_none()) {
            return Err(command(
                ErrorCode::InvalidResumeToken,
                "Attempted to resume a single-collection stream, but the resume token does not include a UUID",
            ));
        }
        Ok(match coll {
            Some(coll) => WatchScope::Collection(Namespace::new(db, coll)?),
            None if db == "admin" => WatchScope::Cluster,
            None => WatchScope::Database(db.to_owned()),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use frond_bson::{DocBuf, Timestamp, doc};

    use super::*;

    fn token(from_invalidate: bool, uuid: bool) -> DocBuf {
        let uuid = uuid.then_some([1; 16]);
        let token = Token::of_event(7 << 32, 0, uuid, "drop", None);
        if from_invalidate {
            token.of_invalidate().to_doc()
        } else {
            token.to_doc()
        }
    }

    #[test]
    fn options_are_read() {
        let spec = Spec::parse(&doc! {}).unwrap();
        assert_eq!(spec.start, Start::Now);
        let all = doc! {
            "startAtOperationTime": Timestamp { time: 5, increment: 6 },
            "fullDocument": "whenAvailable",
            "fullDocumentBeforeChange": "required",
            "showExpandedEvents": true,
            "showSystemEvents": true,
            "showMigrationEvents": true,
            "showRawUpdateDescription": true,
            "allowToRunOnConfigDB": true,
            "allowToRunOnSystemNS": true,
            "allChangesForCluster": false,
        };
        let spec = Spec::parse(&all).unwrap();
        assert_eq!(spec.start, Start::At(5 << 32 | 6));
        assert_eq!(spec.full_document, FullDocument::WhenAvailable);
        assert_eq!(spec.before_change, BeforeChange::Required);
        assert!(spec.show_expanded_events && spec.show_raw_update_description);
        // Null is left out: drivers send it for an option that is undefined.
        let mut none = DocBuf::new();
        for name in OPTIONS {
            none.push(name, Value::Null);
        }
        assert_eq!(Spec::parse(&none).unwrap(), Spec::parse(&doc! {}).unwrap());
        let resumed = Spec::parse(&doc! {"resumeAfter": token(false, true)}).unwrap();
        assert!(matches!(resumed.start, Start::Resume(_)));
        let after = Spec::parse(&doc! {"startAfter": token(true, true)}).unwrap();
        assert!(matches!(after.start, Start::After(_)));
    }

    #[test]
    fn wrong_options_have_the_codes_of_mongodb() {
        let time = Timestamp {
            time: 5,
            increment: 6,
        };
        for (spec, code) in [
            (doc! {"a": 1}, 40415),
            (doc! {"a": null}, 40415),
            (doc! {"resumeAfter": "x"}, 14),
            (doc! {"resumeAfter": {}}, 40647),
            (doc! {"startAfter": {"_data": "82"}}, 260),
            (doc! {"startAtOperationTime": 5}, 14),
            (doc! {"fullDocument": "never"}, 2),
            (doc! {"fullDocument": 1}, 14),
            (doc! {"fullDocumentBeforeChange": "on"}, 2),
            (doc! {"showExpandedEvents": 1}, 14),
            (doc! {"allChangesForCluster": "yes"}, 14),
            (doc! {"matchCollectionUUIDForUpdateLookup": 1}, 14),
            (
                doc! {"fullDocument": "default", "fullDocument": "default"},
                40413,
            ),
            (
                doc! {"resumeAfter": token(false, true), "startAfter": token(false, true)},
                50865,
            ),
            (
                doc! {"resumeAfter": token(false, true), "startAtOperationTime": time},
                40674,
            ),
            (
                doc! {"startAfter": token(false, true), "startAtOperationTime": time},
                40674,
            ),
        ] {
            let error = Spec::parse(&spec).unwrap_err();
            assert_eq!(error.code().code(), code, "{spec:?}: {error}");
        }
    }

    #[test]
    fn places_are_checked() {
        let check = |spec: DocBuf, db: &str, coll: Option<&str>| {
            let checked = Spec::parse(&spec).unwrap().check(db, coll);
            checked.map_err(|error| error.code().code())
        };
        let cluster = || doc! {"allChangesForCluster": true};
        let ns = Namespace::new("d", "c").unwrap();
        assert_eq!(
            check(doc! {}, "d", Some("c")),
            Ok(WatchScope::Collection(ns))
        );
        let database = WatchScope::Database("d".to_owned());
        assert_eq!(check(doc! {}, "d", None), Ok(database));
        assert_eq!(check(cluster(), "admin", None), Ok(WatchScope::Cluster));
        assert_eq!(check(cluster(), "d", None), Err(72));
        assert_eq!(check(cluster(), "admin", Some("c")), Err(72));
        for db in ["admin", "local", "config"] {
            assert_eq!(check(doc! {}, db, None), Err(73));
            assert_eq!(check(doc! {}, db, Some("c")), Err(73));
        }
        let config = doc! {"allowToRunOnConfigDB": true};
        assert!(check(config, "config", Some("c")).is_ok());
        assert_eq!(check(doc! {}, "d", Some("system.views")), Err(73));
        let resume = |name: &str, from_invalidate, uuid| {
            let mut spec = DocBuf::new();
            spec.push(name, &*token(from_invalidate, uuid));
            spec
        };
        assert_eq!(
            check(resume("resumeAfter", true, true), "d", None),
            Err(260)
        );
        assert!(check(resume("startAfter", true, true), "d", None).is_ok());
        assert_eq!(
            check(resume("resumeAfter", false, false), "d", Some("c")),
            Err(260)
        );
        assert!(check(resume("resumeAfter", false, false), "d", None).is_ok());
    }
}
