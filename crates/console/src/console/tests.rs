#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use frond_auth::scram::{ClientFirst, Credential, Mechanism, ServerConversation};
use frond_bson::Doc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::*;
use crate::sessions::IDLE_MAX;
use frond_http::{Ends, Places, serve_connection};

/// A server with the user `ann` of `admin`, whose password is `pencil`. It echoes commands.
struct Fake {
    needs_login: bool,
    names: Vec<String>,
    open: Arc<AtomicUsize>,
}

struct FakeLink {
    user: Option<String>,
    conversation: Option<ServerConversation>,
    reply: DocBuf,
    hangs: bool,
    open: Arc<AtomicUsize>,
}

impl Drop for FakeLink {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Backend for Fake {
    type User = String;
    type Link = FakeLink;

    fn needs_login(&self) -> bool {
        self.needs_login
    }

    fn host_names(&self) -> &[String] {
        &self.names
    }

    fn failed_login_delay(&self) -> Duration {
        Duration::from_millis(100)
    }

    async fn open(&self, _: &Ends, user: Option<&String>) -> Result<FakeLink, Broken> {
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(FakeLink {
            user: user.cloned(),
            conversation: None,
            reply: DocBuf::new(),
            hangs: false,
            open: self.open.clone(),
        })
    }
}

impl FakeLink {
    fn answer(&mut self, db: &str, command: &Doc) -> DocBuf {
        let failed = doc! {"ok": 0.0, "errmsg": "Authentication failed.", "code": 18};
        let payload = match command.get("payload") {
            Some(Value::Binary { bytes, .. }) => bytes,
            _ => &[],
        };
        let answer = |text: &str| {
            let payload = Value::Binary {
                subtype: 0,
                bytes: text.as_bytes(),
            };
            doc! {"ok": 1.0, "payload": payload}
        };
        if command.contains_key("saslStart") {
            let Ok(first) = ClientFirst::parse(payload) else {
                return failed;
            };
            let prepared = match first.user.as_str() {
                "ann" if db == "admin" => "pencil",
                _ => "something that nobody knows",
            };
            let credential = Credential::new(Mechanism::Sha256, "ann", prepared, 5000).unwrap();
            let (conversation, reply) = ServerConversation::start(&first, credential).unwrap();
            self.conversation = Some(conversation);
            answer(&reply)
        } else if command.contains_key("saslContinue") {
            match self.conversation.take().unwrap().finish(payload) {
                Ok(reply) => {
                    self.user = Some("ann".to_owned());
                    answer(&reply)
                }
                Err(_) => failed,
            }
        } else if let Some(bytes) = command.get_i32("large") {
            doc! {"ok": 1.0, "text": "x".repeat(bytes as usize)}
        } else {
            doc! {"ok": 1.0, "db": db, "user": self.user.as_deref(), "echo": command}
        }
    }
}

impl Link for FakeLink {
    type User = String;

    async fn send(&mut self, db: &str, command: &Doc) -> Result<(), Broken> {
        self.hangs = command.contains_key("hang");
        self.reply = self.answer(db, command);
        Ok(())
    }

    async fn ended(&mut self) -> Result<usize, Broken> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(self.reply.len_bytes())
    }

    async fn receive(&mut self) -> Result<DocBuf, Broken> {
        Ok(self.reply.clone())
    }

    fn user(&self) -> Option<String> {
        self.user.clone()
    }
}

struct Page {
    console: Arc<Console<Fake>>,
    router: Arc<Router>,
}

impl Page {
    fn new(needs_login: bool) -> Page {
        let fake = Fake {
            needs_login,
            names: vec!["db.example".to_owned()],
            open: Arc::default(),
        };
        let console = Console::new(fake, Arc::default());
        let console = console.unwrap();
        let router = Arc::new(console.routes(Router::new()));
        Page { console, router }
    }

    fn open_links(&self) -> usize {
        self.console.backend.open.load(Ordering::Relaxed)
    }

