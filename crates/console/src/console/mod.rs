//! The routes of the console.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use frond_auth::NoRandomness;
use frond_bson::{DocBuf, Value, doc, extjson};
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue, SET_COOKIE};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::backend::{Backend, Broken, Link};
use crate::login::{Login, LoginError, log_in};
use crate::memory_quota::{MemoryQuota, SMALL_BYTES, WAIT_MAX, keep_for_text};
use crate::origin;
use crate::page::{FILES, file};
use crate::sessions::{AGE_MAX, Session, Sessions};
use crate::throttle::LoginThrottle;
use frond_http::{Body, Call, Refusal, Reply, Router, bytes, json};

/// The header with the token.
pub const TOKEN: HeaderName = HeaderName::from_static("x-frond-token");

/// Bytes of a command in JSON.
const COMMAND_BYTES_MAX: usize = 1 << 20;

/// Bytes of the body of a login.
const LOGIN_BYTES_MAX: usize = 4 << 10;

/// Logins that are tried at the same time; others wait.
const LOGINS_MAX: usize = 4;

/// Bytes of a reply that the page shows.
const REPLY_BYTES_MAX: usize = 8 << 20;

/// Time in which the server has to take a command.
const SEND_TIME_MAX: Duration = Duration::from_secs(10);

/// Interval at which sessions are checked for expiry.
const PERIOD: Duration = Duration::from_secs(10);

/// Why a command does not run.
const NO_ROOM: &str = "the console does too much at the moment; the command has not run: try again";

/// Why a reply is not shown.
const NO_ROOM_FOR_REPLY: &str =
    "the console does too much at the moment to show the reply; the command has run";

type SessionOf<B> = Session<<B as Backend>::User, <B as Backend>::Link>;

/// The console of a server.
pub struct Console<B: Backend> {
    backend: B,
    sessions: Sessions<B::User, B::Link>,
    /// Of all pages, where there are no logins.
    anonymous: Arc<SessionOf<B>>,
    logins: Semaphore,
    throttle: Arc<LoginThrottle>,
    memory_quota: MemoryQuota,
}

