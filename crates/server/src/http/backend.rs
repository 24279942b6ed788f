//! The console runs commands over connections of this process, which are served like those of any client. So limits of connections,
//! logins, privileges, tickets, `currentOp` and the log know them.

use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use frond_bson::{Doc, DocBuf, doc};
use frond_console::{Backend, Broken, Link};
use frond_http::Ends;
use frond_wire::{Flags, HEADER_BYTES, Header, MAX_MESSAGE_BYTES, Reply, msg};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::access::User;
use crate::connection::{ClientState, Connection, Peer};
use crate::net::serve::{OpenConnection, converse_from};
use crate::state::Server;
use frond_runtime::Socket;

/// The name by which `currentOp` shows the console.
const APPLICATION: &str = "Frond console";

/// The interval at which a command is interrupted whose client went away, until its connection is closed.
const KILL_PERIOD: Duration = Duration::from_millis(50);

/// The longest time until a connection is open.
const OPEN_TIME_MAX: Duration = Duration::from_secs(10);

/// Opens connections of this process.
pub struct InProcess {
    server: Arc<Server>,
    host_names: Vec<String>,
}

impl InProcess {
    /// Connections of a server.
    pub fn new(server: Arc<Server>) -> InProcess {
        let settings = &server.settings;
        let mut host_names = settings.http_hosts.clone();
        host_names.push(server.instance.host.to_ascii_lowercase());
        host_names.extend(
            settings
                .bind_ip
                .iter()
                .map(|name| name.to_ascii_lowercase()),
        );
        InProcess { server, host_names }
    }
}

impl Backend for InProcess {
    type User = Arc<User>;
    type Link = InProcessLink;

    fn needs_login(&self) -> bool {
        self.server.clients.access.is_enforced()
    }

    fn host_names(&self) -> &[String] {
        &self.host_names
    }

    fn failed_login_delay(&self) -> Duration {
        self.server.settings.logins.failed_delay
    }

    async fn open(&self, ends: &Ends, user: Option<&Arc<User>>) -> Result<InProcessLink, Broken> {
        match timeout(OPEN_TIME_MAX, self.connect(ends, user)).await {
            Ok(opened) => opened,
            Err(_) => Err(Broken("the server has no time for a connection".to_owned())),
        }
    }
}

impl InProcess {
    async fn connect(
        &self,
        ends: &Ends,
        user: Option<&Arc<User>>,
    ) -> Result<InProcessLink, Broken> {
        let broken = |error: io::Error| Broken(format!("no connection to the server: {error}"));
        let (near, far) = StdUnixStream::pair().map_err(broken)?;
        near.set_nonblocking(true).map_err(broken)?;
        far.set_nonblocking(true).map_err(broken)?;
        let peer = Peer::Tcp(ends.client);
        let user = user.cloned();
        let (server, ends) = (self.server.clone(), *ends);
        let (sender, admitted) = tokio::sync::oneshot::channel();
        let pool = &self.server.execution.executor.pool;
        let spawned = pool.spawn(far, move |socket| async move {
            serve(server, socket, peer, ends, user, sender).await;
        });
        spawned.map_err(broken)?;
        let connection = admitted
            .await
            .map_err(|_| Broken("the server accepts no more connections, or stops".to_owned()))?;
        let mut link = InProcessLink {
            stream: UnixStream::from_std(near).map_err(broken)?,
            connection,
            request: 0,
            length: 0,
            is_running: false,
        };
        let hello = doc! {
            "hello": 1,
            "client": {
                "application": {"name": APPLICATION},
                "driver": {"name": "frond", "version": env!("CARGO_PKG_VERSION")},
                "os": {"type": std::env::consts::OS},
            },
        };
        link.send("admin", &hello).await?;
        link.ended().await?;
        link.receive().await?;
        Ok(link)
    }
}

