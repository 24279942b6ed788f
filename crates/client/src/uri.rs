//! Connection strings: `mongodb://host[:port]/[database][?options]`.
//!
//! One host, or several members of one replica set, by name, by address or by the percent-encoded path of a Unix socket. An option that
//! this client does not act on is an error that names it. No error and no report shows a password.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use frond_auth::LoginMechanism;
use frond_tls::{ClientOptions, Password};
use frond_wire::Compressor;

use crate::encryption::Encryption;
use crate::error::{Error, Result};
use crate::login::Login;
use crate::percent::{self, RESERVED, percent_encode};

/// The port of a server when the connection string names none.
pub const DEFAULT_PORT: u16 = 27017;

/// Connect timeout if the connection string names none.
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
    pub fn host_and_port(&self) -> String {
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
            Address::Unix(path) => {
                percent_encode(path.as_os_str().as_bytes(), RESERVED).to_string()
            }
        }
    }
}

/// A parsed connection string.
#[derive(Clone, Debug)]
pub struct Uri {
    /// The server, or the first one that is named.
    pub address: Address,
    /// Further members of the same replica set: the primary among them is meant.
    pub others: Vec<Address>,
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
    /// `replicaSet`: the set that the server must be a member of.
    pub replica_set: Option<String>,
    /// The login, if there is one.
    pub login: Option<Login>,
    /// The TLS configuration, if TLS is on.
    pub encryption: Option<Encryption>,
}

/// Options of the login and the encryption. They are combined when all are known.
#[derive(Default)]
struct Security {
    user: Option<String>,
    password: Option<Password>,
    source: Option<String>,
    mechanism: Option<LoginMechanism>,
    tls: Option<bool>,
    files: ClientOptions,
    /// Whether an option needs TLS.
    needs_tls: bool,
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
        if database.contains('@') || (options.contains('@') && addresses(host).is_err()) {
            // The parts of a password would be shown as parts of something else.
            return Err(bad(
                "a / or ? in the user or the password must be percent-encoded",
            ));
        }
        let mut security = Security::default();
        let host = match host.rsplit_once('@') {
            None => host,
            Some((who, host)) => {
                security.read_user(who)?;
                host
            }
        };

        let database = match percent_decode(database)? {
            name if name.is_empty() => None,
            name if name.contains(['/', '\\', ' ', '"', '$', '.', '\0']) => {
                return Err(bad(format!("{name:?} is not a database name")));
            }
            name => Some(name),
        };
        let (first, others) = addresses(host)?;
        let mut uri = Uri {
            address: first,
            others,
            database,
            app_name: None,
            compressors: Vec::new(),
            connect_timeout: Some(CONNECT_TIMEOUT),
            socket_timeout: None,
            write_concern: None,
            journal: None,
            replica_set: None,
            login: None,
            encryption: None,
        };
        for pair in options.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| bad(format!("option {pair:?} has no value")))?;
            if !security.set(name, value)? {
                uri.set(name, &percent_decode(value)?)?;
            }
        }
        security.finish(&mut uri)?;
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
            "replicaset" => self.replica_set = Some(value.to_owned()),
            // Only the value that describes this client is accepted.
            "directconnection" => only(name, value, true, "it knows one server only")?,
            "retrywrites" | "retryreads" => only(name, value, false, "nothing is retried")?,
            "loadbalanced" => only(name, value, false, "it knows one server only")?,
            _ => return Err(bad(format!("option {name:?} is not supported"))),
        }
        Ok(())
    }
}

