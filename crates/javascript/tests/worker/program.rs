//! A worker for tests: it runs functions until its parent closes the socket.

fn main() -> std::process::ExitCode {
    frond_javascript::run_worker()
}