/// Serves the other end of a link.
async fn serve(
    server: Arc<Server>,
    mut socket: Socket<StdUnixStream>,
    peer: Peer,
    ends: Ends,
    user: Option<Arc<User>>,
    admitted: tokio::sync::oneshot::Sender<Arc<Connection>>,
) {
    let Some(open) = OpenConnection::admit(&server, &peer, socket.gone()) else {
        return;
    };
    open.connection.local_ip.get_or_init(|| ends.server.ip());
    (open.connection.identity.lock()).clone_from(&user);
    let state = ClientState {
        identity: user,
        ..ClientState::default()
    };
    if admitted.send(open.connection.clone()).is_ok() {
        // It is a link of this process.
        let _ = converse_from(&server, &open.connection, &mut socket, state).await;
    }
}

/// A connection of this process.
pub struct InProcessLink {
    stream: UnixStream,
    connection: Arc<Connection>,
    request: i32,
    /// Bytes of the message that arrives, without its header.
    length: usize,
    /// Whether a command runs.
    is_running: bool,
}

impl Drop for InProcessLink {
    /// Interrupts a command that still runs: its reply has no reader.
    fn drop(&mut self) {
        if !self.is_running {
            return;
        }
        self.connection.kill();
        let connection = self.connection.clone();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                // A command that had not begun yet has to be interrupted again. Others hold the connection until it is closed.
                while Arc::strong_count(&connection) > 1 {
                    connection.kill();
                    tokio::time::sleep(KILL_PERIOD).await;
                }
            });
        }
    }
}

impl Link for InProcessLink {
    type User = Arc<User>;

    async fn send(&mut self, db: &str, command: &Doc) -> Result<(), Broken> {
        let mut body = DocBuf::with_capacity(command.len_bytes() + db.len() + 16);
        body.push_all(command);
        body.push("$db", db);
        // It may hold the proof of a password.
        let body = Zeroizing::new(body.into_vec());
        self.request = self.request.wrapping_add(1);
        let message = Zeroizing::new(msg(self.request, 0, Flags::NONE, &body));
        self.is_running = true;
        let sent = self.stream.write_all(&message).await;
        sent.map_err(|_| closed())
    }

    async fn ended(&mut self) -> Result<usize, Broken> {
        let mut header = [0; HEADER_BYTES];
        let read = self.stream.read_exact(&mut header).await;
        read.map_err(|_| closed())?;
        self.is_running = false;
        let header = Header::parse(&header).map_err(|error| malformed(&error))?;
        let length = usize::try_from(header.length).unwrap_or_default();
        if header.response_to != self.request
            || !(HEADER_BYTES..=MAX_MESSAGE_BYTES).contains(&length)
        {
            return Err(Broken("the reply belongs to another request".to_owned()));
        }
        self.length = length - HEADER_BYTES;
        Ok(self.length)
    }

    async fn receive(&mut self) -> Result<DocBuf, Broken> {
        let header = Header {
            length: i32::try_from(HEADER_BYTES + self.length).unwrap_or(i32::MAX),
            request_id: 0,
            response_to: self.request,
            opcode: frond_wire::OpCode::Msg as i32,
        };
        let mut message = header.to_bytes().to_vec();
        message.resize(HEADER_BYTES + self.length, 0);
        let rest = message.get_mut(HEADER_BYTES..).unwrap_or_default();
        self.stream.read_exact(rest).await.map_err(|_| closed())?;
        let (_, reply) = Reply::parse(&message).map_err(|error| malformed(&error))?;
        let document = reply.first_document().unwrap_or_default().to_vec();
        DocBuf::from_vec(document).map_err(|error| malformed(&error))
    }

    fn user(&self) -> Option<Arc<User>> {
        self.connection.identity.lock().clone()
    }
}

fn closed() -> Broken {
    Broken("the server has closed the connection".to_owned())
}

fn malformed(error: &dyn std::fmt::Display) -> Broken {
    Broken(format!("the reply of the server cannot be read: {error}"))
}