impl Security {
    /// Reads `user` or `user:password`.
    fn read_user(&mut self, who: &str) -> Result<()> {
        let secret = |text: &str, what: &str| {
            // The error of the decoder would show it.
            percent_decode(text).map_err(|_| {
                bad(format!(
                    "the {what} has a % without two hex digits, or is not UTF-8"
                ))
            })
        };
        let (user, password) = match who.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (who, None),
        };
        if user.is_empty() {
            return Err(bad("the user before the @ is empty"));
        }
        self.user = Some(secret(user, "user")?);
        self.password = password
            .map(|text| secret(text, "password").map(Password::new))
            .transpose()?;
        Ok(())
    }

    /// Acts on an option about the login or the encryption. False if it is another one.
    fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        let text = || percent_decode(value);
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "authsource" => self.source = Some(text()?),
            "authmechanism" => {
                let given = text()?;
                let found = LoginMechanism::ALL
                    .into_iter()
                    .find(|known| known.name() == given);
                self.mechanism = Some(found.ok_or_else(|| {
                    bad(format!(
                        "authMechanism={given} is not supported, only SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-CR and MONGODB-X509"
                    ))
                })?);
            }
            "tls" | "ssl" => {
                let on = boolean(name, value)?;
                if self.tls.is_some_and(|other| other != on) {
                    return Err(bad("tls and ssl must not differ"));
                }
                self.tls = Some(on);
            }
            "tlscafile" => self.files.ca_file = Some(text()?.into()),
            "tlscertificatekeyfile" => self.files.certificate_key_file = Some(text()?.into()),
            "tlscertificatekeyfilepassword" => {
                let password = percent_decode(value)
                    .map_err(|_| bad(format!("{name} is not percent-encoded UTF-8")))?;
                self.files.password = Some(Password::new(password));
            }
            "tlsallowinvalidcertificates" => {
                self.files.allow_invalid_certificates |= boolean(name, value)?;
            }
            "tlsallowinvalidhostnames" => {
                self.files.allow_invalid_hostnames |= boolean(name, value)?;
            }
            "tlsinsecure" => {
                let on = boolean(name, value)?;
                self.files.allow_invalid_certificates |= on;
                self.files.allow_invalid_hostnames |= on;
            }
            _ => return Ok(false),
        }
        self.needs_tls |= lower.starts_with("tls") && lower != "tls";
        Ok(true)
    }

    fn finish(self, uri: &mut Uri) -> Result<()> {
        if self.tls == Some(true) {
            if matches!(uri.address, Address::Unix(_)) {
                return Err(bad("a Unix socket is not encrypted: leave out tls=true"));
            }
            uri.encryption = Some(Encryption::new(self.files));
        } else if self.needs_tls {
            return Err(bad("options that begin with tls need tls=true"));
        }
        let is_x509 = self.mechanism == Some(LoginMechanism::X509);
        if self.user.is_none() && !is_x509 {
            return if self.mechanism.is_some() || self.source.is_some() {
                Err(bad(
                    "authSource and authMechanism need a user: mongodb://user:password@host",
                ))
            } else {
                Ok(())
            };
        }
        if is_x509 && (self.password.is_some() || uri.encryption.is_none()) {
            return Err(bad(
                "MONGODB-X509 needs tls=true and tlsCertificateKeyFile, and no password",
            ));
        }
        if !is_x509 && self.password.is_none() {
            return Err(bad(
                "the user has no password: mongodb://user:password@host",
            ));
        }
        let source = self.source.or_else(|| uri.database.clone());
        uri.login = Some(Login::new(self.mechanism, self.user, self.password, source));
        Ok(())
    }
}

/// A connection string without passwords, for reports and errors.
#[must_use]
pub fn without_passwords(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        // Without a scheme, everything before the last `@` may be a password.
        return text.split('@').next_back().unwrap_or_default().to_owned();
    };
    let (host_and_port, options) = match rest.split_once('?') {
        // Perhaps a password that is not percent-encoded.
        Some((host_and_port, options)) if !host_and_port.contains('@') && options.contains('@') => {
            (rest, None)
        }
        Some((host_and_port, options)) => (host_and_port, Some(options)),
        None => (rest, None),
    };
    let host_and_port = match host_and_port.rsplit_once('@') {
        None => host_and_port.to_owned(),
        Some((who, host_and_port)) => {
            let user = who.split(':').next().unwrap_or_default();
            format!("{user}@{host_and_port}")
        }
    };
    let mut shown = format!("{scheme}://{host_and_port}");
    let options = options.map(|options| {
        let public = |option: &&str| !option.to_ascii_lowercase().contains("password");
        options
            .split('&')
            .filter(public)
            .collect::<Vec<_>>()
            .join("&")
    });
    if let Some(options) = options.filter(|options| !options.is_empty()) {
        shown.push('?');
        shown.push_str(&options);
    }
    shown
}

fn bad(text: impl Into<String>) -> Error {
    Error::Uri(text.into())
}

/// The hosts of a connection string: the first one, and further ones.
fn addresses(hosts: &str) -> Result<(Address, Vec<Address>)> {
    let mut all = hosts.split(',').map(address);
    let first = all.next().unwrap_or_else(|| Err(bad("it names no host")))?;
    Ok((first, all.collect::<Result<_>>()?))
}