impl<B: Backend> Console<B> {
    /// A console without sessions.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn new(backend: B, throttle: Arc<LoginThrottle>) -> Result<Arc<Console<B>>, NoRandomness> {
        Ok(Arc::new(Console {
            backend,
            sessions: Sessions::default(),
            anonymous: Arc::new(Session::new(None, None)?),
            logins: Semaphore::new(LOGINS_MAX),
            throttle,
            memory_quota: MemoryQuota::default(),
        }))
    }

    /// Adds the routes of the page and of its API.
    pub fn routes(self: &Arc<Self>, mut router: Router) -> Router {
        for (path, content_type, text) in FILES {
            let console = self.clone();
            router = router.get(path, move |call| {
                let checked = origin::check(&call, console.backend.host_names());
                let reply = checked.map_or_else(Reply::from, |()| file(content_type, text));
                std::future::ready(reply)
            });
        }
        let (state, log_in, log_out, command) =
            (self.clone(), self.clone(), self.clone(), self.clone());
        router
            .get("/api/session", move |call| state.clone().state(call))
            .post("/api/login", move |call| log_in.clone().log_in(call))
            .post("/api/logout", move |call| log_out.clone().log_out(call))
            .post("/api/command", move |call| command.clone().command(call))
    }

    /// Ends sessions whose time is over, until it is dropped.
    pub async fn expire(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PERIOD).await;
            self.sessions.expire();
            self.anonymous.close_idle_links();
        }
    }

    fn cookie_name(&self, call: &Call) -> String {
        // Browsers share cookies between the ports of a host.
        format!("frond-{}", call.ends.server.port())
    }

    /// The session of a request, whose token is not checked.
    fn session(&self, call: &Call) -> Option<Arc<SessionOf<B>>> {
        if !self.backend.needs_login() {
            return Some(self.anonymous.clone());
        }
        self.sessions.find(call.cookie(&self.cookie_name(call))?)
    }

    /// The session of a request that proves that it comes from the page.
    fn checked_session(&self, call: &Call) -> Result<Arc<SessionOf<B>>, Refusal> {
        let Some(session) = self.session(call) else {
            return Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "you are not logged in",
            ));
        };
        let given = call.header(&TOKEN).unwrap_or_default();
        if bool::from(session.token.as_bytes().ct_eq(given.as_bytes())) {
            Ok(session)
        } else {
            Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "the token of the request is missing or wrong",
            ))
        }
    }

    /// Describes the session to the page: the user, and the token that requests must carry.
    async fn state(self: Arc<Self>, call: Call) -> Reply {
        if let Err(refused) = origin::check(&call, self.backend.host_names()) {
            return refused.into();
        }
        let session = self.session(&call);
        let state = describe(self.backend.needs_login(), session.as_deref());
        json(StatusCode::OK, extjson::to_relaxed(&state))
    }

    async fn log_in(self: Arc<Self>, call: Call) -> Reply {
        self.try_log_in(call).await.unwrap_or_else(Reply::from)
    }

    async fn try_log_in(&self, mut call: Call) -> Result<Reply, Refusal> {
        origin::check(&call, self.backend.host_names())?;
        // A form of another page cannot send it.
        if call.header(&TOKEN).is_none() {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "a header is missing"));
        }
        if !self.backend.needs_login() {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "there are no logins"));
        }
        let body = Zeroizing::new(call.body(LOGIN_BYTES_MAX).await?.to_vec());
        let login = parse_login(&body)
            .ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "the login cannot be read"))?;
        let name = (login.user.clone(), login.db.clone());
        let delay = self.backend.failed_login_delay();
        let from = call.ends.client.ip();
        let attempt = (self.throttle).begin(from, &login.user, &login.db, delay)?;
        let turn = tokio::time::timeout(WAIT_MAX, self.logins.acquire());
        let _turn = (turn.await).map_err(|_| Refusal::busy("too many logins at the same time"))?;
        let link = self.backend.open(&call.ends, None).await;
        let mut link = link.map_err(|error| unavailable(&error))?;
        let user = match log_in(&mut link, login).await {
            Ok(user) => user,
            Err(LoginError::Refused(text)) => {
                return Err(Refusal::new(StatusCode::UNAUTHORIZED, text));
            }
            Err(LoginError::Broken(error)) => return Err(unavailable(&error)),
        };
        self.throttle.succeeded(&attempt);
        let begun = Session::new(Some(user), Some(name)).and_then(|one| self.sessions.begin(one));
        let (id, session) = begun.map_err(|_| {
            let text = "the system gives no random bytes";
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, text)
        })?;
        session.keep_link(link);
        let state = extjson::to_relaxed(&describe(true, Some(&session)));
        let mut reply = json(StatusCode::OK, state);
        self.set_cookie(&call, &mut reply, &id, AGE_MAX);
        Ok(reply)
    }

    fn set_cookie(&self, call: &Call, reply: &mut Reply, value: &str, age: Duration) {
        let name = self.cookie_name(call);
        let secure = if call.ends.is_secure { "; Secure" } else { "" };
        let age = age.as_secs();
        let cookie =
            format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{secure}");
        if let Ok(mut value) = HeaderValue::from_str(&cookie) {
            value.set_sensitive(true);
            reply.headers_mut().insert(SET_COOKIE, value);
        }
    }

    async fn log_out(self: Arc<Self>, call: Call) -> Reply {
        let checked = origin::check(&call, self.backend.host_names());
        if let Err(refused) = checked.and_then(|()| self.checked_session(&call).map(drop)) {
            return refused.into();
        }
        if let Some(id) = call.cookie(&self.cookie_name(&call)) {
            self.sessions.end(id);
        }
        let mut reply = json(StatusCode::OK, "{}");
        self.set_cookie(&call, &mut reply, "", Duration::ZERO);
        reply
    }

    async fn command(self: Arc<Self>, call: Call) -> Reply {
        self.try_command(call).await.unwrap_or_else(Reply::from)
    }

    /// Runs a command: `POST /api/command?db=NAME`, in Extended JSON. The reply is the command's, whether it succeeds or fails. When
    /// the client goes away, the command is interrupted.
    async fn try_command(&self, mut call: Call) -> Result<Reply, Refusal> {
        origin::check(&call, self.backend.host_names())?;
        let session = self.checked_session(&call)?;
        let db = call.query("db").unwrap_or_else(|| "admin".to_owned());
        let is_canonical = call.query("form").as_deref() == Some("canonical");
        let length = call.header(&CONTENT_LENGTH);
        let length = length.and_then(|text| text.parse().ok());
        let length = length.unwrap_or(COMMAND_BYTES_MAX).min(COMMAND_BYTES_MAX);
        let memory_quota = self.memory_quota.take(length, NO_ROOM).await?;
        let command = parse_command(&call.body(COMMAND_BYTES_MAX).await?)?;
        let mut link = match session.take_link() {
            Some(link) => link,
            None => (self.backend.open(&call.ends, session.user.as_ref()).await)
                .map_err(|error| unavailable(&error))?,
        };
        let sent = tokio::time::timeout(SEND_TIME_MAX, link.send(&db, &command)).await;
        sent.map_err(|_| Refusal::busy(NO_ROOM))?
            .map_err(|error| unavailable(&error))?;
        // While the command runs, and while its reply waits for memory, others have that of the request.
        drop((command, memory_quota));
        let length = (link.ended().await).map_err(|error| unavailable(&error))?;
        if length > REPLY_BYTES_MAX {
            let text =
                "the reply is too large for this page; ask for less with a limit or a projection";
            return Err(Refusal::new(StatusCode::BAD_GATEWAY, text));
        }
        let mut memory_quota = self.memory_quota.take(length, NO_ROOM_FOR_REPLY).await?;
        let reply = (link.receive().await).map_err(|error| unavailable(&error))?;
        session.keep_link(link);
        let text = if length > SMALL_BYTES {
            tokio::task::spawn_blocking(move || to_json(&reply, is_canonical))
                .await
                .unwrap_or_default()
        } else {
            to_json(&reply, is_canonical)
        };
        keep_for_text(&mut memory_quota, text.len());
        let body = Body::with_room(Bytes::from(text), memory_quota);
        Ok(bytes(StatusCode::OK, "application/json", body))
    }
}

