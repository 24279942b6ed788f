//! The memory of the system for the sockets of clients: what has arrived and is not read, and what is sent and not confirmed.
//!
//! A control group counts it as memory of the process, and the system lets each socket have megabytes. With little memory, sockets
//! get buffers of a fixed size instead. Those that are full, because a request waits for memory or a client does not read, are counted
//! in the memory budget of the process, in which the page cache gives way to them; when they are too many, the newest are closed.

use std::os::fd::AsFd;
use std::sync::OnceLock;

use frond_store::{MemoryBudget, MemoryUse, Reservation};
use socket2::SockRef;

use crate::host::memory::usable_bytes;

/// With less usable memory than this, sockets have buffers of a fixed size.
const PLENTY_BYTES: u64 = 4 << 30;

/// A buffer has this part of the usable memory, within bounds.
const BUFFER_SHARE: u64 = 4096;

/// With smaller buffers a large message takes many steps. On the loopback device, whose packets have 64 KiB, those of 32 KiB send 1 MiB/s.
const BUFFER_MIN: u64 = 128 << 10;

const BUFFER_MAX: u64 = 256 << 10;

/// The part of the buffer for what is sent that may be full of what is not on its way to the client, because it does not read.
const UNSENT_SHARE: usize = 2;

/// The system takes up to twice the size that it is given, because it counts its own structures.
const SYSTEM_COST: usize = 2;

/// A socket that is full counts as this much, if the system chooses the size of its buffers.
const CHOSEN_BYTES: usize = 1 << 20;

/// Sockets that are full may take this part of the usable memory.
const SHARE: u64 = 8;

/// While they take this part, clients that do not read lose their connections soon.
const SHORT_SHARE: u64 = 16;

/// The sizes of the buffers of sockets, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffers {
    /// The buffer for what arrives.
    receive: usize,
    /// The buffer for what is sent.
    send: usize,
    /// The part of that for what is not on its way yet.
    unsent: usize,
}

impl SocketBuffers {
    /// Those with so much usable memory; `None` to let the system choose.
    fn with(usable: u64) -> Option<SocketBuffers> {
        if usable >= PLENTY_BYTES {
            return None;
        }
        let bytes = (usable / BUFFER_SHARE).clamp(BUFFER_MIN, BUFFER_MAX);
        let bytes = usize::try_from(bytes).ok()?;
        Some(SocketBuffers {
            receive: bytes,
            send: bytes,
            unsent: bytes / UNSENT_SHARE,
        })
    }

    /// Those of this process.
    pub fn of_this_process() -> Option<SocketBuffers> {
        static CHOSEN: OnceLock<Option<SocketBuffers>> = OnceLock::new();
        *CHOSEN.get_or_init(|| SocketBuffers::with(usable_bytes()))
    }

    /// Sets them. Connections have those of the socket that listens, and the scale of their windows follows from its size. A socket
    /// that does not support this keeps its own.
    pub fn set(self, socket: &impl AsFd) {
        let socket = SockRef::from(socket);
        let _ = socket.set_recv_buffer_size(self.receive);
        let _ = socket.set_send_buffer_size(self.send);
        // A client that reads fast has no less on its way for it.
        let _ = socket.set_tcp_notsent_lowat(u32::try_from(self.unsent).unwrap_or(u32::MAX));
    }
}

/// The direction in which a socket is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// A message of this size in bytes arrives, and the server does not read it yet.
    Arrived(usize),
    /// The client does not read what was sent.
    Sent,
    /// Both, because the client sends on without reading.
    Both,
}

/// Counts sockets that are full. A handle; clones count together.
#[derive(Clone)]
pub struct SocketMemory {
    memory: MemoryBudget,
    /// The most that the system holds for a socket in each direction.
    arrived: usize,
    sent: usize,
    usable: u64,
}

impl SocketMemory {
    /// Those of this process, counted in its budget.
    pub fn new(memory: &MemoryBudget) -> SocketMemory {
        SocketMemory::with(memory, usable_bytes())
    }

    /// Those of a process with so much usable memory.
    pub fn with(memory: &MemoryBudget, usable: u64) -> SocketMemory {
        let buffers = SocketBuffers::with(usable);
        SocketMemory {
            memory: memory.clone(),
            arrived: buffers.map_or(CHOSEN_BYTES, |one| one.receive) * SYSTEM_COST,
            sent: buffers.map_or(CHOSEN_BYTES, |one| one.unsent) * SYSTEM_COST,
            usable,
        }
    }

    /// Counts a socket that is full. `None` if there are too many: its connection has to be closed.
    pub fn hold(&self, full: Full) -> Option<Reservation> {
        let bytes = match full {
            Full::Arrived(bytes) => bytes.saturating_mul(SYSTEM_COST).min(self.arrived),
            Full::Sent => self.sent,
            Full::Both => self.arrived + self.sent,
        };
        let reserved = self.memory.reserve(MemoryUse::Sockets, bytes);
        (self.memory.used(MemoryUse::Sockets) <= self.usable / SHARE).then_some(reserved)
    }

    /// Whether they hold much.
    pub fn is_short(&self) -> bool {
        self.memory.used(MemoryUse::Sockets) > self.usable / SHORT_SHARE
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn sockets_have_fixed_buffers_where_memory_is_little() {
        let with = |mib: u64| SocketBuffers::with(mib << 20).map(|one| one.receive >> 10);
        assert_eq!(with(64), Some(128));
        assert_eq!(with(512), Some(128));
        assert_eq!(with(768), Some(192));
        assert_eq!(with(2048), Some(256));
        assert_eq!(with(4096), None);
    }

    #[test]
    fn connections_have_the_buffers_of_the_socket_that_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let small = SocketBuffers {
            receive: 20 << 10,
            send: 20 << 10,
            unsent: 10 << 10,
        };
        small.set(&listener);
        let address = listener.local_addr().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let accepted = SockRef::from(&accepted);
        let set = small.receive * SYSTEM_COST;
        assert_eq!(accepted.recv_buffer_size().unwrap(), set);
        assert_eq!(accepted.send_buffer_size().unwrap(), set);
        assert_eq!(accepted.tcp_notsent_lowat().unwrap(), 10 << 10);
    }

    #[test]
    fn the_newest_socket_that_is_full_is_refused() {
        let memory = MemoryBudget::for_clients(100 << 20);
        let sockets = SocketMemory::with(&memory, 256 << 20);
        let mut full = Vec::new();
        while let Some(one) = sockets.hold(Full::Arrived(15 << 20)) {
            assert_eq!(sockets.is_short(), full.len() >= 64);
            full.push(one);
        }
        assert_eq!(full.len(), 128, "an eighth of the memory");
        assert_eq!(memory.used(MemoryUse::Sockets), 32 << 20);
        full.pop();
        assert!(sockets.hold(Full::Sent).is_some());
        assert!(sockets.hold(Full::Both).is_none());
        assert!(sockets.hold(Full::Arrived(1 << 10)).is_some());
    }
}