    /// Waits until there are open links, or none.
    async fn until_links_are_open(&self, are_open: bool) {
        let wait = async {
            while (self.open_links() > 0) != are_open {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let wait = tokio::time::timeout(Duration::from_secs(120), wait);
        assert!(wait.await.is_ok(), "the links of a page");
    }

    async fn begin(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> tokio::io::DuplexStream {
        let (mut near, far) = duplex(1 << 20);
        let address: std::net::SocketAddr = "127.0.0.1:28017".parse().unwrap();
        let ends = Ends {
            client: address,
            server: address,
            is_secure: false,
        };
        let router = self.router.clone();
        let place = Places::new(1, 1).enter(address.ip()).await.unwrap();
        tokio::spawn(serve_connection(
            far,
            ends,
            router,
            place,
            std::future::pending::<()>(),
        ));
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        let _ = near.write_all(request.as_bytes()).await;
        near
    }

    /// The status and the whole reply.
    async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut near = self.begin(method, path, headers, body).await;
        let mut all = Vec::new();
        near.read_to_end(&mut all).await.unwrap();
        let text = String::from_utf8_lossy(&all).into_owned();
        (text[9..12].parse().unwrap(), text)
    }

    async fn token(&self, cookie: &str) -> String {
        let headers = format!("Host: localhost:1\r\nCookie: {cookie}\r\n");
        let (_, reply) = self.ask("GET", "/api/session", &headers, "").await;
        let token = reply.split("\"token\":\"").nth(1).unwrap_or_default();
        token.split('"').next().unwrap_or_default().to_owned()
    }

    async fn log_in(&self, user: &str, password: &str) -> (u16, String) {
        let body = format!("{{\"user\":\"{user}\",\"db\":\"admin\",\"password\":\"{password}\"}}");
        let headers = "Host: localhost:1\r\nx-frond-token: none\r\n";
        self.ask("POST", "/api/login", headers, &body).await
    }

    /// The headers of a session, after a login.
    async fn session(&self) -> String {
        let (status, reply) = self.log_in("ann", "pencil").await;
        assert_eq!(status, 200, "{reply}");
        let cookie = reply.split("set-cookie: ").nth(1).unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let token = self.token(&cookie).await;
        format!("Host: localhost:1\r\nCookie: {cookie}\r\nx-frond-token: {token}\r\n")
    }

    async fn ping(&self, headers: &str) -> (u16, String) {
        let body = "{\"ping\": 1}";
        self.ask("POST", "/api/command?db=d", headers, body).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_pages_and_unknown_hosts_are_refused() {
    let page = Page::new(false);
    let token = page.token("").await;
    assert_eq!(token.len(), 32);
    let good = format!("Host: 127.0.0.1:28017\r\nx-frond-token: {token}\r\n");
    let with = |more: &str| format!("{good}{more}\r\n");
    let cases = [
        (good.clone(), 200),
        (with("Origin: http://127.0.0.1:28017"), 200),
        (with("Sec-Fetch-Site: same-origin"), 200),
        (good.replace("127.0.0.1:28017", "db.example"), 200),
        (good.replace("127.0.0.1:28017", "evil.example:28017"), 403),
        (good.replace("Host: 127.0.0.1:28017\r\n", ""), 400),
        (with("Origin: http://evil.example"), 403),
        (with("Origin: http://127.0.0.1:28018"), 403),
        (with("Origin: null"), 403),
        (with("Sec-Fetch-Site: cross-site"), 403),
        (with("Sec-Fetch-Site: same-site"), 403),
        ("Host: localhost\r\n".to_owned(), 403),
        (good.replace(&token, "0"), 403),
        (with("x-frond-token: other"), 403),
    ];
    for (headers, status) in cases {
        let (got, reply) = page.ping(&headers).await;
        assert_eq!(got, status, "{headers}{reply}");
    }
    for path in ["/", "/page/main.js", "/api/session"] {
        let (status, _) = page.ask("GET", path, "Host: evil.example\r\n", "").await;
        assert_eq!(status, 403, "{path}");
        let (status, reply) = page.ask("GET", path, "Host: localhost\r\n", "").await;
        assert_eq!(status, 200, "{path}");
        assert_eq!(reply.contains("default-src 'none'"), !path.contains("api"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_read_and_their_replies_written() {
    let page = Page::new(false);
    let token = page.token("").await;
    let headers = format!("Host: localhost\r\nx-frond-token: {token}\r\n");
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20));
    let cases = [
        (
            "/api/command?db=a%20b",
            "{\"b\": 1, \"a\": {\"$date\": \"2026-01-01T00:00:00Z\"}}",
            200,
            "{\"ok\":1.0,\"db\":\"a b\",\"user\":null,\"echo\":{\"b\":1,\"a\":{\"$date\":\"2026-01-01T00:00:00Z\"}}}",
        ),
        ("/api/command", "{\"b\": 1}", 200, "\"db\":\"admin\""),
        (
            "/api/command?form=canonical",
            "{\"b\": 1}",
            200,
            "\"b\":{\"$numberInt\":\"1\"}",
        ),
        ("/api/command", "{\"large\": 4000000}", 200, "xxxx"),
        ("/api/command", "{\"large\": 9000000}", 502, "too large"),
        ("/api/command", "{}", 400, "empty"),
        ("/api/command", "{\"b\": ", 400, "cannot be read"),
        ("/api/command", "\u{1}", 400, "cannot be read"),
        (
            "/api/command",
            "{\"b\": 1, \"$db\": \"other\"}",
            400,
            "parameter",
        ),
        ("/api/command", long.as_str(), 413, "too large"),
    ];
    for (path, body, status, text) in cases {
        let (got, reply) = page.ask("POST", path, &headers, body).await;
        let shown: String = reply.chars().take(600).collect();
        assert_eq!(got, status, "{path} {shown}");
        assert!(reply.contains(text), "{path} {shown}");
    }
    let (status, _) = page.ask("GET", "/api/command", &headers, "").await;
    assert_eq!(status, 405);
    assert!(page.open_links() <= 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_ends_its_command() {
    let page = Page::new(false);
    let token = page.token("").await;
    let headers = format!("Host: localhost\r\nx-frond-token: {token}\r\n");
    let near = (page.begin("POST", "/api/command", &headers, "{\"hang\": 1}")).await;
    page.until_links_are_open(true).await;
    drop(near);
    page.until_links_are_open(false).await;
}

/// Each needs a part of the room for its command, and nearly all of it for its reply.
#[tokio::test(flavor = "multi_thread")]
async fn many_large_requests_at_once_are_all_answered() {
    let page = Arc::new(Page::new(false));
    let token = page.token("").await;
    let headers = format!("Host: localhost\r\nx-frond-token: {token}\r\n");
    let body = format!(
        "{{\"large\": 7900000, \"pad\": \"{}\"}}",
        "x".repeat(1000 << 10)
    );
    let requests: Vec<_> = (0..12)
        .map(|_| {
            let (page, headers, body) = (page.clone(), headers.clone(), body.clone());
            tokio::spawn(async move { page.ask("POST", "/api/command", &headers, &body).await })
        })
        .collect();
    let mut shown = 0;
    for request in requests {
        let (status, reply) = request.await.unwrap();
        match status {
            200 => shown += 1,
            // On a slow machine.
            _ => assert!(
                status == 503 && reply.contains("retry-after: 1\r\n"),
                "{status}"
            ),
        }
    }
    assert!(shown > 0);
    let (status, reply) = page
        .ask("POST", "/api/command", &headers, "{\"a\": 1}")
        .await;
    assert_eq!(status, 200, "{reply}");
}

/// Commands that run hold no room, however large they were.
#[tokio::test(flavor = "multi_thread")]
async fn large_commands_that_run_keep_no_room() {
    let page = Page::new(false);
    let token = page.token("").await;
    let headers = format!("Host: localhost\r\nx-frond-token: {token}\r\n");
    let pad = "x".repeat(1000 << 10);
    let hangs = format!("{{\"hang\": 1, \"pad\": \"{pad}\"}}");
    let mut running = Vec::new();
    for n in 1..=20 {
        running.push(page.begin("POST", "/api/command", &headers, &hangs).await);
        let all_run = async {
            while page.open_links() < n {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let all_run = tokio::time::timeout(Duration::from_secs(120), all_run).await;
        assert!(all_run.is_ok(), "the command {n} waits");
    }
    let body = format!("{{\"large\": 7900000, \"pad\": \"{pad}\"}}");
    let (status, _) = page.ask("POST", "/api/command", &headers, &body).await;
    assert_eq!(status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_of_a_password_are_slowed_down() {
    let page = Page::new(true);
    let mut statuses = Vec::new();
    // The pauses grow with each failure, so that one becomes longer than the log-ins take, however slow the machine is.
    while statuses.len() < 100 && statuses.last() != Some(&429) {
        let (status, reply) = page.log_in("ann", "wrong").await;
        assert_eq!(status == 429, reply.contains("retry-after: "), "{reply}");
        statuses.push(status);
    }
    assert_eq!(statuses[..11], [401; 11]);
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_who_log_in_run_commands() {
    let page = Page::new(true);
    let (status, reply) = page
        .ask("GET", "/api/session", "Host: localhost\r\n", "")
        .await;
    assert!(
        status == 200 && reply.ends_with("{\"needsLogin\":true}"),
        "{reply}"
    );
    assert_eq!(
        page.ping("Host: localhost\r\nx-frond-token: x\r\n").await.0,
        401
    );
    for (user, password) in [("ann", "wrong"), ("bob", "pencil"), ("", "")] {
        let (status, reply) = page.log_in(user, password).await;
        assert_eq!(status, 401, "{user}: {reply}");
        assert!(reply.contains("Authentication failed.") && !reply.contains("set-cookie"));
    }
    assert_eq!(page.open_links(), 0);
    let body = "{\"user\":\"ann\",\"db\":\"admin\",\"password\":\"pencil\"}";
    let cases = [
        ("Host: localhost\r\n", body, 403),
        ("Host: evil.example\r\nx-frond-token: none\r\n", body, 403),
        (
            "Host: localhost\r\nx-frond-token: none\r\nOrigin: http://evil.example\r\n",
            body,
            403,
        ),
        (
            "Host: localhost\r\nx-frond-token: none\r\n",
            "{\"user\":\"ann\"}",
            400,
        ),
        ("Host: localhost\r\nx-frond-token: none\r\n", "ann", 400),
    ];
    for (headers, body, status) in cases {
        let (got, reply) = page.ask("POST", "/api/login", headers, body).await;
        assert_eq!(got, status, "{headers}{reply}");
    }
    let (_, reply) = page.log_in("ann", "pencil").await;
    let cookie = reply.split("set-cookie: ").nth(1).unwrap();
    let cookie = cookie.split("\r\n").next().unwrap();
    assert!(cookie.starts_with("frond-28017="), "{cookie}");
    for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let headers = page.session().await;
    let (status, reply) = page.ping(&headers).await;
    assert!(
        status == 200 && reply.contains("\"user\":\"ann\""),
        "{reply}"
    );
    // The cookie alone is not enough, as a page of another origin would send it.
    let cookie_only = headers.split("x-frond-token").next().unwrap();
    assert_eq!(page.ping(cookie_only).await.0, 403);
    let other = page.session().await;
    assert_eq!(page.ask("POST", "/api/logout", &headers, "").await.0, 200);
    assert_eq!(page.ping(&headers).await.0, 401);
    assert_eq!(page.ping(&other).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_session_has_to_log_in_again() {
    let page = Page::new(true);
    let headers = page.session().await;
    assert_eq!(page.ping(&headers).await.0, 200);
    page.console.sessions.shift(IDLE_MAX);
    assert_eq!(page.ping(&headers).await.0, 401);
    assert_eq!(page.open_links(), 0, "its connections are closed");
}
