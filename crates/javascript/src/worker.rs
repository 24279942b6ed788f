//! A worker: a process that runs the functions of one request after the other for the server.
//!
//! It reads messages from its standard input, a socket, until there is no more of them. It does not interrupt functions: the server
//! kills it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf, OwnedValue, Value as Bson, doc};
use frond_error::Error as Fault;
use frond_query::script::{Script, ScriptSource, StoredFunctions};

use crate::confinement;
use crate::engine;
use crate::limits::Heaps;
use crate::program::Program;
use crate::protocol::{Inbox, Kind, Malformed, first_doc, head, numbered};
use crate::shared::Shared;

/// Emitted keys and values go on to the server when they have this many bytes.
const EMITTED_BYTES: usize = 1 << 20;

/// No further document of a batch is passed to a map function that has emitted this many bytes.
const BATCH_EMITTED_BYTES: usize = 4 << 20;

/// Why a worker ends.
enum End {
    /// The server has closed the socket.
    Closed,
    /// It sends what no server sends, or the socket has failed.
    Broken,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Broken
    }
}

impl From<Malformed> for End {
    fn from(_: Malformed) -> End {
        End::Broken
    }
}

/// Runs a worker until its server has no more use for it.
pub fn run() -> ExitCode {
    confinement::begin();
    match serve() {
        Ok(()) | Err(End::Closed) => ExitCode::SUCCESS,
        Err(End::Broken) => ExitCode::FAILURE,
    }
}

fn serve() -> Result<(), End> {
    let mut input = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = Output::new(input.try_clone()?);
    let mut inbox = Inbox::default();
    let mut session = None;
    loop {
        if let Some((kind, body)) = inbox.take()? {
            handle(&mut session, &output, kind, inbox.body(body))?;
            continue;
        }
        match input.read(inbox.room()?)? {
            0 => return Err(End::Closed),
            bytes => inbox.add(bytes),
        }
    }
}

/// The socket to the server, also for what functions print and emit.
#[derive(Clone)]
struct Output(Rc<RefCell<Sending>>);

struct Sending {
    stream: UnixStream,
    /// The message before it is sent.
    bytes: Vec<u8>,
    /// Emitted keys and values that the server has not got yet.
    emitted: Vec<u8>,
    /// The bytes of all that were emitted in this batch.
    emitted_bytes: usize,
}

impl Output {
    fn new(stream: UnixStream) -> Output {
        Output(Rc::new(RefCell::new(Sending {
            stream,
            bytes: Vec::new(),
            emitted: Vec::new(),
            emitted_bytes: 0,
        })))
    }

    fn send(&self, kind: Kind, body: &[u8]) -> Result<(), End> {
        Ok(self.0.borrow_mut().send(kind, body)?)
    }

    fn emit(&self, key: &OwnedValue, value: &OwnedValue) {
        let mut pair = DocBuf::new();
        pair.push_value("k", &key.as_value());
        pair.push_value("v", &value.as_value());
        let mut sending = self.0.borrow_mut();
        sending.emitted.extend_from_slice(pair.as_bytes());
        sending.emitted_bytes += pair.len_bytes();
        if sending.emitted.len() >= EMITTED_BYTES {
            // If the server does not read it any more, the answer cannot be sent either.
            let _ = sending.flush();
        }
    }
}

impl Sending {
    fn send(&mut self, kind: Kind, body: &[u8]) -> io::Result<()> {
        self.bytes.clear();
        self.bytes.extend_from_slice(&head(kind, body.len()));
        self.bytes.extend_from_slice(body);
        let sent = self.stream.write_all(&self.bytes);
        self.bytes.shrink_to(EMITTED_BYTES);
        sent
    }

    /// Sends what was emitted.
    fn flush(&mut self) -> io::Result<()> {
        let mut emitted = std::mem::take(&mut self.emitted);
        if emitted.is_empty() {
            return Ok(());
        }
        let sent = self.send(Kind::Emitted, &emitted);
        emitted.clear();
        emitted.shrink_to(EMITTED_BYTES);
        self.emitted = emitted;
        sent
    }
}

/// The functions of a request of a client.
struct Session {
    shared: Arc<Shared>,
    programs: HashMap<u64, Program>,
    /// Those that are stored in the database, once a function needs them.
    stored: Arc<StoredFunctions>,
}

thread_local! {
    /// For what functions print: what engines share must be fit for several threads.
    static PRINTING: RefCell<Option<Output>> = const { RefCell::new(None) };
}

