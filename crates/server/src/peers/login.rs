//! Connections to other members as `__system`.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use frond_auth::scram::{ClientPassword, Mechanism};
use frond_auth::{LoginMechanism, UserName};
use frond_bson::{DocBuf, Value, doc};
use frond_client::{Encryption, Login, Uri};
use frond_tls::{ClientOptions, Password};
use frond_wire::{Flags, HEADER_BYTES, Header, Reply, msg};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{OPEN_CHANNEL, PROTOCOL, PeerIdentity};
use crate::settings::{Secret, Settings, TlsMode};

/// The longest reply of a login.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// The limit of an answer to a blocking client.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// MongoDB's code for a login that fails.
const AUTHENTICATION_FAILED: i32 = 18;

/// The name of the database of users that certificates name.
const EXTERNAL: &str = "$external";

/// A connection, encrypted or not.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// All that a member shows to another one.
pub struct Credentials {
    /// Passwords of `__system`: the first is shown first, and the next one if it is refused.
    keys: Vec<ClientPassword>,
    shows_certificate: bool,
    /// None if connections are not encrypted.
    tls: Option<ClientOptions>,
    /// A key that cannot be a password, which the check of the key file excludes.
    broken: Option<String>,
}

impl Credentials {
    pub fn new(settings: &Settings) -> Credentials {
        let (mut keys, mut broken) = (Vec::new(), None);
        for key in shown_keys(settings) {
            let system = UserName::system();
            match ClientPassword::new(Mechanism::Sha256, &system.name, key.expose()) {
                Ok(key) => keys.push(key),
                Err(error) => broken = Some(error.to_string()),
            }
        }
        Credentials {
            keys,
            shows_certificate: shows_certificate(settings),
            tls: tls_options(settings),
            broken,
        }
    }

    /// Makes a channel of a connection. Returns the number of the other side's store, too.
    ///
    /// # Errors
    /// If the connection breaks, or the other side refuses it.
    pub async fn open(
        &self,
        socket: TcpStream,
        host: &str,
        own: &PeerIdentity,
    ) -> io::Result<(Box<dyn Stream>, u64)> {
        let mut stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(socket),
            Some(options) => {
                // The files are read for each connection, so a rotation of certificates needs no further step.
                let options = options.clone();
                let config = tokio::task::spawn_blocking(move || options.load());
                let config = config.await.map_err(io::Error::other)?.map_err(refused)?;
                let name = ClientOptions::server_name(host_name(host)).map_err(refused)?;
                Box::new(TlsConnector::from(config).connect(name, socket).await?)
            }
        };
        self.log_in(&mut *stream).await?;
        let number = i64::from_le_bytes(own.id.to_le_bytes());
        let mut command = DocBuf::new();
        command.push(OPEN_CHANNEL, 1);
        command.push("set", own.set.as_str());
        command.push("id", number);
        command.push("protocol", PROTOCOL);
        let reply = checked(run(&mut *stream, "admin", command).await?)?;
        let id = reply.get_i64("id");
        let id = id.ok_or_else(|| refused("it is no member of a replica set"))?;
        Ok((stream, u64::from_le_bytes(id.to_le_bytes())))
    }

    async fn log_in(&self, stream: &mut dyn Stream) -> io::Result<()> {
        if self.shows_certificate {
            let command = doc! {"authenticate": 1, "mechanism": "MONGODB-X509"};
            checked(run(stream, EXTERNAL, command).await?)?;
            return Ok(());
        }
        if let Some(why) = &self.broken {
            return Err(refused(why));
        }
        let mut last = None;
        for key in &self.keys {
            let reply = log_in_by_key(stream, key).await?;
            if reply.get_i32("code") != Some(AUTHENTICATION_FAILED) {
                checked(reply)?;
                return Ok(());
            }
            last = Some(reply);
        }
        last.map_or(Ok(()), |reply| checked(reply).map(drop))
    }
}

/// Shows a key, and returns the last reply.
async fn log_in_by_key(stream: &mut dyn Stream, key: &ClientPassword) -> io::Result<DocBuf> {
    let db = UserName::system().db;
    let (mut client, first) = key.start().map_err(refused)?;
    let start = doc! {
        "saslStart": 1, "mechanism": Mechanism::Sha256.name(), "payload": binary(&first),
        "options": {"skipEmptyExchange": true},
    };
    let reply = run(stream, &db, start).await?;
    let Some(Value::Binary { bytes, .. }) = reply.get("payload") else {
        return Ok(reply);
    };
    let last = client.answer(bytes).map_err(refused)?;
    let go_on = doc! {"saslContinue": 1, "conversationId": 1, "payload": binary(&last)};
    let reply = run(stream, &db, go_on).await?;
    if let Some(Value::Binary { bytes, .. }) = reply.get("payload") {
        client.verify(bytes).map_err(refused)?;
    }
    Ok(reply)
}

