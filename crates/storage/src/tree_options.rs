//! Options that shape a tree: compression and sizes of pages, of collections and of indexes.
//!
//! MongoDB's `storageEngine: {wiredTiger: {configString: "block_compressor=zlib"}}` is accepted, too. Only the
//! compressor of such a string has an effect; the rest concerns WiredTiger.

use frond_bson::{Doc, Value};
use frond_error::ErrorCode;

use crate::error::{Error, Result, command};
use crate::keyspace::{Compression, TreeOptions};
use crate::text;

/// The codecs by their names.
const CODECS: [(&str, Compression); 5] = [
    ("zstd", Compression::Zstd),
    ("zlib", Compression::Zlib),
    ("lz4", Compression::Lz4),
    ("snappy", Compression::Snappy),
    ("none", Compression::None),
];

/// The codec with this name.
pub(crate) fn codec(name: &str) -> Option<Compression> {
    let found = CODECS.iter().find(|(other, _)| *other == name);
    found.map(|(_, codec)| *codec)
}

/// The name of a codec.
pub(crate) fn codec_name(codec: Compression) -> &'static str {
    let found = CODECS.iter().find(|(_, other)| *other == codec);
    found.map_or("none", |(name, _)| name)
}

fn cannot_create_index(message: String) -> Error {
    command(ErrorCode::CannotCreateIndex, message)
}

fn invalid(message: String) -> Error {
    command(ErrorCode::InvalidOptions, message)
}

/// Reads a size in bytes for a tree's nodes or pages.
fn size(name: &str, value: Value<'_>, low: i64, high: i64) -> Result<u32> {
    let bytes = value.as_i64_lossless();
    match bytes.filter(|bytes| (low..=high).contains(bytes)) {
        Some(bytes) => u32::try_from(bytes)
            .map_err(|_| cannot_create_index(format!("The field '{name}' is too large"))),
        None => Err(cannot_create_index(format!(
            "The field '{name}' must be a number of bytes from {low} to {high}, but got {}",
            text::value(value)
        ))),
    }
}

/// Reads one of the options that shape a tree: `compression`, `pageSize`, `readPageSize`. Returns
/// whether `name` is one of them. Collections take them too.
pub(crate) fn parse(options: &mut TreeOptions, name: &str, value: Value<'_>) -> Result<bool> {
    match name {
        "compression" => {
            let named = match value {
                Value::String(name) => codec(name),
                _ => None,
            };
            options.compression = named.ok_or_else(|| {
                command(
                    ErrorCode::BadValue,
                    format!(
                        "The field 'compression' must be one of zstd, zlib, lz4, snappy, none, but got {}",
                        text::value(value)
                    ),
                )
            })?;
        }
        "pageSize" => options.node_bytes = size(name, value, 64 << 10, 64 << 20)?,
        "readPageSize" => options.page_bytes = size(name, value, 1 << 10, 1 << 20)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Checks the value of `storageEngine`, and returns the compressor if it names one.
///
/// # Errors
/// `InvalidOptions` (72) for another engine and another option of this one, `BadValue` (2) for an unknown compressor
/// and values of a wrong type.
pub(crate) fn block_compressor(options: &Doc) -> Result<Option<Compression>> {
    let mut found = None;
    for (engine, value) in options.iter() {
        if engine != "wiredTiger" {
            return Err(invalid(format!(
                "{engine} is not a registered storage engine for this server"
            )));
        }
        let Value::Document(options) = value else {
            return Err(command(
                ErrorCode::BadValue,
                format!("'storageEngine.{engine}' has to be an embedded document."),
            ));
        };
        for (option, value) in options.iter() {
            match (option, value) {
                ("configString", Value::String(config)) => found = compressor_in(config)?,
                ("configString", _) => {
                    return Err(command(
                        ErrorCode::TypeMismatch,
                        "storageEngine.wiredTiger.configString must be a string",
                    ));
                }
                _ => {
                    return Err(invalid(format!(
                        "'{option}' is not a supported option in storageEngine.wiredTiger"
                    )));
                }
            }
        }
    }
    Ok(found)
}

/// The last `block_compressor` of a configuration string: `key=value` pairs separated by commas, with values in
/// quotes or parentheses.
fn compressor_in(config: &str) -> Result<Option<Compression>> {
    let mut found = None;
    let (mut depth, mut quoted, mut start) = (0usize, false, 0);
    let ends = config.char_indices().chain([(config.len(), ',')]);
    for (at, character) in ends {
        match character {
            '"' => quoted = !quoted,
            '(' | '[' if !quoted => depth += 1,
            ')' | ']' if !quoted => depth = depth.saturating_sub(1),
            ',' if (depth == 0 && !quoted) || at == config.len() => {
                let item = config.get(start..at).unwrap_or_default();
                start = at + 1;
                if let Some((key, value)) = item.split_once(['=', ':'])
                    && key.trim().trim_matches('"') == "block_compressor"
                {
                    let name = value.trim().trim_matches('"');
                    let name = if name.is_empty() { "none" } else { name };
                    found = Some(codec(name).ok_or_else(|| {
                        command(
                            ErrorCode::BadValue,
                            format!("unknown compressor '{name}': Invalid argument"),
                        )
                    })?);
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::doc;

    #[test]
    fn the_compressor_is_found_in_a_configuration() {
        for (config, expected) in [
            ("", None),
            ("block_compressor=zlib", Some(Compression::Zlib)),
            ("block_compressor=\"zstd\"", Some(Compression::Zstd)),
            (
                "leaf_page_max=32KB, block_compressor = snappy",
                Some(Compression::Snappy),
            ),
            ("block_compressor=,split_pct=90", Some(Compression::None)),
            ("block_compressor=none", Some(Compression::None)),
            (
                "block_compressor=lz4,block_compressor=zlib",
                Some(Compression::Zlib),
            ),
            ("app_metadata=(block_compressor=zlib),type=file", None),
            ("app_metadata=\"a,block_compressor=zlib\"", None),
            ("prefix_block_compressor=zlib", None),
        ] {
            assert_eq!(compressor_in(config).unwrap(), expected, "{config}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for (options, code) in [
            (
                doc! {"wiredTiger": {"configString": "block_compressor=best"}},
                2,
            ),
            (doc! {"wiredTiger": {"configString": 1}}, 14),
            (doc! {"wiredTiger": {"compressor": "zlib"}}, 72),
            (doc! {"wiredTiger": 1}, 2),
            (doc! {"rocksDB": {}}, 72),
        ] {
            let error = block_compressor(&options).unwrap_err();
            let crate::error::Error::Command(error) = error else {
                panic!("{error:?}")
            };
            assert_eq!(error.code().code(), code, "{options:?}");
        }
    }
}
