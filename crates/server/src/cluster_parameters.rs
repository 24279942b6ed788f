//! Parameters that are stored: those of `setClusterParameter`. There is one, `changeStreamOptions`.

use std::time::Duration;

use frond_bson::{Doc, DocBuf, Timestamp, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::DocumentStore;
use parking_lot::RwLock;

use crate::arguments::{Arguments, whole};
use crate::internal_collections::{find_one, replace_one};

/// Where they are stored, as in MongoDB.
const COLLECTION: (&str, &str) = ("config", "clusterParameters");

/// The name of the only parameter.
pub const CHANGE_STREAM_OPTIONS: &str = "changeStreamOptions";

/// The parameters of a server.
pub struct ClusterParameters {
    change_streams: RwLock<ChangeStreamOptions>,
}

/// `changeStreamOptions`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ChangeStreamOptions {
    /// Seconds until a pre-image is removed; none if it is kept as long as its entry of the oplog.
    expire_after_seconds: Option<u64>,
    /// When it was set; the null timestamp if it never was.
    set_at: Timestamp,
}

impl ChangeStreamOptions {
    /// Reads the value of the parameter.
    ///
    /// # Errors
    /// `BadValue` (2), as in MongoDB.
    fn parse(given: &Doc, set_at: Timestamp) -> Result<ChangeStreamOptions> {
        let parse = || {
            let args = Arguments::new(CHANGE_STREAM_OPTIONS, given);
            args.only(&["preAndPostImages"])?;
            let images = args
                .doc_field("preAndPostImages")?
                .ok_or_else(|| args.missing("preAndPostImages"))?;
            let args = Arguments::new("changeStreamOptions.preAndPostImages", images);
            args.only(&["expireAfterSeconds"])?;
            match args.get("expireAfterSeconds") {
                None => Err(args.missing("expireAfterSeconds")),
                Some(Value::String("off")) => Ok(None),
                Some(Value::String(_)) => Err(Error::bad_value(
                    "Non-numeric value of 'expireAfterSeconds' should be 'off'",
                )),
                Some(value) if value.is_number() => match u64::try_from(whole(&value)) {
                    Ok(seconds) if seconds > 0 => Ok(Some(seconds)),
                    _ => Err(Error::bad_value(
                        "Numeric value of 'expireAfterSeconds' should be positive",
                    )),
                },
                Some(other) => Err(args.wrong_type(
                    "expireAfterSeconds",
                    &other,
                    "types '[string, int, decimal, double, long]'",
                )),
            }
        };
        match parse() {
            Ok(expire_after_seconds) => Ok(ChangeStreamOptions {
                expire_after_seconds,
                set_at,
            }),
            Err(error) if error.code() == ErrorCode::BadValue => Err(error),
            Err(error) => Err(Error::bad_value(format!(
                "Failed parsing new changeStreamOptions value: {}",
                error.message()
            ))),
        }
    }

    /// The parameter as it is stored and shown.
    fn to_doc(self) -> DocBuf {
        let seconds = self.expire_after_seconds.map(|seconds| seconds as i64);
        let expiry = seconds.map_or(Value::String("off"), Value::Int64);
        doc! {
            "_id": CHANGE_STREAM_OPTIONS,
            "clusterParameterTime": self.set_at,
            "preAndPostImages": {"expireAfterSeconds": expiry},
        }
    }
}

impl ClusterParameters {
    /// Those of a store.
    ///
    /// # Errors
    /// Errors of the store. A stored value that cannot be read is as if it was never set.
    pub fn load(store: &DocumentStore) -> Result<ClusterParameters> {
        let stored = find_one(store, COLLECTION, doc! {"_id": CHANGE_STREAM_OPTIONS})?;
        let options = stored.and_then(|stored| {
            let Some(Value::Timestamp(set_at)) = stored.get("clusterParameterTime") else {
                return None;
            };
            let value = doc! {"preAndPostImages": stored.get_doc("preAndPostImages")?};
            ChangeStreamOptions::parse(&value, set_at).ok()
        });
        Ok(ClusterParameters {
            change_streams: RwLock::new(options.unwrap_or_default()),
        })
    }

    /// Reads them again: another member of the replica set may have changed them.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn reload(&self, store: &DocumentStore) -> Result<()> {
        let read = ClusterParameters::load(store)?;
        *self.change_streams.write() = read.change_streams.into_inner();
        Ok(())
    }

    /// The lifetime of pre-images; none if it is that of their entries in the oplog.
    pub fn pre_image_expiry(&self) -> Option<Duration> {
        let seconds = self.change_streams.read().expire_after_seconds;
        seconds.map(Duration::from_secs)
    }

    /// A parameter by its name.
    ///
    /// # Errors
    /// `NoSuchKey` (4) for an unknown one.
    pub fn get(&self, name: &str) -> Result<DocBuf> {
        match name {
            CHANGE_STREAM_OPTIONS => Ok(self.change_streams.read().to_doc()),
            other => Err(unknown(other)),
        }
    }

    /// Changes a parameter, durably.
    ///
    /// # Errors
    /// `NoSuchKey` (4) for an unknown one, `BadValue` (2) for a wrong value, errors of the store.
    pub fn set(&self, store: &DocumentStore, name: &str, value: &Doc) -> Result<()> {
        if name != CHANGE_STREAM_OPTIONS {
            return Err(unknown(name));
        }
        let mut current = self.change_streams.write();
        let new = ChangeStreamOptions::parse(value, store.cluster_time().tick()?)?;
        replace_one(store, COLLECTION, CHANGE_STREAM_OPTIONS, &new.to_doc())?;
        *current = new;
        Ok(())
    }
}

fn unknown(name: &str) -> Error {
    let advice = match name {
        "auditConfig" => ": use setAuditConfig",
        "defaultMaxTimeMS" => ": set maxTimeMS on the operation instead",
        _ => "",
    };
    Error::new(
        ErrorCode::NoSuchKey,
        format!("Unknown server parameter: {name}{advice}"),
    )
}
