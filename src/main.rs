//! The `frond` binary: one command line over the server and the benchmarks.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    println!("frond {}", env!("CARGO_PKG_VERSION"));
}
