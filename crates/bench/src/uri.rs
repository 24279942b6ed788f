//! Connection strings: `mongodb://host[:port]/[database][?options]`.
//!
//! One host, by name, by address or by the percent-encoded path of a Unix socket. An option that
//! this client does not act on is an error that names it.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use frond_wire::Compressor;

use crate::error::{Error, Result};

/// The port of a server when the connection string names none.
pub const DEFAULT_PORT: u16 = 27017;

/// How long connecting may take when the connection string does not say.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host name or address (without brackets), and a port.
    Tcp(String, u16),
    /// A Unix domain socket.
    Unix(PathBuf),
}

impl Address {
    /// The place for messages to people.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Address::Tcp(host, port) => format!("{host}:{port}"),
            Address::Unix(path) => path.display().to_string(),
        }
    }

    /// The host as it stands in a connection string.
    #[must_use]
    pub fn in_uri(&self) -> String {
        match self {
            Address::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}"),
            Address::Tcp(host, port) => format!("{host}:{port}"),
            Address::Unix(path) => percent_encode(path.as_os_str().as_bytes()),
        }
    }
}

/// A parsed connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// The one server.
    pub address: Address,
    /// The database of the path, if there is one.
    pub database: Option<String>,
    /// `appName`: what the client calls itself in the server's log.
    pub app_name: Option<String>,
    /// `compressors`: what may be negotiated, in order of preference.
    pub compressors: Vec<Compressor>,
    /// `connectTimeoutMS`; 0 there means no limit, here `None`.
    pub connect_timeout: Option<Duration>,
    /// `socketTimeoutMS`: the longest wait for an answer; `None` is no limit.
    pub socket_timeout: Option<Duration>,
    /// `w`: 0 or 1.
    pub write_concern: Option<u8>,
    /// `journal`.
    pub journal: Option<bool>,
}

impl FromStr for Uri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Uri> {
        if text.starts_with("mongodb+srv://") {
            return Err(bad("mongodb+srv:// is not supported, use mongodb://"));
        }
        let rest = text
            .strip_prefix("mongodb://")
            .ok_or_else(|| bad("it must start with mongodb://"))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
        if host.contains('@') {
            return Err(bad("authentication (user:password@) is not supported yet"));
        }

        let database = match percent_decode(database)? {
            name if name.is_empty() => None,
            name if name.contains(['/', '\\', ' ', '"', '$', '.', '\0']) => {
                return Err(bad(format!("{name:?} is not a database name")));
            }
            name => Some(name),
        };
        let mut uri = Uri {
            address: address(host)?,
            database,
            app_name: None,
            compressors: Vec::new(),
            connect_timeout: Some(CONNECT_TIMEOUT),
            socket_timeout: None,
            write_concern: None,
            journal: None,
        };
        for pair in options.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| bad(format!("option {pair:?} has no value")))?;
            uri.set(name, &percent_decode(value)?)?;
        }
        Ok(uri)
    }
}

impl Uri {
    /// Acts on one option. Names are compared without regard to case, as drivers do.
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name.to_ascii_lowercase().as_str() {
            "appname" => self.app_name = Some(value.to_owned()),
            "compressors" => {
                self.compressors = value
                    .split(',')
                    .map(|name| {
                        Compressor::from_name(name)
                            .ok_or_else(|| bad(format!("compressor {name:?} is not known")))
                    })
                    .collect::<Result<_>>()?;
            }
            "connecttimeoutms" => self.connect_timeout = milliseconds(name, value)?,
            "sockettimeoutms" => self.socket_timeout = milliseconds(name, value)?,
            "w" => {
                self.write_concern = Some(match value {
                    "0" => 0,
                    "1" => 1,
                    _ => return Err(bad(format!("w={value} is not supported, only 0 and 1"))),
                });
            }
            "journal" => self.journal = Some(boolean(name, value)?),
            // Only the value that describes this client is accepted.
            "directconnection" => only(name, value, true, "it knows one server only")?,
            "retrywrites" | "retryreads" => only(name, value, false, "nothing is retried")?,
            "tls" | "ssl" => only(name, value, false, "TLS is not supported yet")?,
            "loadbalanced" => only(name, value, false, "it knows one server only")?,
            "authsource" | "authmechanism" | "authmechanismproperties" => {
                return Err(bad(format!("{name}: authentication is not supported yet")));
            }
            _ => return Err(bad(format!("option {name:?} is not supported"))),
        }
        Ok(())
    }
}

fn bad(text: impl Into<String>) -> Error {
    Error::Uri(text.into())
}

fn address(host: &str) -> Result<Address> {
    if host.is_empty() {
        return Err(bad("it names no host"));
    }
    if host.contains(',') {
        return Err(bad("only one host is supported"));
    }
    if let Some(rest) = host.strip_prefix('[') {
        let (name, rest) = rest
            .split_once(']')
            .ok_or_else(|| bad("the host has a [ without a ]"))?;
        let port = match rest.strip_prefix(':') {
            Some(text) => port(text)?,
            None if rest.is_empty() => DEFAULT_PORT,
            None => return Err(bad(format!("{rest:?} after the host is not a port"))),
        };
        return Ok(Address::Tcp(name.to_owned(), port));
    }
    let decoded = percent_decode(host)?;
    if decoded.ends_with(".sock") {
        return Ok(Address::Unix(PathBuf::from(decoded)));
    }
    match decoded.split_once(':') {
        None => Ok(Address::Tcp(decoded, DEFAULT_PORT)),
        Some((name, text)) if !name.is_empty() => Ok(Address::Tcp(name.to_owned(), port(text)?)),
        Some(_) => Err(bad("it names no host")),
    }
}