fn address(host: &str) -> Result<Address> {
    if host.is_empty() {
        return Err(bad("it names no host"));
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

fn percent_decode(text: &str) -> Result<String> {
    percent::decode(text).map_err(|what| bad(format!("{text:?} {what}")))
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
    fn logins_and_encryption() {
        let uri: Uri = "mongodb://us%40er:p%3Aw%40d@h:1/data?authMechanism=SCRAM-SHA-1"
            .parse()
            .unwrap();
        let login = uri.login.unwrap();
        assert_eq!(login.user(), Some("us@er"));
        assert_eq!(login.source(), "data");
        assert!(uri.encryption.is_none());
        let uri: Uri = "mongodb://u:p@h/?tls=true&tlsCAFile=%2Fca.pem&authSource=other"
            .parse()
            .unwrap();
        assert_eq!(uri.login.unwrap().source(), "other");
        let files = uri.encryption.unwrap();
        assert_eq!(files.options().ca_file, Some(PathBuf::from("/ca.pem")));
        let uri: Uri = "mongodb://h/d?ssl=true&tlsCertificateKeyFile=k&authMechanism=MONGODB-X509"
            .parse()
            .unwrap();
        let login = uri.login.unwrap();
        assert_eq!((login.user(), login.source()), (None, "$external"));
        let uri: Uri = "mongodb://u:p@h".parse().unwrap();
        assert_eq!(uri.login.unwrap().source(), "admin");
    }

    #[test]
    fn passwords_are_not_shown() {
        for (text, shown) in [
            ("mongodb://u:secret@h/d?w=1", "mongodb://u@h/d?w=1"),
            ("mongodb://h/d?w=1", "mongodb://h/d?w=1"),
            ("postgres://u:sec@ret@h/d", "postgres://u@h/d"),
            (
                "mongodb://h/?tls=true&tlsCertificateKeyFilePassword=secret",
                "mongodb://h/?tls=true",
            ),
            (
                "mongodb://h/?tlsCertificateKeyFilePASSWORD=secret",
                "mongodb://h/",
            ),
            ("mongodb//u:secret@h", "h"),
            ("mongodb://u:sec/secret@h/d", "mongodb://u@h/d"),
            ("mongodb://u:sec?secret@h/d", "mongodb://u@h/d"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
        // Nor in errors.
        for text in [
            "mongodb://u:secret%zz@h",
            "mongodb://u:secret@h:port",
            "mongodb://u:secret@h/?w=9",
            "mongodb://u:secret@",
            "mongodb://u:secret/x@h",
            "mongodb://u:x/secret@h",
            "mongodb://u:secret?x@h",
            "mongodb://u:x?secret@h",
            "mongodb://h/?tls=true&tlsCertificateKeyFilePassword=secret%f",
        ] {
            let error = text.parse::<Uri>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
        let uri: Uri = "mongodb://u:secret@h".parse().unwrap();
        assert!(!format!("{uri:?}").contains("secret"));
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        for (text, part) in [
            ("localhost:27017", "must start with mongodb://"),
            ("mongodb+srv://h", "mongodb+srv"),
            ("mongodb://", "no host"),
            ("mongodb://:27017", "no host"),
            ("mongodb://a,", "names no host"),
            ("mongodb://u@h", "no password"),
            ("mongodb://:p@h", "user"),
            ("mongodb://h/?authSource=admin", "authSource"),
            (
                "mongodb://u:p@h/?authMechanism=PLAIN",
                "authMechanism=PLAIN",
            ),
            ("mongodb://h/?authMechanism=MONGODB-X509", "tls=true"),
            ("mongodb://h/?tlsCAFile=x", "tls=true"),
            ("mongodb://h/?tls=true&ssl=false", "must not differ"),
            ("mongodb://%2Ftmp%2Fx.sock/?tls=true", "not encrypted"),
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
            ("mongodb://h/?compressors=lz4", "lz4"),
            ("mongodb://h/?retryWrites=true", "retryWrites"),
            ("mongodb://h/?journal=1", "journal"),
            ("mongodb://h/?socketTimeoutMS=x", "socketTimeoutMS"),
        ] {
            let error = text.parse::<Uri>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
