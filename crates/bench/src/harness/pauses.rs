//! Stops the processes of the servers whose turn it is not (`--pause`), so that their background work neither disturbs the others
//! nor goes on for free.

use std::fs;

use frond_client::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};

/// The servers of a run, in the order of their turns. All of them go on when this is dropped.
#[derive(Debug, Default)]
pub struct Pauses {
    /// The process of each server, and none of those that never stop. Empty without `--pause`.
    servers: Vec<Option<Pid>>,
}

impl Pauses {
    /// Of servers on this machine, by their processes.
    pub fn for_servers(servers: impl IntoIterator<Item = Option<u32>>) -> Pauses {
        let pid = |number: Option<u32>| Pid::from_raw(i32::try_from(number?).ok()?);
        Pauses {
            servers: servers.into_iter().map(pid).collect(),
        }
    }

    /// Lets one server run, and no other.
    ///
    /// # Errors
    /// If this program may not stop one of them.
    pub fn let_run(&self, turn: usize) -> Result<()> {
        let others = (self.servers.iter().enumerate()).filter(|(server, _)| *server != turn);
        for (_, server) in others {
            signal(*server, Signal::STOP)?;
        }
        signal(self.servers.get(turn).copied().flatten(), Signal::CONT)
    }

    /// Lets all servers run.
    pub fn let_all_run(&self) {
        for server in &self.servers {
            // It may have ended.
            let _ = signal(*server, Signal::CONT);
        }
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        self.let_all_run();
    }
}

/// Sends a signal to a process and to those that it has started.
fn signal(server: Option<Pid>, signal: Signal) -> Result<()> {
    let Some(server) = server else {
        return Ok(());
    };
    let sent = kill_process(server, signal);
    sent.map_err(|error| Error::Io(format!("pausing process {server}"), error.into()))?;
    for child in children(server) {
        // A worker may end at any time.
        let _ = kill_process(child, signal);
    }
    Ok(())
}

/// The processes that a process has started itself, such as the backends of PostgreSQL.
fn children(parent: Pid) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let names = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pids = names.filter_map(|name| Pid::from_raw(name.parse().ok()?));
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// The process that has started another one, by their numbers.
pub fn parent_process(child: u32) -> Option<u32> {
    let child = Pid::from_raw(i32::try_from(child).ok()?)?;
    u32::try_from(parent_of(child)?.as_raw_nonzero().get()).ok()
}

fn parent_of(child: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.as_raw_nonzero())).ok()?;
    // The name of the program, in parentheses, may hold anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    Pid::from_raw(fields.split(' ').nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> Child {
        (Command::new("sleep").arg("60").spawn()).expect("sleep is a program of every system")
    }

    fn state_of(process: &Child) -> String {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap_or_default();
        let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
        fields.chars().take(1).collect()
    }

    /// A signal takes effect when the process is scheduled.
    fn wait_for(process: &Child, states: [&str; 2]) {
        while !states.contains(&state_of(process).as_str()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_server_runs_at_a_time_and_all_in_the_end() {
        let mut servers = [sleeper(), sleeper()];
        let pauses = Pauses::for_servers(servers.iter().map(|server| Some(server.id())));
        for turn in [0, 1, 0] {
            pauses.let_run(turn).expect("they are our own");
            let [first, second] = &servers;
            let (runs, stops) = if turn == 0 {
                (first, second)
            } else {
                (second, first)
            };
            wait_for(stops, ["T", "T"]);
            wait_for(runs, ["S", "R"]);
        }
        drop(pauses);
        for server in &mut servers {
            wait_for(server, ["S", "R"]);
            server.kill().and_then(|()| server.wait()).expect("it ends");
        }
    }

    #[test]
    fn a_server_that_is_gone_is_an_error() {
        let mut server = sleeper();
        server.kill().and_then(|()| server.wait()).expect("it ends");
        let pauses = Pauses::for_servers([Some(server.id()), None]);
        let error = pauses.let_run(1).expect_err("there is no such process");
        assert!(error.to_string().contains("pausing process"), "{error}");
        Pauses::default().let_run(3).expect("nothing is paused");
    }

    #[test]
    fn the_parent_of_a_process_is_found() {
        let mut server = sleeper();
        assert_eq!(parent_process(server.id()), Some(std::process::id()));
        server.kill().and_then(|()| server.wait()).expect("it ends");
    }
}
