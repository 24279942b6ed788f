//! The description of a backup: `backup.json`.

use frond_bson::{Doc, DocBuf, Value, extjson, hex, unhex_array};

use crate::mark::Mark;

/// The version of the format of repositories.
pub const FORMAT_VERSION: i64 = 1;

/// The random name of a store. A restored store has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreId(pub [u8; 16]);

impl StoreId {
    /// The id with these bytes, if there are 16.
    pub fn from_bytes(bytes: &[u8]) -> Option<StoreId> {
        bytes.try_into().ok().map(StoreId)
    }

    /// The id with these hexadecimal digits.
    pub fn parse(text: &str) -> Option<StoreId> {
        unhex_array(text).map(StoreId)
    }
}

impl std::fmt::Display for StoreId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    pub bytes: u64,
}

/// The description of a complete backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name, which is that of its folder.
    pub id: String,
    /// The backup that has the extents which this one lacks; none for a full backup.
    pub parent: Option<String>,
    pub store_id: StoreId,
    /// The number of the checkpoint.
    pub generation: u64,
    /// When it was finished, in milliseconds since 1970.
    pub finished: i64,
    /// The state that it restores.
    pub mark: Mark,
    /// The position of the first byte of its log.
    pub log_from: u64,
    /// The position after the last byte of its log.
    pub log_end: u64,
    /// All extents that the checkpoint needs, and their bytes.
    pub extents: u64,
    /// Bytes of all these.
    pub extent_bytes: u64,
    /// Bytes of those that this backup has.
    pub copied_bytes: u64,
    /// Its files, in the order in which they were written.
    pub parts: Vec<Part>,
}

impl Description {
    /// All bytes of its files.
    pub fn stored_bytes(&self) -> u64 {
        let parts = self.parts.iter().map(|part| part.bytes);
        parts.fold(0, u64::saturating_add)
    }

    pub fn to_json(&self) -> String {
        let mut doc = DocBuf::new();
        doc.push("version", FORMAT_VERSION);
        doc.push("id", self.id.as_str());
        let kind = match self.parent {
            None => "full",
            Some(_) => "incremental",
        };
        doc.push("kind", kind);
        if let Some(parent) = &self.parent {
            doc.push("parent", parent.as_str());
        }
        let mut number = |name: &str, number: u64| {
            doc.push(name, i64::try_from(number).unwrap_or(i64::MAX));
        };
        number("generation", self.generation);
        number("logFrom", self.log_from);
        number("logEnd", self.log_end);
        number("extents", self.extents);
        number("extentBytes", self.extent_bytes);
        number("copiedBytes", self.copied_bytes);
        number("position", self.mark.position);
        if let Some(stamp) = self.mark.stamp {
            let stamp = frond_bson::Timestamp::from_u64(stamp);
            doc.push_value("timestamp", &Value::Timestamp(stamp));
        }
        doc.push("storeId", self.store_id.to_string().as_str());
        doc.push_value("time", &Value::DateTime(self.mark.time));
        doc.push_value("until", &Value::DateTime(self.mark.until));
        doc.push_value("finished", &Value::DateTime(self.finished));
        doc.push_array("parts", |parts| {
            for part in &self.parts {
                parts.push_doc(|one| {
                    one.push("name", part.name.as_str());
                    one.push("bytes", i64::try_from(part.bytes).unwrap_or(i64::MAX));
                });
            }
        });
        let text = extjson::to_relaxed(&doc);
        let checksum = crc32c::crc32c(text.as_bytes());
        format!("{text}\n{checksum:08x}\n")
    }

