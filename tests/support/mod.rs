//! A server process on a free port, and a client that speaks raw messages.

#![allow(clippy::unwrap_used, dead_code)]

mod processor_time;
mod waiting;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf};
use frond_wire::{Flags, Header, MsgBuilder, Reply};

pub use waiting::{PATIENCE, wait_for, wait_until};

/// The command line of the server under test.
pub fn frond(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frond"));
    command.arg("serve").args(arguments);
    command
}

/// A server that is ready. Dropping it kills it.
pub struct Running {
    child: Child,
    pub port: u16,
    /// Lines of its standard output.
    pub lines: Receiver<String>,
}

impl Running {
    /// Starts a server on a directory, on a port that the system chooses.
    pub fn start(directory: &Path, more: &[&str]) -> Running {
        let mut arguments = vec![
            "--dbpath",
            directory.to_str().unwrap(),
            "--port",
            "0",
            "--cacheSizeGB",
            "0.1",
        ];
        arguments.extend_from_slice(more);
        Running::spawn(frond(&arguments))
    }

    /// Starts a server and waits for its line that says it is ready.
    pub fn spawn(mut command: Command) -> Running {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = sender.send(line);
            }
        });
        let mut running = Running {
            child,
            port: 0,
            lines,
        };
        let line = running.line_with("aiting for connections");
        running.port = port_in(&line);
        running
    }

    /// Waits for a line that holds this text.
    pub fn line_with(&self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self
                .lines
                .recv_timeout(left)
                .expect("a line from the server");
            if line.contains(text) {
                return line;
            }
        }
    }

    pub fn connect(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream,
            request_id: 0,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, by its name.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for the process to end.
    pub fn wait(mut self) -> ExitStatus {
        wait_for("the end of the server", || self.child.try_wait().unwrap())
    }

    /// Waits for half a second in which the server uses less than a tenth of a processor. A server that spins has none.
    #[cfg(target_os = "linux")]
    pub fn wait_until_idle(&self) {
        wait_until("an idle server", || {
            let (began, before) = (Instant::now(), self.processor_time());
            std::thread::sleep(Duration::from_millis(500));
            (self.processor_time() - before) * 10 < began.elapsed()
        });
    }

    /// The processor time that the server has used.
    #[cfg(target_os = "linux")]
    fn processor_time(&self) -> Duration {
        processor_time::processor_time(&self.pid().to_string())
    }

    /// The operations on a namespace, as `currentOp` shows them.
    pub fn operations(&self, namespace: &str) -> Vec<DocBuf> {
        let command = frond_bson::doc! {"currentOp": 1, "ns": namespace};
        let reply = self.connect().run("admin", &command);
        let operations = reply.get_array("inprog").unwrap().values();
        operations
            .map(|operation| operation.as_doc().unwrap().to_owned())
            .collect()
    }

    /// Stops the server as an operator does, and waits for it.
    pub fn stop(self) {
        self.signal("TERM");
        assert_eq!(self.wait().code(), Some(0));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The port in the line that says that the server is ready.
fn port_in(line: &str) -> u16 {
    let after = line.split("port").nth(1).unwrap();
    let digits: String = after
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap()
}

/// A client over any stream.
pub struct Client<S> {
    pub stream: S,
    pub request_id: i32,
}

impl<S: Read + Write> Client<S> {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next whole message; none at the end of the stream.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        // A connection that the server resets has ended as well.
        frond_wire::read_message(&mut self.stream, usize::MAX).ok()?
    }

    /// The next OP_MSG: its flags and its document.
    pub fn receive_msg(&mut self) -> (Header, Flags, DocBuf) {
        let message = self.receive().expect("a reply");
        let (header, Reply::Msg(msg)) = Reply::parse(&message).unwrap() else {
            panic!("not an OP_MSG")
        };
        (
            header,
            msg.flags,
            Doc::validate(msg.body).unwrap().to_owned(),
        )
    }

    /// Makes an OP_MSG of a command with document sequences.
    pub fn build(
        &mut self,
        flags: Flags,
        db: &str,
        command: &Doc,
        sequences: &[(&str, &[DocBuf])],
    ) -> Vec<u8> {
        self.request_id += 1;
        let mut body = command.to_owned();
        body.push("$db", db);
        let mut message = Vec::new();
        let mut builder =
            MsgBuilder::new(&mut message, self.request_id, 0, flags).body(body.as_bytes());
        for (name, documents) in sequences {
            builder = builder.sequence(name, documents.iter().map(|doc| doc.as_bytes()));
        }
        builder.finish();
        message
    }

    /// Runs a command and returns its reply, which may be an error.
    pub fn reply(&mut self, db: &str, command: &Doc) -> DocBuf {
        let message = self.build(Flags::NONE, db, command, &[]);
        self.send(&message);
        let (header, _, reply) = self.receive_msg();
        assert_eq!(header.response_to, self.request_id);
        reply
    }

    /// Runs a command that must succeed.
    pub fn run(&mut self, db: &str, command: &Doc) -> DocBuf {
        let reply = self.reply(db, command);
        assert_eq!(reply.get_f64("ok"), Some(1.0), "{command:?}: {reply:?}");
        reply
    }

    /// The number of documents in a collection of the database `test`.
    pub fn count(&mut self, collection: &str) -> i64 {
        self.run("test", &frond_bson::doc! {"count": collection})
            .get_i64("n")
            .unwrap()
    }
}
