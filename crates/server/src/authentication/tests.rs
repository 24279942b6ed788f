#![allow(clippy::unwrap_used)]

mod others;

use frond_auth::scram::{ClientPassword, Credential, Mechanism};
use frond_auth::{LoginMechanism, UserName, password_digest};
use frond_bson::{Doc, DocBuf, Value, doc};

use super::*;
use crate::connection::Peer;
use crate::internal_collections::replace_one;
use crate::settings::Settings;
use crate::testing::TestServer;

const PASSWORD: &str = "pencil";

/// Stores a user with a password for these mechanisms, and returns the document.
fn add_user(server: &TestServer, name: &UserName, mechanisms: &[LoginMechanism]) -> DocBuf {
    let mut credentials = DocBuf::new();
    for mechanism in mechanisms {
        match mechanism {
            LoginMechanism::Scram(scram) => {
                let credential = Credential::new(*scram, &name.name, PASSWORD, 5000).unwrap();
                credentials.push(mechanism.name(), &credential.to_doc());
            }
            LoginMechanism::MongoCr => {
                let digest = password_digest(&name.name, PASSWORD);
                credentials.push(mechanism.name(), digest.as_str());
            }
            LoginMechanism::X509 => credentials.push("external", true),
        }
    }
    let id = format!("{}.{}", name.db, name.name);
    let user_id: [u8; 16] = rand::random();
    let user_id = Value::Binary {
        subtype: 4,
        bytes: &user_id,
    };
    let document = doc! {
        "_id": &*id, "userId": user_id, "user": &*name.name, "db": &*name.db,
        "credentials": &credentials, "roles": [],
    };
    replace_one(
        &server.server.store,
        ("admin", "system.users"),
        &id,
        &document,
    )
    .unwrap();
    document
}

fn scram(mechanism: Mechanism) -> LoginMechanism {
    LoginMechanism::Scram(mechanism)
}

/// A user `ann@admin` with credentials for both mechanisms of SCRAM.
fn with_ann(change: impl FnOnce(&mut Settings)) -> (TestServer, UserName) {
    let server = TestServer::with(change);
    let ann = UserName::new("ann", "admin");
    add_user(&server, &ann, &Mechanism::ALL.map(scram));
    (server, ann)
}

fn payload(reply: &Doc) -> Vec<u8> {
    match reply.get("payload") {
        Some(Value::Binary { subtype: 0, bytes }) => bytes.to_vec(),
        other => panic!("{other:?} in {reply:?}"),
    }
}

fn binary(text: &str) -> Value<'_> {
    Value::Binary {
        subtype: 0,
        bytes: text.as_bytes(),
    }
}

/// Logs in by SCRAM. Returns the reply to the client's proof.
fn log_in(
    server: &mut TestServer,
    mechanism: Mechanism,
    user: &UserName,
    password: &str,
) -> DocBuf {
    let password = ClientPassword::new(mechanism, &user.name, password).unwrap();
    let (mut client, first) = password.start().unwrap();
    let reply = server.run(
        &user.db,
        doc! {
            "saslStart": 1, "mechanism": mechanism.name(), "payload": binary(&first), "autoAuthorize": 1,
            "options": {"skipEmptyExchange": true},
        },
    );
    assert_eq!(
        (reply.get_i32("conversationId"), reply.get_bool("done")),
        (Some(1), Some(false))
    );
    let last = client.answer(&payload(&reply)).unwrap();
    let command = doc! {"saslContinue": 1, "conversationId": 1, "payload": binary(&last)};
    let reply = server.reply(&user.db, command);
    if reply.get_f64("ok") == Some(1.0) {
        assert_eq!(reply.get_bool("done"), Some(true));
        client.verify(&payload(&reply)).unwrap();
    }
    reply
}

fn is_in(server: &mut TestServer) -> Option<UserName> {
    let TestServer {
        server: of,
        connection,
        state,
        ..
    } = server;
    let user = current_user(of, connection, state).unwrap();
    let shown = connection.identity.lock().clone();
    let name = |user: Option<Arc<User>>| user.map(|user| user.name.clone());
    assert_eq!(name(shown), name(user.clone()));
    name(user)
}