fn print(text: &str) {
    if let Some(output) = PRINTING.with_borrow(Clone::clone) {
        // If the server does not read it any more, the answer cannot be sent either.
        let _ = output.send(Kind::Printed, doc! {"text": text}.as_bytes());
    }
}

impl Session {
    fn begin(options: &Doc, output: &Output) -> Session {
        let heap = options.get_i64("heap").unwrap_or_default();
        confinement::bound_memory(u64::try_from(heap).unwrap_or_default());
        PRINTING.set(Some(output.clone()));
        Session {
            shared: Arc::new(Shared {
                heaps: Arc::new(Heaps::one(usize::try_from(heap).unwrap_or_default())),
                check: Box::new(|| Ok(())),
                print: Box::new(print),
            }),
            programs: HashMap::new(),
            stored: Arc::default(),
        }
    }

    fn store(&mut self, functions: &Doc) {
        let more = functions
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        Arc::make_mut(&mut self.stored).extend(more);
    }

    fn compile(&mut self, number: u64, function: &Doc) -> Result<(), Fault> {
        let sees_stored = function.get_bool("stored") == Some(true);
        let source = ScriptSource {
            code: function.get_str("code").unwrap_or_default().to_owned(),
            scope: function.get_doc("scope").map(Doc::to_owned),
            stored_functions: sees_stored,
        };
        let stored = sees_stored.then(|| self.stored.clone());
        let program = Program::new(&self.shared, source, stored)?;
        self.programs.insert(number, program);
        Ok(())
    }
}

fn handle(
    session: &mut Option<Session>,
    output: &Output,
    kind: Kind,
    body: &[u8],
) -> Result<(), End> {
    if kind == Kind::Begin {
        *session = Some(Session::begin(Doc::from_trusted(body), output));
        return output.send(Kind::Done, &[]);
    }
    if kind == Kind::End {
        *session = None;
        engine::end();
        let resident = i64::try_from(confinement::resident_bytes()).unwrap_or(i64::MAX);
        return output.send(Kind::Ended, doc! {"resident": resident}.as_bytes());
    }
    let session = session.as_mut().ok_or(End::Broken)?;
    if kind == Kind::Store {
        session.store(Doc::from_trusted(body));
        return output.send(Kind::Done, &[]);
    }
    let (number, body) = numbered(body)?;
    if kind == Kind::Compile {
        return match session.compile(number, Doc::from_trusted(body)) {
            Ok(()) => output.send(Kind::Done, &[]),
            Err(fault) => fail(output, &fault),
        };
    }
    let program = session.programs.get(&number).ok_or(End::Broken)?;
    let returned = match kind {
        Kind::Test => match program.test(Doc::from_trusted(body)) {
            Ok(true) => return output.send(Kind::True, &[]),
            Ok(false) => return output.send(Kind::False, &[]),
            Err(fault) => Err(fault),
        },
        Kind::Call => program.call(Doc::from_trusted(body)),
        Kind::Fold => {
            let (state, batch) = first_doc(body)?;
            let state = state.get("").unwrap_or(Bson::Undefined);
            program.fold(state, Doc::from_trusted(batch))
        }
        Kind::Map => return map(output, program, body),
        _ => return Err(End::Broken),
    };
    match returned {
        Ok(value) => {
            let mut out = DocBuf::with_capacity(value.as_value().len_bytes() + 16);
            out.push_value("", &value.as_value());
            output.send(Kind::Returned, out.as_bytes())
        }
        Err(fault) => fail(output, &fault),
    }
}

/// Passes documents to a map function, until all are done or many bytes were emitted.
fn map(output: &Output, program: &Program, mut docs: &[u8]) -> Result<(), End> {
    output.0.borrow_mut().emitted_bytes = 0;
    let mut done = 0i64;
    while !docs.is_empty() {
        let (doc, rest) = first_doc(docs)?;
        docs = rest;
        let sink = output.clone();
        let called = program.map_into(doc, Rc::new(move |key, value| sink.emit(&key, &value)));
        if let Err(fault) = called {
            output.0.borrow_mut().emitted.clear();
            return fail(output, &fault);
        }
        done += 1;
        if output.0.borrow().emitted_bytes >= BATCH_EMITTED_BYTES {
            break;
        }
    }
    output.0.borrow_mut().flush()?;
    output.send(Kind::Mapped, doc! {"n": done}.as_bytes())
}

fn fail(output: &Output, fault: &Fault) -> Result<(), End> {
    let body = doc! {"code": fault.code().code(), "message": fault.message()};
    output.send(Kind::Failed, body.as_bytes())
}