fn to_json(reply: &DocBuf, is_canonical: bool) -> String {
    if is_canonical {
        extjson::to_canonical(reply)
    } else {
        extjson::to_relaxed(reply)
    }
}

fn describe<U, L>(needs_login: bool, session: Option<&Session<U, L>>) -> DocBuf {
    let mut out = doc! {"needsLogin": needs_login};
    if let Some(session) = session {
        out.push("token", session.token.as_str());
        if let Some((user, db)) = &session.name {
            out.push("user", user.as_str());
            out.push("db", db.as_str());
        }
    }
    out
}

fn parse_login(body: &[u8]) -> Option<Login> {
    let fields = extjson::parse(std::str::from_utf8(body).ok()?).ok()?;
    // Its copy of the password is overwritten.
    let bytes = Zeroizing::new(fields.into_vec());
    let fields = frond_bson::Doc::validate(&bytes).ok()?;
    Some(Login {
        user: fields.get_str("user")?.to_owned(),
        db: fields.get_str("db").unwrap_or("admin").to_owned(),
        password: Zeroizing::new(fields.get_str("password")?.to_owned()),
    })
}

fn parse_command(body: &[u8]) -> Result<DocBuf, Refusal> {
    let refused = |text: String| Refusal::new(StatusCode::BAD_REQUEST, text);
    let text = std::str::from_utf8(body);
    let text = text.map_err(|_| refused("the command is not UTF-8".to_owned()))?;
    let command = extjson::parse(text);
    let command =
        command.map_err(|error| refused(format!("the command cannot be read: {error}")))?;
    match command.first() {
        None => Err(refused("the command is empty".to_owned())),
        Some((_, Value::NotUtf8(_))) => Err(refused("the command is not UTF-8".to_owned())),
        Some(_) if command.contains_key("$db") => Err(refused(
            "the database is a parameter of the request".to_owned(),
        )),
        Some(_) => Ok(command),
    }
}

fn unavailable(error: &Broken) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.0.as_str())
}

#[cfg(test)]
mod tests;
