//! Which collections of a dump are imported, and which are left out though they are meant.

use std::collections::BTreeMap;

use frond_client::Collection;

use super::options::{ImportOptions, Mode};
use crate::names::{self, Filter};
use crate::schema::Refusal;

/// The database and the collection that archives name where they have the oplog.
const OPLOG: (&str, &str) = ("", "oplog");

/// Why changes of buckets are left out.
pub const OF_BUCKETS: &str = "changes of the buckets of a time series of MongoDB, which cannot be applied: dump it while nothing \
                              writes to it, or copy it with frond migrate; --exclude leaves it out";

/// Why a time series is left out whose options are not known.
pub const OF_UNKNOWN_SERIES: &str =
    "measurements of a time series, and the dump has no metadata that says how it is made";

/// Why the documents of a collection are missing.
pub const NO_DOCUMENTS: &str = "the dump has the metadata of the collection and no documents";

const OF_THE_SERVER: &str = "a server keeps this collection for itself; --exclude leaves it out";
const OF_ONE_DATABASE: &str = "users and roles of one database, which are imported only from a dump of all databases; --no-users leaves them out";
const WITHOUT_INSERT: &str =
    "users and roles are imported with --mode insert only; --no-users leaves them out";
const OF_ONE_NAME: &str = "users and roles are imported with all databases only, without --db; --no-users leaves them out";

/// The treatment of a collection of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Its documents are imported.
    Import,
    /// Its documents are users.
    Users,
    /// Its documents are roles.
    Roles,
    /// Its documents are entries of the oplog.
    Oplog,
    /// The options do not choose it, or it says nothing that the server does not know.
    Nothing,
    /// It is meant, but it cannot be imported for this reason.
    LeftOut(&'static str),
}

/// The options that choose.
#[derive(Clone, Debug)]
pub struct Chooser {
    filter: Filter,
    database: Option<String>,
    collection: Option<String>,
    /// Whether users and roles are imported; otherwise the reason why not.
    accounts: std::result::Result<(), Option<&'static str>>,
}

impl Chooser {
    /// Takes the options. A dump of one database has its name from them or from its folder.
    pub fn new(options: &ImportOptions, database: Option<&str>) -> Chooser {
        let common = &options.common;
        let filter = Filter::new(&common.include, &common.exclude);
        let accounts = if common.no_users || !filter.is_open() {
            Err(None)
        } else if options.mode != Mode::Insert {
            Err(Some(WITHOUT_INSERT))
        } else if database.is_some() {
            Err(Some(OF_ONE_NAME))
        } else {
            Ok(())
        };
        Chooser {
            filter,
            database: database.map(str::to_owned),
            collection: common.collection.clone(),
            accounts,
        }
    }

    /// Whether the whole dump is meant.
    pub fn is_open(&self) -> bool {
        self.database.is_none() && self.takes_whole_databases()
    }

    /// Whether all of the dump is meant, or all of one database.
    pub fn takes_whole_databases(&self) -> bool {
        self.filter.is_open() && self.collection.is_none()
    }

    /// The treatment of a collection.
    pub fn choose(&self, from: &Collection) -> Choice {
        let (database, name) = (from.database.as_str(), from.name.as_str());
        if is_oplog(from) {
            return Choice::Oplog;
        }
        let is_meant = self.filter.chooses(from)
            && self
                .database
                .as_ref()
                .is_none_or(|wanted| wanted == database)
            && self.collection.as_ref().is_none_or(|wanted| wanted == name);
        if !is_meant {
            return Choice::Nothing;
        }
        let accounts = |choice: Choice| match self.accounts {
            Ok(()) => choice,
            Err(None) => Choice::Nothing,
            Err(Some(why)) => Choice::LeftOut(why),
        };
        match (database, name) {
            ("admin", "system.users") => accounts(Choice::Users),
            ("admin", "system.roles") => accounts(Choice::Roles),
            // The version of users and roles, which those of every version since MongoDB 2.6 share.
            ("admin", "system.version") | (_, "$admin.system.version") => Choice::Nothing,
            (_, "$admin.system.users" | "$admin.system.roles") => match self.accounts {
                Err(None) => Choice::Nothing,
                _ => Choice::LeftOut(OF_ONE_DATABASE),
            },
            _ if names::is_internal(from) => Choice::LeftOut(OF_THE_SERVER),
            _ => Choice::Import,
        }
    }
}

/// Whether an archive has the oplog under this name.
pub fn is_oplog(collection: &Collection) -> bool {
    (collection.database.as_str(), collection.name.as_str()) == OPLOG
}

/// Skipped parts of a dump, with the number of documents.
#[derive(Debug, Default)]
pub struct LeftOut(BTreeMap<(String, String), u64>);

impl LeftOut {
    /// Counts documents, or entries, of `what`.
    pub fn add(&mut self, what: &str, why: &str, documents: u64) {
        if documents > 0 {
            *self.0.entry((what.to_owned(), why.to_owned())).or_default() += documents;
        }
    }

    /// All of it in words.
    pub fn refusals(&self) -> impl Iterator<Item = Refusal> + '_ {
        self.0.iter().map(|((what, why), documents)| Refusal {
            what: format!("{documents} documents of {what}"),
            why: why.clone(),
        })
    }
}

/// The chooser of a command line.
#[cfg(test)]
pub fn chooser(words: &str) -> Chooser {
    use clap::{Args, Command, FromArgMatches};

    let command = ImportOptions::augment_args(Command::new("import"));
    let matches =
        command.get_matches_from(std::iter::once("import").chain(words.split_whitespace()));
    let options = ImportOptions::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    Chooser::new(&options, options.common.db.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::in_database;

    #[test]
    fn what_is_meant_is_imported_or_named() {
        use Choice::*;
        for (words, from, expected) in [
            ("", "shop.a", Import),
            ("", "shop.system.js", Import),
            ("--db shop", "shop.a", Import),
            ("--db shop", "old.a", Nothing),
            ("--db shop -c b", "shop.a", Nothing),
            ("--exclude shop.a", "shop.a", Nothing),
            ("", "shop.system.profile", LeftOut(OF_THE_SERVER)),
            ("", "config.chunks", LeftOut(OF_THE_SERVER)),
            ("", "shop.system.views", LeftOut(OF_THE_SERVER)),
            ("--exclude *.system.profile", "shop.system.profile", Nothing),
            ("--include shop.a", "shop.system.profile", Nothing),
            ("", ".oplog", Oplog),
            ("--db shop", ".oplog", Oplog),
            ("", "admin.system.users", Users),
            ("", "admin.system.roles", Roles),
            ("", "admin.system.version", Nothing),
            ("--no-users", "admin.system.users", Nothing),
            ("--include shop", "admin.system.users", Nothing),
            ("-c a", "admin.system.users", Nothing),
            ("--db admin", "admin.system.users", LeftOut(OF_ONE_NAME)),
            (
                "--mode upsert",
                "admin.system.users",
                LeftOut(WITHOUT_INSERT),
            ),
            ("", "shop.$admin.system.users", LeftOut(OF_ONE_DATABASE)),
            ("", "shop.$admin.system.version", Nothing),
            ("--no-users", "shop.$admin.system.roles", Nothing),
        ] {
            let chooser = chooser(words);
            let (database, name) = from.split_once('.').unwrap();
            let choice = chooser.choose(&in_database(database, name));
            assert_eq!(choice, expected, "{words} {from}");
        }
    }
}
