//! A blocking connection over `tokio-postgres`: prepared statements, binary values, COPY. Each
//! connection has an event loop of its own, which the thread that waits for an answer runs, so that a
//! request needs no other thread.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use frond_bench::{Error, Result};
use futures_util::{SinkExt, TryStreamExt};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, yield_now};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Config, NoTls, SimpleQueryMessage, Statement};

/// How often a wait checks whether the user asked to stop.
const POLL: Duration = Duration::from_millis(250);

/// How long an answer that is under way may still take once the user asked to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Bytes of a message of COPY data.
const COPY_BYTES: usize = 64 << 10;

/// Turns of the event loop in which a request reaches the socket: that of its task and that of the
/// connection, and one more for what follows the data of a COPY.
const TURNS_TO_SEND: usize = 3;

/// The version that the binary form of a jsonb begins with; its text follows.
const JSONB: u8 = 1;

type PgResult<T> = std::result::Result<T, tokio_postgres::Error>;

pub struct Client {
    runtime: Runtime,
    client: Arc<tokio_postgres::Client>,
    version: String,
    stop: Arc<AtomicBool>,
    /// Statements by their text.
    prepared: HashMap<String, Statement>,
    /// Requests without an answer yet, by what they do.
    pending: VecDeque<(&'static str, JoinHandle<PgResult<u64>>)>,
}

impl Client {
    /// Connects. Setting `stop` ends every wait.
    pub fn connect(config: &Config, stop: &Arc<AtomicBool>) -> Result<Client> {
        let failed = |error| Error::Io("starting an event loop".to_owned(), error);
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build().map_err(failed)?;
        let connecting = async {
            let (client, connection) = config.connect(NoTls).await?;
            let version = connection.parameter("server_version").unwrap_or_default();
            let version = version.to_owned();
            // An error of the connection reaches the request that waits for it.
            tokio::spawn(async move { connection.await.ok() });
            Ok((client, version))
        };
        let (client, version) = wait(&runtime, stop, "log-in", connecting)?;
        Ok(Client {
            runtime,
            client: Arc::new(client),
            version,
            stop: Arc::clone(stop),
            prepared: HashMap::new(),
            pending: VecDeque::new(),
        })
    }