const FAILED: (Option<i32>, Option<&str>) = (Some(18), Some("Authentication failed."));

fn failure(reply: &DocBuf) -> (Option<i32>, Option<&str>) {
    (reply.get_i32("code"), reply.get_str("errmsg"))
}

fn log_text(server: &TestServer) -> String {
    std::fs::read_to_string(server.server.settings.log_path.as_ref().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_logs_in_and_out() {
    let (mut server, ann) = with_ann(|settings| settings.quiet = false);
    for mechanism in Mechanism::ALL {
        assert_eq!(is_in(&mut server), None);
        let reply = log_in(&mut server, mechanism, &ann, PASSWORD);
        assert_eq!(reply.get_f64("ok"), Some(1.0), "{reply:?}");
        assert_eq!(is_in(&mut server), Some(ann.clone()));
        // Only a logout on the user's own database ends the login.
        server.run("test", doc! {"logout": 1});
        assert_eq!(is_in(&mut server), Some(ann.clone()));
        server.run("admin", doc! {"logout": 1});
        assert_eq!(is_in(&mut server), None);
    }
    let log = log_text(&server);
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("5286306"))
        .collect();
    assert_eq!(lines.len(), 2, "{log}");
    for part in [
        "\"ACCESS\"",
        "Successfully authenticated",
        "\"mechanism\":\"SCRAM-SHA-1\"",
        "\"user\":\"ann\"",
        "\"db\":\"admin\"",
    ] {
        assert!(lines[0].contains(part), "{}", lines[0]);
    }
}

/// Without `skipEmptyExchange` the login ends with an empty message, and not before. Messages may be text in base64.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_exchange_ends_a_login() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let (mut server, ann) = with_ann(|_| {});
    let password = ClientPassword::new(Mechanism::Sha256, "ann", PASSWORD).unwrap();
    let (mut client, first) = password.start().unwrap();
    let start =
        |payload: &str| doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload};
    let reply = server.run("admin", start(&STANDARD.encode(&first)));
    let text = STANDARD.decode(reply.get_str("payload").unwrap()).unwrap();
    let last = client.answer(&text).unwrap();
    // mgo repeats the mechanism.
    let go_on = |payload: &str| doc! {"saslContinue": 1, "conversationId": 1, "mechanism": "x", "payload": payload};
    let reply = server.run("admin", go_on(&STANDARD.encode(&last)));
    assert_eq!(reply.get_bool("done"), Some(false));
    client
        .verify(&STANDARD.decode(reply.get_str("payload").unwrap()).unwrap())
        .unwrap();
    assert_eq!(is_in(&mut server), None, "not yet");
    let reply = server.run("admin", go_on(""));
    let expected = doc! {"conversationId": 1, "done": true, "payload": "", "ok": 1.0};
    assert_eq!(reply, expected);
    assert_eq!(is_in(&mut server), Some(ann));
    assert_eq!(server.code("admin", go_on("")), 17);
}

