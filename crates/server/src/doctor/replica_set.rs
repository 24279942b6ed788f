//! The replica set of a running server: whether its members answer, agree, and can elect a primary.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use frond_bson::{Doc, Value, doc};
use frond_client::{Client, Error, Result, Uri};
use frond_replset::SetConfig;

use super::finding::Finding;
use crate::host::clock::now_ms;
use crate::peers::login_uris;
use crate::settings::Settings;

const AREA: &str = "replica set";

/// The limit of connecting, and of an answer.
const WAIT: Duration = Duration::from_secs(5);

/// Clocks that differ by less are in step. Lags and ages are shown in seconds.
const CLOCK_DIFFERENCE_MAX_MS: i64 = 1000;

/// The way to the members of a set.
pub enum Way<'a> {
    /// As a member that has these settings: over its port, with its key file or certificate.
    Member(&'a Settings),
    /// A connection string. All members are reached with its login.
    Uri(&'a str),
}

impl Way<'_> {
    /// Connects to a member, or to the server that the way begins at.
    fn connect(&self, host: Option<&str>) -> Result<Client> {
        let stop = Arc::new(AtomicBool::new(false));
        match self {
            Way::Member(settings) => {
                let own = format!("127.0.0.1:{}", settings.port);
                let mut last = Err(Error::Uri("there is no login for members".to_owned()));
                // One for each key of the key file.
                for mut uri in login_uris(host.unwrap_or(&own), settings)? {
                    uri.connect_timeout = Some(WAIT);
                    uri.socket_timeout = Some(WAIT);
                    last = Client::connect(&uri, stop.clone());
                    if !matches!(last, Err(Error::Server { .. })) {
                        break;
                    }
                }
                last
            }
            Way::Uri(text) => {
                let mut uri: Uri = text.parse()?;
                uri.connect_timeout = Some(WAIT);
                uri.socket_timeout = Some(WAIT);
                if let Some(host) = host {
                    let of_host: Uri = format!("mongodb://{host}/").parse()?;
                    uri.address = of_host.address;
                    uri.others.clear();
                    uri.replica_set = None;
                }
                Client::connect(&uri, stop)
            }
        }
    }
}

/// The answer of a member.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    /// The name of its set; empty if it is in none.
    set: String,
    /// `PRIMARY`, `SECONDARY`, or another one.
    state: &'static str,
    version: String,
    /// Its clock minus that of this machine, in milliseconds.
    clock_ms: i64,
}

/// A member of the configuration.
#[derive(Clone, Debug)]
struct Seen {
    host: String,
    is_voter: bool,
    /// Whether the host is an address of the own machine, seen from here.
    is_local: bool,
    answer: std::result::Result<Answer, String>,
}

/// Checks the set that a server belongs to.
pub fn check(way: &Way<'_>) -> Vec<Finding> {
    let config = way
        .connect(None)
        .and_then(|mut client| client.command("admin", &doc! {"replSetGetConfig": 1}));
    let config = match config {
        Ok(reply) => reply.get_doc("config").map(SetConfig::parse),
        Err(error) => {
            return vec![Finding::warning(
                AREA,
                format!("not checked: {error}"),
                "start the server and initiate the set; with authorization, --uri takes a user with the role clusterMonitor",
            )];
        }
    };
    let Some(Ok(config)) = config else {
        return vec![Finding::problem(
            AREA,
            "its configuration cannot be read",
            "compare the versions of this program and of the server",
        )];
    };
    let ask = |host: &str| ask(way, host).map_err(|error| error.to_string());
    let members = config.members.iter().map(|member| Seen {
        host: member.host.clone(),
        is_voter: member.is_voter,
        is_local: is_local(&member.host),
        answer: ask(&member.host),
    });
    judge(&config.name, &members.collect::<Vec<_>>())
}

fn ask(way: &Way<'_>, host: &str) -> Result<Answer> {
    let mut client = way.connect(Some(host))?;
    let (hello, took) = client.timed_command("admin", &doc! {"hello": 1})?;
    let here = now_ms().saturating_sub(i64::try_from(took.as_millis() / 2).unwrap_or(0));
    let there = match hello.get("localTime") {
        Some(Value::DateTime(ms)) => ms,
        _ => here,
    };
    let about = client.command("admin", &doc! {"buildInfo": 1})?;
    Ok(Answer {
        set: hello.get_str("setName").unwrap_or_default().to_owned(),
        state: state(&hello),
        version: version(&about),
        clock_ms: there.saturating_sub(here),
    })
}

fn state(hello: &Doc) -> &'static str {
    let is = |field| hello.get_bool(field) == Some(true);
    match (is("isWritablePrimary"), is("secondary")) {
        (true, _) => "PRIMARY",
        (_, true) => "SECONDARY",
        _ => "neither primary nor secondary",
    }
}

fn version(about: &Doc) -> String {
    let own = about.get_doc("frond");
    let own = own.and_then(|own| own.get_str("version"));
    own.or(about.get_str("version"))
        .unwrap_or_default()
        .to_owned()
}

