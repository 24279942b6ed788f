//! A lean client: one connection, prepared statements, binary values, COPY. It allocates for no row, as
//! the client of `frond bench` does for MongoDB's protocol, so that on a machine shared by client and
//! server neither system pays for a heavier client.

mod frame;
mod reply;

use std::collections::VecDeque;

use frond_bench::{Error, Result, Stream};

pub use frame::{Frames, Param};
pub use reply::Row;
use reply::{Input, affected, refusal};

/// A connection to the server.
pub struct Client {
    stream: Stream,
    input: Input,
    output: Vec<u8>,
    /// Answers under way: what each is to.
    expected: VecDeque<&'static str>,
    statements: u32,
    version: String,
}

/// A statement that the server has prepared.
#[derive(Clone, Debug)]
pub struct Statement(String);

impl Client {
    /// Logs in without a password.
    pub fn connect(stream: Stream, user: &str, database: &str) -> Result<Client> {
        let mut client = Client {
            stream,
            input: Input::default(),
            output: Vec::new(),
            expected: VecDeque::new(),
            statements: 0,
            version: String::new(),
        };
        Frames(&mut client.output).startup(user, database, "frond bench");
        client.send("log-in")?;
        client.finish(|_| Ok(()))?;
        Ok(client)
    }

    /// The server's version, as it gives it: `15.8 (Debian 15.8-0+deb12u1)`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Runs statements given as text. Returns the rows that the last one worked on.
    pub fn run(&mut self, sql: &str) -> Result<u64> {
        Frames(&mut self.output).query(sql);
        self.send("statement")?;
        self.finish(|_| Ok(()))
            .map_err(|error| with_statement(error, sql))
    }

    /// Prepares a statement.
    pub fn prepare(&mut self, sql: &str) -> Result<Statement> {
        self.statements += 1;
        let name = format!("s{}", self.statements);
        let mut frames = Frames(&mut self.output);
        frames.parse(&name, sql);
        frames.sync();
        self.send("statement")?;
        self.finish(|_| Ok(()))
            .map_err(|error| with_statement(error, sql))?;
        Ok(Statement(name))
    }

    /// Prepares and runs a statement once. Rows go to `each`.
    pub fn ask(
        &mut self,
        sql: &str,
        values: &[Param<'_>],
        each: impl FnMut(Row<'_>) -> Result<()>,
    ) -> Result<u64> {
        let mut frames = Frames(&mut self.output);
        frames.parse("", sql);
        frames.execute("", values);
        frames.sync();
        self.send("statement")?;
        self.finish(each)
            .map_err(|error| with_statement(error, sql))
    }

    /// Runs a prepared statement in a transaction of its own. Rows go to `each`. Returns the rows it
    /// worked on.
    pub fn execute(
        &mut self,
        statement: &Statement,
        doing: &'static str,
        values: &[Param<'_>],
        each: impl FnMut(Row<'_>) -> Result<()>,
    ) -> Result<u64> {
        encode(&mut self.output, statement, values);
        self.send(doing)?;
        self.finish(each)
    }

    /// Sends what has been encoded by hand, and expects one answer.
    pub fn send_encoded(&mut self, doing: &'static str, bytes: &[u8]) -> Result<()> {
        self.expected.push_back(doing);
        self.stream.send(bytes)
    }

    /// Answers that were not taken yet.
    pub fn expected(&self) -> usize {
        self.expected.len()
    }

    /// Takes the next answer.
    pub fn finish(&mut self, mut each: impl FnMut(Row<'_>) -> Result<()>) -> Result<u64> {
        let Some(doing) = self.expected.pop_front() else {
            return Ok(0);
        };
        let (mut rows, mut failed) = (0, None);
        loop {
            let message = self.input.next(&mut self.stream)?;
            match message.kind {
                b'Z' => break,
                b'D' if failed.is_none() => failed = each(Row(message.body)).err(),
                b'C' => rows = affected(message.body),
                b'E' if failed.is_none() => {
                    let error = refusal(doing, message.body);
                    // The server ends a connection that it does not let in.
                    if self.version.is_empty() {
                        return Err(error);
                    }
                    failed = Some(error);
                }
                b'R' if message.body != [0; 4] => {
                    return Err(Error::Settings(
                        "the server wants a password: log-in is supported without one (trust) only"
                            .to_owned(),
                    ));
                }
                b'S' => {
                    let mut parts = message.body.split(|byte| *byte == 0);
                    if parts.next() == Some(b"server_version") {
                        let version = parts.next().unwrap_or_default();
                        self.version = String::from_utf8_lossy(version).into_owned();
                    }
                }
                // Rows after an error, notices, and messages that need no answer.
                b'D' | b'E' | b'R' | b'K' | b'N' | b'A' | b'I' | b'1' | b'2' | b'3' | b'T'
                | b't' | b'n' | b's' | b'G' => {}
                other => {
                    let letter = char::from(other);
                    return Err(Error::Protocol(format!("a message of kind {letter:?}")));
                }
            }
        }
        failed.map_or(Ok(rows), Err)
    }

    /// Takes all answers that are still under way.
    pub fn drain(&mut self) -> Result<()> {
        while !self.expected.is_empty() {
            self.finish(|_| Ok(()))?;
        }
        Ok(())
    }

    fn send(&mut self, doing: &'static str) -> Result<()> {
        // Answers come in order: those of statements that nobody waited for come first.
        self.drain()?;
        self.expected.push_back(doing);
        let sent = self.stream.send(&self.output);
        self.output.clear();
        sent
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.output.clear();
        Frames(&mut self.output).terminate();
        // The server notices a closed socket as well.
        self.stream.send(&self.output).ok();
    }
}

/// Appends the messages that run a prepared statement in a transaction of its own.
pub fn encode(out: &mut Vec<u8>, statement: &Statement, values: &[Param<'_>]) {
    let mut frames = Frames(out);
    frames.execute(&statement.0, values);
    frames.sync();
}

/// Says which statement it was.
fn with_statement(error: Error, sql: &str) -> Error {
    match error {
        Error::Server { code, message, .. } => Error::Server {
            command: sql.to_owned(),
            code,
            message,
        },
        other => other,
    }
}