    /// Reads the text.
    ///
    /// # Errors
    /// Names the problem.
    pub fn parse(text: &str) -> Result<Description, String> {
        let cut = text.trim_end().rsplit_once('\n');
        let (json, checksum) = cut.ok_or("it has no checksum")?;
        let is_whole = u32::from_str_radix(checksum, 16).ok();
        if is_whole != Some(crc32c::crc32c(json.as_bytes())) {
            return Err("its checksum does not match".to_owned());
        }
        let doc = extjson::parse(json).map_err(|error| error.to_string())?;
        match doc.get_i64("version") {
            Some(FORMAT_VERSION) => {}
            Some(other) => {
                return Err(format!(
                    "it has format version {other}, and this program knows {FORMAT_VERSION}; use the version of frond \
                     that wrote it, or a newer one"
                ));
            }
            None => return Err("it has no format version".to_owned()),
        }
        let found = read(&doc).ok_or("a field is missing")?;
        // They become parts of paths.
        let parts = found.parts.iter().map(|part| &part.name);
        for name in [&found.id].into_iter().chain(&found.parent).chain(parts) {
            frond_files::component(name).map_err(|error| error.to_string())?;
        }
        Ok(found)
    }
}

fn read(doc: &Doc) -> Option<Description> {
    let number = |name: &str| u64::try_from(doc.get_i64(name)?).ok();
    let time = |name: &str| match doc.get(name)? {
        Value::DateTime(ms) => Some(ms),
        _ => None,
    };
    let stamp = match doc.get("timestamp") {
        Some(Value::Timestamp(stamp)) => Some(stamp.to_u64()),
        _ => None,
    };
    let mut parts = Vec::new();
    for part in doc.get_array("parts")?.values() {
        let part = part.as_doc()?;
        parts.push(Part {
            name: part.get_str("name")?.to_owned(),
            bytes: u64::try_from(part.get_i64("bytes")?).ok()?,
        });
    }
    Some(Description {
        id: doc.get_str("id")?.to_owned(),
        parent: doc.get_str("parent").map(ToOwned::to_owned),
        store_id: StoreId::parse(doc.get_str("storeId")?)?,
        generation: number("generation")?,
        finished: time("finished")?,
        mark: Mark {
            time: time("time")?,
            until: time("until")?,
            position: number("position")?,
            stamp,
        },
        log_from: number("logFrom")?,
        log_end: number("logEnd")?,
        extents: number("extents")?,
        extent_bytes: number("extentBytes")?,
        copied_bytes: number("copiedBytes")?,
        parts,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_written_and_read() {
        let mut description = Description {
            id: "20261123T201500.123Z".to_owned(),
            parent: None,
            store_id: StoreId([0xa7; 16]),
            generation: 12,
            finished: 1_790_000_000_123,
            mark: Mark {
                time: 1_790_000_000_000,
                until: 1_790_000_000_001,
                position: 77,
                stamp: None,
            },
            log_from: 5,
            log_end: 80,
            extents: 3,
            extent_bytes: 300,
            copied_bytes: 100,
            parts: vec![Part {
                name: "part-000001.frbk".to_owned(),
                bytes: 4,
            }],
        };
        for (parent, stamp) in [(None, None), (Some("a".to_owned()), Some(9))] {
            description.parent = parent;
            description.mark.stamp = stamp;
            let text = description.to_json();
            assert_eq!(Description::parse(&text).unwrap(), description);
            let damaged = text.replace("\"generation\":12", "\"generation\":13");
            assert!(Description::parse(&damaged).is_err());
            assert!(Description::parse(&text[..text.len() / 2]).is_err());
        }
        for name in ["..", "../x", "/etc/x", "", "a\0"] {
            let mut hostile = description.clone();
            hostile.parts[0].name = name.to_owned();
            let error = Description::parse(&hostile.to_json()).unwrap_err();
            assert!(error.contains("cannot be the name"), "{name:?}: {error}");
            let mut hostile = description.clone();
            hostile.parent = Some(name.to_owned());
            assert!(Description::parse(&hostile.to_json()).is_err(), "{name:?}");
            hostile = description.clone();
            hostile.id = name.to_owned();
            assert!(Description::parse(&hostile.to_json()).is_err(), "{name:?}");
        }
        assert_eq!(StoreId::parse("a7"), None);
        assert_eq!(StoreId::parse(&"+1".repeat(16)), None);
        let id = StoreId([3; 16]);
        assert_eq!(StoreId::parse(&id.to_string()), Some(id));
    }
}