/// Whether a host leads to the own machine.
fn is_local(host: &str) -> bool {
    let addresses = host.to_socket_addrs();
    let mut addresses = addresses.into_iter().flatten().map(|address| address.ip());
    addresses.any(|ip: IpAddr| ip.is_loopback())
}

/// The findings about a set.
fn judge(name: &str, members: &[Seen]) -> Vec<Finding> {
    let mut found = Vec::new();
    let voters = members.iter().filter(|member| member.is_voter).count();
    let answers: Vec<(&Seen, &Answer)> = (members.iter())
        .filter_map(|member| Some((member, member.answer.as_ref().ok()?)))
        .filter(|(_, answer)| answer.set == name)
        .collect();
    for member in members {
        let (what, advice) = match &member.answer {
            Err(error) => (
                format!("{} does not answer: {error}", member.host),
                "start it, and check the network, its --bind_ip and its key file or certificate",
            ),
            Ok(answer) if answer.set.is_empty() => (
                format!("{} is in no replica set", member.host),
                "start it with --replSet; a new member joins within seconds",
            ),
            Ok(answer) if answer.set != name => (
                format!("{} is in the replica set {}", member.host, answer.set),
                "correct the host in the configuration (rs.reconfig), or the port of the server",
            ),
            Ok(answer) if !["PRIMARY", "SECONDARY"].contains(&answer.state) => (
                format!("{} is {}", member.host, answer.state),
                "rs.status() and its log say what it does",
            ),
            Ok(_) => continue,
        };
        found.push(Finding::warning(AREA, what, advice));
    }
    let voting = answers.iter().filter(|(member, _)| member.is_voter).count();
    let primary = answers
        .iter()
        .find(|(_, answer)| answer.state == "PRIMARY")
        .map(|(member, _)| &*member.host);
    match primary {
        Some(host) => found.push(Finding::good(
            AREA,
            format!(
                "{name} has {} members and {voters} votes; the primary is {host}",
                members.len()
            ),
        )),
        None if voting <= voters / 2 => found.push(Finding::problem(
            AREA,
            format!("{voting} of {voters} voters answer, which is no majority: {name} has no primary and takes no writes"),
            "start the others, or repair the network (docs/replica-set.md)",
        )),
        None => found.push(Finding::problem(
            AREA,
            format!("{name} has no primary, although {voting} of {voters} voters answer"),
            "the logs of the members say why elections fail: look for \"Starting an election\"",
        )),
    }
    found.extend(votes(voters));
    found.extend(hosts(members));
    found.extend(versions(&answers));
    found.extend(clocks(&answers));
    found
}

fn votes(voters: usize) -> Option<Finding> {
    let what = match voters {
        1 => {
            return Some(Finding::note(
                AREA,
                "one voter: nothing takes over when it fails",
                "three members survive the loss of one",
            ));
        }
        voters if voters % 2 == 0 => format!(
            "{voters} voters survive the loss of {}, as {} do",
            voters / 2 - 1,
            voters - 1
        ),
        _ => return None,
    };
    Some(Finding::warning(
        AREA,
        what,
        "add a voter, or set votes: 0 and priority: 0 for one member",
    ))
}

fn hosts(members: &[Seen]) -> Option<Finding> {
    let local: Vec<&str> = (members.iter())
        .filter(|member| member.is_local)
        .map(|member| &*member.host)
        .collect();
    if local.is_empty() || members.len() == 1 {
        return None;
    }
    if local.len() == members.len() {
        return Some(Finding::note(
            AREA,
            "all members are on this machine",
            "for tests only: members on machines of their own survive the loss of one",
        ));
    }
    Some(Finding::problem(
        AREA,
        format!(
            "the host {} leads to the own machine, and other members are elsewhere",
            local.join(", ")
        ),
        "name it as all members and clients reach it (rs.reconfig), and see /etc/hosts for names that lead to 127.0.0.1 or 127.0.1.1",
    ))
}

fn versions(answers: &[(&Seen, &Answer)]) -> Option<Finding> {
    let mut shown: Vec<String> = Vec::new();
    let mut versions: Vec<&str> = Vec::new();
    for (member, answer) in answers {
        if !versions.contains(&&*answer.version) {
            versions.push(&answer.version);
            shown.push(format!("{} has {}", member.host, answer.version));
        }
    }
    (versions.len() > 1).then(|| {
        let what = format!("the versions of the members differ: {}", shown.join(", "));
        Finding::warning(AREA, what, "finish the upgrade, the primary last")
    })
}

