//! Messages to the service manager that started the server, as `sd_notify` of systemd sends them: that it is ready, what it does,
//! that it is alive. Without one, or with a unit of another type than `notify`, there are none.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use crate::state::Server;

/// A manager that does not read for so long is not waited for.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

fn notify(message: &str) {
    if let Some(socket) = env::var_os("NOTIFY_SOCKET") {
        // The manager does not listen, or has ended: the server goes on.
        let _ = send(&socket, message);
    }
}

/// Sends one message to a socket; a name that begins with `@` is not in the file system.
fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    socket.send_to_addr(message.as_bytes(), &address).map(drop)
}

/// One line about what the server does, which `systemctl status` shows.
pub fn status(text: &str) {
    notify(&format!("STATUS={text}"));
}

/// The server accepts connections.
pub fn ready(port: u16) {
    notify(&format!(
        "READY=1\nSTATUS=Waiting for connections on port {port}"
    ));
}

/// The server shuts down.
pub fn stopping() {
    notify("STOPPING=1\nSTATUS=Shutting down");
}

/// The interval of keep-alive messages that the manager expects, if it does: half of the time after which it would kill it.
fn watchdog_period(micros: Option<&str>, process: Option<&str>) -> Option<Duration> {
    let own = std::process::id();
    let is_meant = process.is_none_or(|text| text.parse() == Ok(own));
    let micros: u64 = micros?.parse().ok()?;
    (is_meant && micros > 0).then(|| Duration::from_micros(micros.div_ceil(2)))
}

/// Reports to the manager that the server is alive, if it requires that (`WatchdogSec=`), until the server stops: only while the
/// pool that serves the connections runs what it is given.
pub fn keep_alive(server: &Arc<Server>) {
    let variable = |name| env::var(name).ok();
    let (micros, process) = (variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
    let Some(period) = watchdog_period(micros.as_deref(), process.as_deref()) else {
        return;
    };
    let server = server.clone();
    tokio::spawn(async move {
        let mut stop = server.stop_signal();
        loop {
            // The pool serves sockets. Without handles for one the server is alive all the same, and busy.
            match UnixStream::pair() {
                Ok((stream, _)) => {
                    let alive = |_socket| async { notify("WATCHDOG=1") };
                    let _ = server.execution.executor.pool.spawn(stream, alive);
                }
                Err(_) => notify("WATCHDOG=1"),
            }
            tokio::select! {
                // The manager has a time limit of its own for the shutdown.
                _ = stop.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(period) => {}
            }
        }
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn messages_reach_both_kinds_of_sockets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("frond-test-{}", std::process::id());
        let unnamed = SocketAddr::from_abstract_name(&name).unwrap();
        let sockets = [
            (path.clone().into_os_string(), UnixDatagram::bind(&path)),
            (format!("@{name}").into(), UnixDatagram::bind_addr(&unnamed)),
        ];
        for (address, socket) in sockets {
            send(&address, "READY=1").unwrap();
            let mut buffer = [0; 64];
            let len = socket.unwrap().recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], b"READY=1");
        }
    }

    #[test]
    fn a_manager_that_does_not_read_or_is_not_there_stops_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        assert!(send(path.as_os_str(), "READY=1").is_err());
        let _socket = UnixDatagram::bind(&path).unwrap();
        let sent = (0..100_000).take_while(|_| send(path.as_os_str(), "x").is_ok());
        assert!(sent.count() < 100_000);
    }

    #[test]
    fn periods_of_the_watchdog() {
        let own = std::process::id().to_string();
        for (micros, process, expected) in [
            (None, None, None),
            (Some("30000000"), None, Some(15)),
            (Some("30000000"), Some(own.as_str()), Some(15)),
            (Some("30000000"), Some("0"), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
        ] {
            let expected = expected.map(Duration::from_secs);
            assert_eq!(watchdog_period(micros, process), expected, "{micros:?}");
        }
    }
}