/// A wrong password, a user who does not exist and one without a credential for the mechanism have the same answers, and
/// the same delays.
#[tokio::test(flavor = "multi_thread")]
async fn failures_look_alike() {
    let wrong_password = UserName::new("ann", "admin");
    let nobody = UserName::new("nobody", "admin");
    let elsewhere = UserName::new("ann", "test");
    let only_sha1 = UserName::new("bob", "admin");
    for name in [&wrong_password, &nobody, &elsewhere, &only_sha1] {
        let (mut server, _) = with_ann(|_| {});
        add_user(&server, &only_sha1, &[scram(Mechanism::Sha1)]);
        let mut salts = Vec::new();
        let mut waits = Vec::new();
        for attempt in 1..=6 {
            let password = ClientPassword::new(Mechanism::Sha256, &name.name, "crayon").unwrap();
            let (mut client, first) = password.start().unwrap();
            let start =
                doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(&first)};
            let reply = server.run(&name.db, start);
            let first = payload(&reply);
            let text = String::from_utf8(first.clone()).unwrap();
            let (_, salt) = text.split_once(",s=").unwrap();
            salts.push(salt.to_owned());
            let iterations = if *name == wrong_password {
                5000
            } else {
                15_000
            };
            assert!(salt.ends_with(&format!(",i={iterations}")), "{salt}");
            let last = client.answer(&first).unwrap();
            let go_on = doc! {"saslContinue": 1, "conversationId": 1, "payload": binary(&last)};
            let answer = server.answer(&name.db, &go_on, false);
            assert_eq!(failure(&answer.reply), FAILED);
            waits.push(answer.wait.unwrap().as_millis());
            assert_eq!(server.state.login.closes, attempt >= 5, "{attempt}");
            assert_eq!(server.code("admin", go_on), 17, "the conversation is over");
        }
        salts.dedup();
        assert_eq!(salts.len(), 1, "the salt of {name} changes");
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200]);
        assert_eq!(is_in(&mut server), None);
        let log = log_text(&server);
        assert_eq!(log.matches("Failed to authenticate").count(), 6);
        assert_eq!(
            log.contains("storedKey mismatch"),
            *name == wrong_password,
            "the log tells why"
        );
        let status = server.run("admin", doc! {"serverStatus": 1});
        let logins = status.get_doc("security").unwrap();
        let logins = logins.get_doc("authentication").unwrap();
        assert_eq!(logins.get_i64("failed"), Some(6));
        let mechanisms = logins.get_doc("mechanisms").unwrap();
        let sha256 = mechanisms.get_doc("SCRAM-SHA-256").unwrap();
        let counted = doc! {"received": 6i64, "successful": 0i64};
        assert_eq!(sha256.get_doc("authenticate"), Some(&*counted));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_succeeds_does_not_wait() {
    let (mut server, ann) = with_ann(|_| {});
    assert_eq!(
        failure(&log_in(&mut server, Mechanism::Sha1, &ann, "crayon")),
        FAILED
    );
    let answer = server.answer("admin", &doc! {"ping": 1}, false);
    assert_eq!(answer.wait, None);
    log_in(&mut server, Mechanism::Sha1, &ann, PASSWORD);
    assert_eq!(is_in(&mut server), Some(ann));
    assert_eq!(server.state.login.deadline(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_has_one_user() {
    let (mut server, ann) = with_ann(|_| {});
    let bob = UserName::new("bob", "admin");
    let eve = UserName::new("ann", "test");
    for name in [&bob, &eve] {
        add_user(&server, name, &[scram(Mechanism::Sha1)]);
    }
    log_in(&mut server, Mechanism::Sha1, &ann, PASSWORD);
    let again = log_in(&mut server, Mechanism::Sha256, &ann, PASSWORD);
    assert_eq!(again.get_f64("ok"), Some(1.0));
    assert!(log_text(&server).contains("5626700"));
    for (name, code) in [(&bob, 5_626_701), (&eve, 5_626_702)] {
        let reply = log_in(&mut server, Mechanism::Sha1, name, PASSWORD);
        assert_eq!(reply.get_i32("code"), Some(code), "{reply:?}");
        assert!(reply.get_str("errmsg").unwrap().contains("ann@admin"));
        assert_eq!(is_in(&mut server), Some(ann.clone()));
        // The other user is named only to who knows its password.
        let reply = log_in(&mut server, Mechanism::Sha1, name, "crayon");
        assert_eq!(failure(&reply), FAILED);
    }
    server.run("admin", doc! {"logout": 1});
    log_in(&mut server, Mechanism::Sha1, &bob, PASSWORD);
    assert_eq!(is_in(&mut server), Some(bob));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_user_is_noticed_at_the_next_command() {
    let (mut server, ann) = with_ann(|_| {});
    log_in(&mut server, Mechanism::Sha1, &ann, PASSWORD);
    let before = server.state.identity.clone().unwrap();
    let users = ("admin", "system.users");
    let stored = crate::internal_collections::find_one(&server.server.store, users, doc! {})
        .unwrap()
        .unwrap();
    let mut changed = DocBuf::new();
    for (field, value) in stored.iter() {
        match field {
            "roles" => changed.push(
                field,
                Value::Array(&frond_bson::ArrayBuf::from_iter([
                    &doc! {"role": "read", "db": "test"},
                ])),
            ),
            _ => changed.push(field, value),
        }
    }
    replace_one(&server.server.store, users, "admin.ann", &changed).unwrap();
    assert_eq!(is_in(&mut server), Some(ann.clone()));
    let after = server.state.identity.clone().unwrap();
    assert!(before.all_roles.is_empty());
    assert!(after.all_roles.contains(&UserName::new("read", "test")));

    // One of the same name that was created again is another user.
    add_user(&server, &ann, &[scram(Mechanism::Sha1)]);
    assert_eq!(is_in(&mut server), None);
    log_in(&mut server, Mechanism::Sha1, &ann, PASSWORD);
    assert_eq!(is_in(&mut server), Some(ann.clone()));

    // A restriction that the connection does not meet: it has no IP address.
    let mut restricted =
        crate::internal_collections::find_one(&server.server.store, users, doc! {})
            .unwrap()
            .unwrap();
    let only = frond_bson::ArrayBuf::from_iter([&doc! {"clientSource": ["10.0.0.0/8"]}]);
    restricted.push("authenticationRestrictions", Value::Array(&only));
    replace_one(&server.server.store, users, "admin.ann", &restricted).unwrap();
    assert_eq!(is_in(&mut server), None);
    let reply = log_in(&mut server, Mechanism::Sha1, &ann, PASSWORD);
    assert_eq!(failure(&reply), FAILED);
    assert!(log_text(&server).contains("authentication restrictions"));

    server.run(
        "admin",
        doc! {"delete": "system.users", "deletes": [{"q": {}, "limit": 0}]},
    );
    let reply = log_in(&mut server, Mechanism::Sha1, &ann, PASSWORD);
    assert_eq!(failure(&reply), FAILED);
}

#[tokio::test(flavor = "multi_thread")]
async fn restrictions_are_about_both_ends() {
    let (mut server, ann) = with_ann(|_| {});
    let mut stored = add_user(&server, &ann, &[scram(Mechanism::Sha1)]);
    let only = doc! {"clientSource": ["10.0.0.0/8"], "serverAddress": ["127.0.0.1"]};
    let only = frond_bson::ArrayBuf::from_iter([&only]);
    stored.push("authenticationRestrictions", Value::Array(&only));
    replace_one(
        &server.server.store,
        ("admin", "system.users"),
        "admin.ann",
        &stored,
    )
    .unwrap();
    for (client, local, is_allowed) in [
        ("10.1.2.3:1", "127.0.0.1", true),
        ("[::ffff:10.1.2.3]:1", "::ffff:127.0.0.1", true),
        ("11.1.2.3:1", "127.0.0.1", false),
        ("10.1.2.3:1", "127.0.0.2", false),
    ] {
        let peer = Peer::Tcp(client.parse().unwrap());
        let of = &server.server;
        server.connection = of
            .clients
            .connections
            .open(peer, 10, Arc::default())
            .unwrap();
        server
            .connection
            .local_ip
            .set(local.parse().unwrap())
            .unwrap();
        server.state = ClientState::default();
        let reply = log_in(&mut server, Mechanism::Sha1, &ann, PASSWORD);
        assert_eq!(
            reply.get_f64("ok") == Some(1.0),
            is_allowed,
            "{client} {local}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_messages_are_refused() {
    let (mut server, _) = with_ann(|settings| {
        settings.logins.mechanisms = vec![scram(Mechanism::Sha256), LoginMechanism::X509];
    });
    let first = "n,,n=ann,r=abcdefgh";
    let start = |mechanism: &str, payload: Value<'_>| {
        doc! {"saslStart": 1, "mechanism": mechanism, "payload": payload}
    };
    let uuid = Value::Binary {
        subtype: 4,
        bytes: &[7; 16],
    };
    for (db, command, code) in [
        ("admin", doc! {"saslStart": 1}, 40414),
        (
            "admin",
            doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256"},
            40414,
        ),
        (
            "admin",
            doc! {"saslStart": 1, "mechanism": 7, "payload": ""},
            14,
        ),
        ("admin", start("SCRAM-SHA-1", binary(first)), 334),
        ("admin", start("MONGODB-CR", binary(first)), 334),
        ("admin", start("PLAIN", binary("\0ann\0pencil")), 334),
        ("admin", start("MONGODB-X509", binary(first)), 2),
        ("$external", start("SCRAM-SHA-256", binary(first)), 2),
        ("admin", start("SCRAM-SHA-256", uuid), 2),
        ("admin", start("SCRAM-SHA-256", Value::Int32(5)), 2),
        ("admin", start("SCRAM-SHA-256", Value::String("*")), 2),
        ("admin", start("SCRAM-SHA-256", binary("n,,n=ann")), 18),
        (
            "admin",
            start("SCRAM-SHA-256", binary("p=tls-unique,,n=ann,r=abcdefgh")),
            18,
        ),
        ("admin", start("SCRAM-SHA-256", binary("")), 18),
        (
            "admin",
            doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": first, "pwd": "x"},
            40415,
        ),
        (
            "admin",
            doc! {
                "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(first),
                "options": {"skipEmptyExchange": 1},
            },
            2,
        ),
        (
            "admin",
            doc! {"saslContinue": 1, "conversationId": 1, "payload": ""},
            17,
        ),
        (
            "admin",
            doc! {"authenticate": 1, "user": "ann", "nonce": "1", "key": "2"},
            334,
        ),
        ("admin", doc! {"authenticate": 1, "mechanism": "PLAIN"}, 2),
        (
            "admin",
            doc! {"authenticate": 1, "mechanism": "MONGODB-X509"},
            17,
        ),
    ] {
        let reply = server.reply(db, command.clone());
        assert_eq!(reply.get_i32("code"), Some(code), "{command:?} {reply:?}");
        let shown = format!("{reply:?}");
        assert!(
            !shown.contains("pencil") && !shown.contains("abcdefgh"),
            "{shown}"
        );
        assert!(server.state.login.pending.is_none());
    }
    // The number of the conversation is checked, and a wrong one ends it.
    server.run("admin", start("SCRAM-SHA-256", binary(first)));
    let go_on =
        |id: i32| doc! {"saslContinue": 1, "conversationId": id, "payload": binary("c=biws")};
    assert_eq!(server.code("admin", go_on(2)), 17);
    assert_eq!(server.code("admin", go_on(1)), 17);
    // A new conversation replaces the one before.
    for _ in 0..3 {
        server.run("admin", start("SCRAM-SHA-256", binary(first)));
    }
    assert_eq!(server.code("admin", go_on(1)), 18);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_tells_the_mechanisms_of_a_user() {
    let (mut server, _) = with_ann(|_| {});
    let bob = UserName::new("b.ob", "test");
    add_user(&server, &bob, &[scram(Mechanism::Sha1)]);
    for (user, expected) in [
        ("admin.ann", &["SCRAM-SHA-256", "SCRAM-SHA-1"][..]),
        ("test.b.ob", &["SCRAM-SHA-1"]),
        // As if there were one.
        ("admin.nobody", &["SCRAM-SHA-256", "SCRAM-SHA-1"]),
        ("$external.CN=x", &["MONGODB-X509"]),
    ] {
        let reply = server.run("admin", doc! {"hello": 1, "saslSupportedMechs": user});
        let names = reply.get_array("saslSupportedMechs").unwrap();
        let names: Vec<&str> = names.values().filter_map(|name| name.as_str()).collect();
        assert_eq!(names, expected, "{user}");
    }
    let reply = server.run("admin", doc! {"hello": 1});
    assert!(!reply.contains_key("saslSupportedMechs"));
    assert_eq!(
        server.code("admin", doc! {"hello": 1, "saslSupportedMechs": "ann"}),
        2
    );
    assert_eq!(
        server.code("admin", doc! {"hello": 1, "saslSupportedMechs": 5}),
        14
    );
    let status = server.run("admin", doc! {"serverStatus": 1});
    let logins = status
        .get_doc("security")
        .unwrap()
        .get_doc("authentication");
    assert_eq!(
        logins.unwrap().get_i64("saslSupportedMechsReceived"),
        Some(4)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guess_of_a_mechanism_that_the_user_lacks_begins_nothing() {
    let mut server = TestServer::with(|_| {});
    let old = UserName::new("old", "admin");
    add_user(&server, &old, &[scram(Mechanism::Sha1)]);
    let password = ClientPassword::new(Mechanism::Sha256, "old", PASSWORD).unwrap();
    let (_, first) = password.start().unwrap();
    let begun = doc! {
        "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(&first), "db": "admin",
    };
    let hello = doc! {
        "hello": 1, "saslSupportedMechs": "admin.old", "speculativeAuthenticate": &begun,
    };
    let reply = server.run("admin", hello);
    assert!(!reply.contains_key("speculativeAuthenticate"));
    log_in(&mut server, Mechanism::Sha1, &old, PASSWORD);
    assert_eq!(is_in(&mut server), Some(old));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_may_begin_a_login() {
    for name in ["hello", "isMaster"] {
        let (mut server, ann) = with_ann(|_| {});
        let password = ClientPassword::new(Mechanism::Sha256, "ann", PASSWORD).unwrap();
        let (mut client, first) = password.start().unwrap();
        let begun = doc! {
            "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(&first), "db": "admin",
            "options": {"skipEmptyExchange": true},
        };
        let mut hello = DocBuf::new();
        hello.push(name, 1);
        hello.push("speculativeAuthenticate", &begun);
        let reply = server.run("admin", hello);
        let answer = reply.get_doc("speculativeAuthenticate").unwrap();
        assert!(server.state.login.deadline().is_some());
        let last = client.answer(&payload(answer)).unwrap();
        let reply = server.run(
            "admin",
            doc! {"saslContinue": 1, "conversationId": 1, "payload": binary(&last)},
        );
        client.verify(&payload(&reply)).unwrap();
        assert_eq!(is_in(&mut server), Some(ann));
        let status = server.run("admin", doc! {"serverStatus": 1});
        let logins = status.get_doc("security").unwrap();
        let logins = logins.get_doc("authentication").unwrap();
        let sha256 = logins
            .get_doc("mechanisms")
            .unwrap()
            .get_doc("SCRAM-SHA-256");
        let once = doc! {"received": 1i64, "successful": 1i64};
        for kind in ["speculativeAuthenticate", "authenticate"] {
            assert_eq!(sha256.unwrap().get_doc(kind), Some(&*once), "{kind}");
        }
    }
}

/// A guess in a `hello` that fails is as if it had not been made.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_guess_in_a_hello_is_ignored() {
    let (mut server, ann) = with_ann(|settings| {
        settings.logins.mechanisms = vec![scram(Mechanism::Sha256), LoginMechanism::X509];
    });
    let first = binary("n,,n=ann,r=abcdefgh");
    for begun in [
        doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-1", "payload": first.clone(), "db": "admin"},
        doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": first},
        doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": "*", "db": "admin"},
        doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(","), "db": "admin"},
        doc! {"authenticate": 1, "mechanism": "MONGODB-X509", "db": "$external"},
        doc! {"authenticate": 1, "mechanism": "MONGODB-CR", "db": "admin"},
        doc! {"authenticate": 1},
    ] {
        server.state.login = Default::default();
        let hello = doc! {"hello": 1, "speculativeAuthenticate": &begun};
        let answer = server.answer("admin", &hello, false);
        assert_eq!(answer.reply.get_f64("ok"), Some(1.0), "{begun:?}");
        assert_eq!(answer.wait, None);
        assert!(!answer.reply.contains_key("speculativeAuthenticate"));
        assert!(server.state.login.pending.is_none() && !server.state.login.closes);
    }
    for unknown in [doc! {}, doc! {"createUser": "x"}] {
        let hello = doc! {"hello": 1, "speculativeAuthenticate": &unknown};
        assert_eq!(server.code("admin", hello), 51769);
    }
    log_in(&mut server, Mechanism::Sha256, &ann, PASSWORD);
    assert_eq!(is_in(&mut server), Some(ann));
}

/// Clients without a login cannot fill the log: a line is short whatever the client sends, and a connection whose guesses fail
/// again and again is delayed and closed.
#[tokio::test(flavor = "multi_thread")]
async fn failed_guesses_in_hellos_are_limited() {
    let long = "\u{1}".repeat(40_000);
    let in_db = doc! {
        "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary(","), "db": &*long,
    };
    let by_certificate =
        doc! {"authenticate": 1, "mechanism": "MONGODB-X509", "user": &*long, "db": "$external"};
    let mut server = TestServer::new();
    let hello = doc! {"hello": 1, "speculativeAuthenticate": &in_db};
    assert_eq!(server.code("admin", hello), 73);
    let hello = doc! {"hello": 1, "speculativeAuthenticate": &by_certificate};
    let mut waits = Vec::new();
    for attempt in 0..=5 {
        let answer = server.answer("admin", &hello, false);
        assert_eq!(answer.reply.get_f64("ok"), Some(1.0));
        waits.push(answer.wait.map_or(0, |wait| wait.as_millis()));
        assert_eq!(server.state.login.closes, attempt == 5, "{attempt}");
    }
    assert_eq!(waits, [0, 100, 200, 400, 800, 1600]);
    let log = log_text(&server);
    let lines = log.lines().filter(|line| line.contains("5286307"));
    let lengths: Vec<usize> = lines.map(str::len).collect();
    assert_eq!(lengths.len(), 6);
    assert!(lengths.iter().all(|bytes| *bytes < 3000), "{lengths:?}");
}

/// A user whose document cannot be read looks like one who does not exist, also in a `hello`.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_cannot_be_read_is_not_told_of() {
    let mut server = TestServer::new();
    let ann = UserName::new("ann", "shop");
    let stored = doc! {
        "_id": "shop.ann", "user": "ann", "db": "shop", "roles": [],
        "credentials": {"SCRAM-SHA-256": {"iterationCount": 1000}},
    };
    let users = ("admin", "system.users");
    replace_one(&server.server.store, users, "shop.ann", &stored).unwrap();
    let mut mechanisms = |user: &str| {
        let reply = server.run("admin", doc! {"hello": 1, "saslSupportedMechs": user});
        reply
            .get("saslSupportedMechs")
            .map(|list| format!("{list:?}"))
    };
    assert_eq!(mechanisms("shop.ann"), mechanisms("shop.nobody"));
    let reply = log_in(&mut server, Mechanism::Sha256, &ann, PASSWORD);
    assert_eq!(failure(&reply), FAILED);
    let log = log_text(&server);
    assert_eq!(log.matches("The stored user ann@shop").count(), 2, "{log}");
}

/// The roles of a user are resolved after its proof, so that neither the time of the first message nor its errors reveal that
/// there is such a user.
#[tokio::test(flavor = "multi_thread")]
async fn roles_are_resolved_after_the_proof() {
    let mut server = TestServer::new();
    let ann = UserName::new("ann", "admin");
    let mut stored = add_user(&server, &ann, &[scram(Mechanism::Sha256)]);
    stored = doc! {
        "_id": "admin.ann", "user": "ann", "db": "admin", "roles": [{"role": 1}],
        "credentials": stored.get_doc("credentials").unwrap(),
    };
    let users = ("admin", "system.users");
    replace_one(&server.server.store, users, "admin.ann", &stored).unwrap();
    for (password, part) in [
        ("crayon", "storedKey mismatch"),
        (PASSWORD, "The stored user"),
    ] {
        assert!(!log_text(&server).contains(part));
        let reply = log_in(&mut server, Mechanism::Sha256, &ann, password);
        assert_eq!(failure(&reply), FAILED);
        assert!(log_text(&server).contains(part), "{part}");
    }
}
