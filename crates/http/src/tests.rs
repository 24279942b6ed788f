#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const ENDS: &str = "127.0.0.1:1";

fn router() -> Arc<Router> {
    let router = Router::new()
        .get("/plain", |call| async move {
            text(StatusCode::OK, call.query("q").unwrap_or_default())
        })
        .post("/echo", |mut call| async move {
            match call.body(10).await {
                Ok(body) => text(StatusCode::OK, String::from_utf8_lossy(&body)),
                Err(refused) => refused.into(),
            }
        })
        .get("/large", |_| async {
            text(StatusCode::OK, "x".repeat(8 << 20))
        })
        .get("/never", |_| std::future::pending());
    Arc::new(router)
}

/// A slot without competing connections.
async fn place() -> Arc<Place> {
    Places::new(1, 1)
        .enter([127, 0, 0, 1].into())
        .await
        .unwrap()
}

/// The client's end of a connection.
async fn connect() -> DuplexStream {
    let (near, far) = duplex(4 << 10);
    let address = ENDS.parse().unwrap();
    let ends = Ends {
        client: address,
        server: address,
        is_secure: false,
    };
    tokio::spawn(serve_connection(
        far,
        ends,
        router(),
        place().await,
        std::future::pending::<()>(),
    ));
    near
}

/// All that is sent for a request, whose connection is then closed.
async fn sent(request: &str) -> String {
    let mut near = connect().await;
    // A request that is too large is refused before it is sent.
    let _ = near.write_all(request.as_bytes()).await;
    let mut all = Vec::new();
    near.read_to_end(&mut all).await.unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

#[tokio::test(start_paused = true)]
async fn requests_are_answered_or_refused() {
    let long = "x".repeat(20 << 10);
    let cases = [
        ("GET /plain?q=a%20b HTTP/1.1", "", 200, "a b"),
        ("HEAD /plain HTTP/1.1", "", 200, ""),
        ("POST /plain HTTP/1.1", "", 405, "This path"),
        ("GET /nothing HTTP/1.1", "", 404, "There is nothing"),
        ("GET /../plain HTTP/1.1", "", 404, "There is nothing"),
        (
            "POST /echo HTTP/1.1\r\nContent-Length: 3",
            "abc",
            200,
            "abc",
        ),
        (
            "POST /echo HTTP/1.1\r\nContent-Length: 11",
            "01234567890",
            413,
            "too large",
        ),
        (
            "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked",
            "b\r\n01234567890\r\n0\r\n\r\n",
            413,
            "too large",
        ),
        (
            "POST /echo HTTP/1.1\r\nContent-Length: 3",
            "a",
            408,
            "in time",
        ),
        ("nonsense", "", 400, ""),
        ("GET /plain HTTP/1.1\r\nbad header", "", 400, ""),
        ("POST /echo HTTP/1.1\r\nContent-Length: -1", "", 400, ""),
        (&format!("GET /plain HTTP/1.1\r\nx: {long}"), "", 431, ""),
        (&format!("GET /{long} HTTP/1.1"), "", 431, ""),
    ];
    for (head, body, status, text) in cases {
        let reply = sent(&format!("{head}\r\nConnection: close\r\n\r\n{body}")).await;
        let head_shown: String = head.chars().take(60).collect();
        assert!(
            reply.starts_with(&format!("HTTP/1.1 {status} ")),
            "{head_shown}: {reply}"
        );
        assert!(reply.contains(text), "{head_shown}: {reply}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_reply_has_the_headers_that_protect_it() {
    let reply = sent("GET /plain HTTP/1.1\r\nConnection: close\r\n\r\n").await;
    for header in [
        "x-content-type-options: nosniff",
        "x-frame-options: DENY",
        "referrer-policy: no-referrer",
        "cross-origin-resource-policy: same-origin",
        "cache-control: no-store",
    ] {
        assert!(reply.contains(header), "{header}: {reply}");
    }
}

/// Ends if the server closes the connection in time.
async fn closed(near: &mut DuplexStream) {
    let mut all = Vec::new();
    let end = near.read_to_end(&mut all);
    let end = tokio::time::timeout(Duration::from_secs(120), end).await;
    assert!(end.is_ok(), "the connection stays open");
}

#[tokio::test(start_paused = true)]
async fn slow_clients_are_left() {
    // A head that never ends, byte by byte.
    let mut near = connect().await;
    for byte in b"GET /plain HTTP/1.1\r\nx: " {
        near.write_all(&[*byte]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    closed(&mut near).await;
    // Nothing at all, and nothing after a request.
    closed(&mut connect().await).await;
    let mut near = connect().await;
    near.write_all(b"GET /plain HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    closed(&mut near).await;
    // A reply that is not read.
    let mut near = connect().await;
    near.write_all(b"GET /large HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut all = Vec::new();
    near.read_to_end(&mut all).await.unwrap();
    assert!(all.len() < 1 << 20, "{}", all.len());
    // One that is read so slowly that it would take an hour.
    let mut near = connect().await;
    near.write_all(b"GET /large HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    let began = tokio::time::Instant::now();
    let mut read = 0;
    let mut some = [0; 4 << 10];
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        match near.read(&mut some).await {
            Ok(0) | Err(_) => break,
            Ok(bytes) => read += bytes,
        }
    }
    assert!(read < 1 << 20, "{read}");
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_makes_room_for_another() {
    let places = Places::new(2, 3);
    let address = ENDS.parse().unwrap();
    let ends = Ends {
        client: address,
        server: address,
        is_secure: false,
    };
    let mut clients = Vec::new();
    // Half a head, a body that does not come, and one that is answered.
    for request in [
        "GET /plain HTTP/1.1\r\nx: ",
        "POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\n",
        "GET /plain?q=there HTTP/1.1\r\nConnection: close\r\n\r\n",
    ] {
        let place = places.enter(address.ip()).await.unwrap();
        let (mut near, far) = duplex(4 << 10);
        let stop = std::future::pending::<()>();
        tokio::spawn(serve_connection(far, ends, router(), place, stop));
        near.write_all(request.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        clients.push(near);
    }
    let began = tokio::time::Instant::now();
    let mut replies = Vec::new();
    for client in &mut clients {
        let mut all = String::new();
        let _ = client.read_to_string(&mut all).await;
        replies.push((
            all.contains("there"),
            began.elapsed() < Duration::from_secs(5),
        ));
    }
    // The first one made room; the second one had the time that a body has.
    assert_eq!(replies, [(false, true), (false, false), (true, false)]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_with_the_server() {
    let (mut near, far) = duplex(4 << 10);
    let address = ENDS.parse().unwrap();
    let ends = Ends {
        client: address,
        server: address,
        is_secure: false,
    };
    let stop = tokio::time::sleep(Duration::from_secs(2));
    let served = tokio::spawn(serve_connection(far, ends, router(), place().await, stop));
    near.write_all(b"GET /never HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), served).await;
    assert!(ended.is_ok());
}