fn binary(text: &str) -> Value<'_> {
    Value::Binary {
        subtype: 0,
        bytes: text.as_bytes(),
    }
}

/// Runs a command, and returns its reply, whatever it says.
async fn run(stream: &mut dyn Stream, db: &str, mut command: DocBuf) -> io::Result<DocBuf> {
    command.push("$db", db);
    let message = msg(1, 0, Flags::NONE, command.as_bytes());
    stream.write_all(&message).await?;
    stream.flush().await?;
    let mut reply = vec![0; HEADER_BYTES];
    stream.read_exact(&mut reply).await?;
    let length = Header::parse(&reply).map_err(refused)?.length;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if !(HEADER_BYTES..=REPLY_BYTES_MAX).contains(&length) {
        return Err(refused("a reply of a wrong length"));
    }
    reply.resize(length, 0);
    let rest = reply.get_mut(HEADER_BYTES..).unwrap_or_default();
    stream.read_exact(rest).await?;
    let (_, reply) = Reply::parse(&reply).map_err(refused)?;
    let document = reply.first_document().unwrap_or_default();
    DocBuf::from_vec(document.to_vec()).map_err(refused)
}

/// A reply that is ok.
fn checked(reply: DocBuf) -> io::Result<DocBuf> {
    if reply.get("ok").is_some_and(|ok| ok.truthy()) {
        return Ok(reply);
    }
    let message = reply.get_str("errmsg").unwrap_or("no message");
    let code = reply.get_i32("code").unwrap_or(0);
    let text = format!("refused with error {code}: {message}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn refused(why: impl Display) -> io::Error {
    io::Error::other(why.to_string())
}

/// The host of `name:port`, without brackets.
fn host_name(host: &str) -> &str {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let inside = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    inside.unwrap_or(name)
}

/// The keys that are shown to other members.
fn shown_keys(settings: &Settings) -> &[Secret] {
    if settings.security.cluster_auth.shows_certificate() {
        &[]
    } else {
        &settings.security.keys
    }
}

fn shows_certificate(settings: &Settings) -> bool {
    settings.security.cluster_auth.shows_certificate()
}

/// TLS of connections to other members; none if these are not encrypted, as with `allowTLS`.
fn tls_options(settings: &Settings) -> Option<ClientOptions> {
    let tls = &settings.tls;
    if !matches!(tls.mode, TlsMode::Prefer | TlsMode::Require) {
        return None;
    }
    let (file, password) = match &tls.cluster_file {
        Some(file) => (Some(file), &tls.cluster_password),
        None => (tls.certificate_key_file.as_ref(), &tls.password),
    };
    Some(ClientOptions {
        ca_file: tls.ca_file.clone(),
        certificate_key_file: file.cloned(),
        password: password.as_ref().map(|one| Password::new(one.expose())),
        allow_invalid_certificates: tls.allow_invalid_certificates,
        allow_invalid_hostnames: tls.allow_invalid_hostnames,
    })
}

/// Connection strings with which a blocking client logs in to another member (`name:port`) as `__system`: one for each key, to be
/// tried in this order, or one without a login if members do not log in.
///
/// # Errors
/// If the host is none.
pub fn login_uris(host: &str, settings: &Settings) -> frond_client::Result<Vec<Uri>> {
    let mut uri: Uri = format!("mongodb://{host}/").parse()?;
    uri.socket_timeout = Some(ANSWER_WAIT);
    uri.app_name = Some("frond member".to_owned());
    uri.encryption = tls_options(settings).map(Encryption::new);
    let with = |login| Uri {
        login: Some(login),
        ..uri.clone()
    };
    if shows_certificate(settings) {
        let login = Login::new(Some(LoginMechanism::X509), None, None, None);
        return Ok(vec![with(login)]);
    }
    let keys = shown_keys(settings).iter().map(|key| {
        let system = UserName::system();
        with(Login::new(
            Some(LoginMechanism::Scram(Mechanism::Sha256)),
            Some(system.name),
            Some(Password::new(key.expose())),
            Some(system.db),
        ))
    });
    let uris: Vec<Uri> = keys.collect();
    Ok(if uris.is_empty() { vec![uri] } else { uris })
}