fn port(text: &str) -> Result<u16> {
    text.parse()
        .ok()
        .filter(|port| *port != 0)
        .ok_or_else(|| bad(format!("{text:?} is not a port from 1 to 65535")))
}

fn milliseconds(name: &str, value: &str) -> Result<Option<Duration>> {
    let number: u64 = value
        .parse()
        .map_err(|_| bad(format!("{name}={value} is not a number of milliseconds")))?;
    Ok((number > 0).then(|| Duration::from_millis(number)))
}

fn boolean(name: &str, value: &str) -> Result<bool> {
    value
        .parse()
        .map_err(|_| bad(format!("{name}={value} is neither true nor false")))
}

fn only(name: &str, value: &str, wanted: bool, why: &str) -> Result<()> {
    if boolean(name, value)? == wanted {
        Ok(())
    } else {
        Err(bad(format!("{name}={value} is not supported: {why}")))
    }
}

fn percent_encode(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(byte) {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn percent_decode(text: &str) -> Result<String> {
    let broken = || bad(format!("{text:?} has a % without two hex digits"));
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
        let high = digit(bytes.next()).ok_or_else(broken)?;
        let low = digit(bytes.next()).ok_or_else(broken)?;
        out.push((high * 16 + low) as u8);
    }
    String::from_utf8(out).map_err(|_| bad(format!("{text:?} is not UTF-8 once decoded")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(host.to_owned(), port)
    }

    #[test]
    fn addresses_and_databases() {
        let unix = Address::Unix(PathBuf::from("/run/a b/mongodb-27017.sock"));
        for (text, address, database) in [
            ("mongodb://localhost", tcp("localhost", 27017), None),
            ("mongodb://localhost/", tcp("localhost", 27017), None),
            ("mongodb://h:1/db", tcp("h", 1), Some("db")),
            ("mongodb://h/d%62?w=1", tcp("h", 27017), Some("db")),
            ("mongodb://h?w=1", tcp("h", 27017), None),
            ("mongodb://[::1]", tcp("::1", 27017), None),
            ("mongodb://[::1]:99/x", tcp("::1", 99), Some("x")),
            (
                "mongodb://%2Frun%2Fa%20b%2fmongodb-27017.sock/x",
                unix,
                Some("x"),
            ),
        ] {
            let uri: Uri = text.parse().unwrap();
            assert_eq!(uri.address, address, "{text}");
            assert_eq!(uri.database.as_deref(), database, "{text}");
        }
    }

    #[test]
    fn an_address_stands_in_a_uri_as_it_is_read() {
        for address in [
            tcp("127.0.0.1", 5),
            tcp("::1", 27017),
            Address::Unix(PathBuf::from("/run/a b/é-1.sock")),
        ] {
            let text = format!("mongodb://{}/", address.in_uri());
            assert_eq!(text.parse::<Uri>().unwrap().address, address, "{text}");
        }
    }

    #[test]
    fn options() {
        let uri: Uri = "mongodb://h/?appName=a%20b&compressors=zstd,snappy&connectTimeoutMS=50\
                        &socketTimeoutMS=0&w=0&journal=true&directConnection=true\
                        &retryWrites=false&TLS=false"
            .parse()
            .unwrap();
        assert_eq!(uri.app_name.as_deref(), Some("a b"));
        assert_eq!(uri.compressors, [Compressor::Zstd, Compressor::Snappy]);
        assert_eq!(uri.connect_timeout, Some(Duration::from_millis(50)));
        assert_eq!(uri.socket_timeout, None);
        assert_eq!(uri.write_concern, Some(0));
        assert_eq!(uri.journal, Some(true));
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        for (text, part) in [
            ("localhost:27017", "must start with mongodb://"),
            ("mongodb+srv://h", "mongodb+srv"),
            ("mongodb://", "no host"),
            ("mongodb://:27017", "no host"),
            ("mongodb://a,b", "only one host"),
            ("mongodb://u:p@h", "authentication"),
            ("mongodb://h/?authSource=admin", "authSource"),
            ("mongodb://h:0", "port"),
            ("mongodb://h:70000", "port"),
            ("mongodb://h:abc", "port"),
            ("mongodb://[::1", "]"),
            ("mongodb://h/a.b", "database name"),
            ("mongodb://h/%zz", "hex"),
            ("mongodb://h/%f", "hex"),
            ("mongodb://h/%ff", "UTF-8"),
            ("mongodb://h/?w=majority", "w=majority"),
            ("mongodb://h/?w", "no value"),
            ("mongodb://h/?replicaSet=rs", "replicaSet"),
            ("mongodb://h/?compressors=lz4", "lz4"),
            ("mongodb://h/?tls=true", "TLS"),
            ("mongodb://h/?retryWrites=true", "retryWrites"),
            ("mongodb://h/?journal=1", "journal"),
            ("mongodb://h/?socketTimeoutMS=x", "socketTimeoutMS"),
        ] {
            let error = text.parse::<Uri>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