fn clocks(answers: &[(&Seen, &Answer)]) -> Option<Finding> {
    let first = answers.iter().min_by_key(|(_, answer)| answer.clock_ms)?;
    let last = answers
        .iter()
        .rev()
        .max_by_key(|(_, answer)| answer.clock_ms)?;
    let apart = last.1.clock_ms.saturating_sub(first.1.clock_ms);
    (apart > CLOCK_DIFFERENCE_MAX_MS).then(|| {
        let seconds = apart as f64 / 1000.0;
        let what = format!(
            "the clock of {} is {seconds:.1} s ahead of that of {}",
            last.0.host, first.0.host
        );
        Finding::warning(
            AREA,
            what,
            "keep the clocks in step (chrony, systemd-timesyncd): lags and times of writes are shown wrong, and TTL indexes expire early or late",
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::finding::Level;
    use super::*;

    fn answer(state: &'static str) -> Answer {
        Answer {
            set: "rs0".to_owned(),
            state,
            version: "1.0".to_owned(),
            clock_ms: 0,
        }
    }

    fn seen(host: &str, answer: std::result::Result<Answer, &str>) -> Seen {
        Seen {
            host: host.to_owned(),
            is_voter: true,
            is_local: false,
            answer: answer.map_err(str::to_owned),
        }
    }

    fn healthy() -> Vec<Seen> {
        vec![
            seen("a:1", Ok(answer("PRIMARY"))),
            seen("b:1", Ok(answer("SECONDARY"))),
            seen("c:1", Ok(answer("SECONDARY"))),
        ]
    }

    #[test]
    fn a_healthy_set_has_one_finding() {
        let found = judge("rs0", &healthy());
        let [only] = &*found else { panic!("{found:?}") };
        assert_eq!(only.level, Level::Good);
        assert_eq!(
            only.what,
            "rs0 has 3 members and 3 votes; the primary is a:1"
        );
    }

    /// A change of the healthy set, and the finding that it leads to.
    type Case = (fn(&mut Vec<Seen>), Level, &'static str);

    #[test]
    fn what_is_wrong_is_found() {
        let cases: &[Case] = &[
            (
                |set| set[1].answer = Err("refused".to_owned()),
                Level::Warning,
                "b:1 does not answer: refused",
            ),
            (
                |set| {
                    set[0].answer = Err("refused".to_owned());
                    set[2].answer = Err("refused".to_owned());
                },
                Level::Problem,
                "1 of 3 voters answer, which is no majority: rs0 has no primary and takes no writes",
            ),
            (
                |set| set[0].answer = Ok(answer("SECONDARY")),
                Level::Problem,
                "rs0 has no primary, although 3 of 3 voters answer",
            ),
            (
                |set| set[2].answer = Ok(answer("neither primary nor secondary")),
                Level::Warning,
                "c:1 is neither primary nor secondary",
            ),
            (
                |set| set[2].answer.as_mut().unwrap().set = String::new(),
                Level::Warning,
                "c:1 is in no replica set",
            ),
            (
                |set| set[2].answer.as_mut().unwrap().set = "rs1".to_owned(),
                Level::Warning,
                "c:1 is in the replica set rs1",
            ),
            (
                |set| set[1].answer.as_mut().unwrap().version = "1.1".to_owned(),
                Level::Warning,
                "the versions of the members differ: a:1 has 1.0, b:1 has 1.1",
            ),
            (
                |set| set[0].answer.as_mut().unwrap().clock_ms = 2500,
                Level::Warning,
                "the clock of a:1 is 2.5 s ahead of that of b:1",
            ),
            (
                |set| set.push(seen("d:1", Ok(answer("SECONDARY")))),
                Level::Warning,
                "4 voters survive the loss of 1, as 3 do",
            ),
            (
                |set| set.truncate(1),
                Level::Note,
                "one voter: nothing takes over when it fails",
            ),
            (
                |set| set[1].is_local = true,
                Level::Problem,
                "the host b:1 leads to the own machine, and other members are elsewhere",
            ),
            (
                |set| set.iter_mut().for_each(|member| member.is_local = true),
                Level::Note,
                "all members are on this machine",
            ),
        ];
        for (change, level, what) in cases {
            let mut set = healthy();
            change(&mut set);
            let found = judge("rs0", &set);
            let is_it = |finding: &&Finding| finding.what == *what && finding.level == *level;
            assert!(found.iter().any(|one| is_it(&one)), "{what}: {found:?}");
        }
    }

    #[test]
    fn members_without_votes_do_not_count() {
        let mut set = healthy();
        let mut fourth = seen("d:1", Err("away"));
        fourth.is_voter = false;
        set.push(fourth);
        let found = judge("rs0", &set);
        assert!(
            !found.iter().any(|one| one.what.contains("survive")),
            "{found:?}"
        );
    }

    #[test]
    fn loopback_hosts_are_local() {
        assert!(is_local("127.0.0.1:27017"));
        assert!(is_local("[::1]:27017"));
        assert!(!is_local("192.0.2.7:27017"));
        assert!(!is_local("no host"));
    }

    #[test]
    fn a_server_that_does_not_answer_is_no_problem_of_the_machine() {
        let found = check(&Way::Uri("mongodb://127.0.0.1:1/"));
        assert_eq!(found[0].level, Level::Warning);
        assert!(found[0].what.starts_with("not checked: "), "{found:?}");
    }
}