    /// The server's version, as it reports it: `15.8 (Debian 15.8-0+deb12u1)`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Runs statements given as text. Returns the rows that the last one affected.
    pub fn run(&mut self, sql: &str) -> Result<u64> {
        self.drain()?;
        let messages = wait(
            &self.runtime,
            &self.stop,
            sql,
            self.client.simple_query(sql),
        )?;
        let rows = messages.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
            _ => None,
        });
        Ok(rows.unwrap_or(0))
    }

    /// Prepares a statement, once for each text.
    pub fn prepare(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        self.drain()?;
        let statement = wait(&self.runtime, &self.stop, sql, self.client.prepare(sql))?;
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Prepares and runs a statement. Rows go to `each`.
    pub fn query(
        &mut self,
        sql: &str,
        values: &[Param<'_>],
        each: impl FnMut(&Row) -> Result<()>,
    ) -> Result<u64> {
        let statement = self.prepare(sql)?;
        self.execute(&statement, sql, values, each)
    }

    /// Runs a prepared statement in a transaction of its own. Rows go to `each`. Returns the rows that
    /// it returned or affected.
    pub fn execute(
        &mut self,
        statement: &Statement,
        doing: &str,
        values: &[Param<'_>],
        mut each: impl FnMut(&Row) -> Result<()>,
    ) -> Result<u64> {
        self.drain()?;
        let mut failed = None;
        let request = async {
            let rows = self.client.query_raw(statement, values).await?;
            let mut rows = std::pin::pin!(rows);
            while let Some(row) = rows.try_next().await? {
                if failed.is_none() {
                    failed = each(&Row(row)).err();
                }
            }
            Ok(rows.rows_affected().unwrap_or(0))
        };
        let rows = wait(&self.runtime, &self.stop, doing, request)?;
        failed.map_or(Ok(rows), Err)
    }

    /// Sends a prepared statement, whose answer [`Client::finish`] takes.
    pub fn send(
        &mut self,
        statement: &Statement,
        doing: &'static str,
        values: Vec<Param<'static>>,
    ) {
        let (client, statement) = (Arc::clone(&self.client), statement.clone());
        let request = async move { client.execute_raw(&statement, &values).await };
        let request = self.runtime.spawn(request);
        self.pending.push_back((doing, request));
        self.flush();
    }

    /// Sends a COPY with its data, whose answer [`Client::finish`] takes.
    pub fn copy(&mut self, statement: &Statement, mut data: Bytes) -> Result<()> {
        // The server accepts data only when it is done with what came before.
        self.drain()?;
        let (client, statement) = (Arc::clone(&self.client), statement.clone());
        let (sent, all_sent) = oneshot::channel();
        let request = self.runtime.spawn(async move {
            let sink = client.copy_in(&statement).await?;
            let mut sink = std::pin::pin!(sink);
            while !data.is_empty() {
                let chunk = data.split_to(data.len().min(COPY_BYTES));
                sink.send(chunk).await?;
            }
            // Nothing waits for it after a stop.
            let _ = sent.send(());
            sink.finish().await
        });
        self.pending.push_back(("COPY", request));
        // After an error nothing is sent any more; `finish` reports it.
        let sending = async { Ok(all_sent.await.ok()) };
        wait(&self.runtime, &self.stop, "COPY", sending)?;
        self.flush();
        Ok(())
    }

    /// Lets what was asked for reach the socket.
    fn flush(&self) {
        self.runtime.block_on(async {
            for _ in 0..TURNS_TO_SEND {
                yield_now().await;
            }
        });
    }

    /// Requests whose answers were not taken yet.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Takes the next answer: the rows that were affected.
    pub fn finish(&mut self) -> Result<u64> {
        let Some((doing, request)) = self.pending.pop_front() else {
            return Ok(0);
        };
        let joined = wait(&self.runtime, &self.stop, doing, async {
            Ok(request.await)
        })?;
        match joined {
            Ok(answer) => answer.map_err(|error| refusal(doing, &error)),
            Err(error) => Err(Error::Io(doing.to_owned(), io::Error::other(error))),
        }
    }

    /// Takes all answers that are still under way.
    pub fn drain(&mut self) -> Result<()> {
        while !self.pending.is_empty() {
            self.finish()?;
        }
        Ok(())
    }
}

/// Runs the event loop until an answer is there, or until the user asked to stop.
fn wait<T>(
    runtime: &Runtime,
    stop: &AtomicBool,
    doing: &str,
    answer: impl Future<Output = PgResult<T>>,
) -> Result<T> {
    runtime.block_on(async {
        let mut answer = std::pin::pin!(answer);
        let mut stopped_at = None;
        loop {
            match tokio::time::timeout(POLL, &mut answer).await {
                Ok(answer) => return answer.map_err(|error| refusal(doing, &error)),
                Err(_) if !stop.load(Ordering::Relaxed) => {}
                Err(_) => {
                    let since: &mut Instant = stopped_at.get_or_insert_with(Instant::now);
                    if since.elapsed() >= STOP_GRACE {
                        return Err(Error::Stopped);
                    }
                }
            }
        }
    })
}

/// The error of a request: of the server, or of the connection.
fn refusal(doing: &str, error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(server) => Error::Server {
            command: doing.to_owned(),
            code: 0,
            message: format!("{} (SQLSTATE {})", server.message(), server.code().code()),
        },
        None => {
            let cause = error
                .source()
                .map_or_else(String::new, |cause| format!(": {cause}"));
            let text = format!("{error}{cause}");
            Error::Io(doing.to_owned(), io::Error::other(text))
        }
    }
}

/// The value of a statement's parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param<'a> {
    Int4(i32),
    Int8(i64),
    /// A `text` or a `bytea`.
    Bytes(Cow<'a, [u8]>),
    /// A `jsonb`, as text.
    Jsonb(Cow<'a, [u8]>),
}

impl<'a> Param<'a> {
    pub fn text(text: &'a str) -> Param<'a> {
        Param::Bytes(Cow::Borrowed(text.as_bytes()))
    }

    /// Copies the borrowed bytes, so that the parameter owns its value.
    pub fn into_owned(self) -> Param<'static> {
        match self {
            Param::Int4(number) => Param::Int4(number),
            Param::Int8(number) => Param::Int8(number),
            Param::Bytes(bytes) => Param::Bytes(Cow::Owned(bytes.into_owned())),
            Param::Jsonb(text) => Param::Jsonb(Cow::Owned(text.into_owned())),
        }
    }

    /// Appends the value in its binary form.
    pub fn write(&self, out: &mut impl BufMut) {
        match self {
            Param::Int4(number) => out.put_i32(*number),
            Param::Int8(number) => out.put_i64(*number),
            Param::Bytes(bytes) => out.put_slice(bytes),
            Param::Jsonb(text) => {
                out.put_u8(JSONB);
                out.put_slice(text);
            }
        }
    }

    /// Bytes of the binary form.
    pub fn len(&self) -> usize {
        match self {
            Param::Int4(_) => 4,
            Param::Int8(_) => 8,
            Param::Bytes(bytes) => bytes.len(),
            Param::Jsonb(text) => 1 + text.len(),
        }
    }
}

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn StdError + Sync + Send>> {
        self.write(out);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        [Type::INT4, Type::INT8, Type::TEXT, Type::BYTEA, Type::JSONB].contains(ty)
    }

    to_sql_checked!();
}

/// A row of an answer.
pub struct Row(tokio_postgres::Row);

/// The bytes of a column.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(
        _: &Type,
        bytes: &'a [u8],
    ) -> std::result::Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Raw(bytes))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Row {
    fn column(&self, column: usize) -> Option<&[u8]> {
        let raw: Option<Raw<'_>> = self.0.try_get(column).ok()?;
        raw.map(|raw| raw.0)
    }

    /// The first column as text.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(self.column(0)?).ok()
    }

    /// The first column as a number of eight or four bytes.
    pub fn int(&self) -> Option<i64> {
        self.int_at(0)
    }

    /// A column as a number.
    pub fn int_at(&self, column: usize) -> Option<i64> {
        let bytes = self.column(column)?;
        let wide = bytes.try_into().map(i64::from_be_bytes);
        let narrow = bytes.try_into().map(i32::from_be_bytes).map(i64::from);
        wide.or(narrow).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_their_binary_form() {
        for (value, bytes) in [
            (Param::Int4(-2), &b"\xff\xff\xff\xfe"[..]),
            (Param::Int8(3), b"\0\0\0\0\0\0\0\x03"),
            (Param::text("ab"), b"ab"),
            (Param::Jsonb(Cow::Borrowed(b"{}")), b"\x01{}"),
        ] {
            let mut out = Vec::new();
            value.write(&mut out);
            assert_eq!((out.as_slice(), out.len()), (bytes, value.len()));
            assert_eq!(value.clone().into_owned(), value);
        }
    }
}
