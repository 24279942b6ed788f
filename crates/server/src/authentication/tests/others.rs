//! Logins by other means than SCRAM, secrets and parameters.

use std::time::Duration;

use frond_auth::scram::{ClientPassword, Mechanism};
use frond_auth::{LoginMechanism, UserName, mongo_cr, password_digest};
use frond_bson::doc;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_logs_in() {
    let subject = "CN=ann,OU=shop,O=Frond";
    let user = UserName::new(subject, "$external");
    let authenticate = || doc! {"authenticate": 1, "mechanism": "MONGODB-X509"};
    let with_user = |name: &str| {
        doc! {"authenticate": 1, "mechanism": "MONGODB-X509", "user": name}
    };
    // Without a certificate, and without a user for it.
    let mut server = TestServer::new();
    for command in [authenticate(), with_user(subject)] {
        assert_eq!(failure(&server.reply("$external", command)), FAILED);
    }
    server
        .connection
        .certificate_subject
        .set(subject.into())
        .unwrap();
    let reply = server.reply("$external", authenticate());
    assert_eq!(failure(&reply), FAILED);
    add_user(&server, &user, &[LoginMechanism::X509]);
    for name in ["CN=bob", "CN=ann", "CN=ann,OU=shop,O=frond"] {
        let reply = server.reply("$external", with_user(name));
        assert_eq!(failure(&reply), FAILED, "{name}");
    }
    assert_eq!(server.code("admin", authenticate()), 17);
    assert_eq!(is_in(&mut server), None);
    for command in [authenticate(), with_user(""), with_user(subject)] {
        let reply = server.run("$external", command);
        let expected = doc! {"dbname": "$external", "user": subject, "ok": 1.0};
        assert_eq!(reply, expected);
        assert_eq!(is_in(&mut server), Some(user.clone()));
        server.run("$external", doc! {"logout": 1});
        assert_eq!(is_in(&mut server), None);
    }
    let begun = doc! {"authenticate": 1, "mechanism": "MONGODB-X509", "db": "$external"};
    let reply = server.run(
        "admin",
        doc! {"hello": 1, "speculativeAuthenticate": &begun},
    );
    assert_eq!(
        reply.get_doc("speculativeAuthenticate"),
        Some(&*doc! {"dbname": "$external", "user": subject})
    );
    assert_eq!(is_in(&mut server), Some(user));

    let mut server = TestServer::with(|settings| {
        settings.logins.mechanisms = vec![scram(Mechanism::Sha256)];
    });
    add_user(
        &server,
        &UserName::new(subject, "$external"),
        &[LoginMechanism::X509],
    );
    server
        .connection
        .certificate_subject
        .set(subject.into())
        .unwrap();
    assert_eq!(server.code("$external", authenticate()), 334);
    assert_eq!(is_in(&mut server), None);
}

/// As the drivers of 2011 to 2013 log in.
#[tokio::test(flavor = "multi_thread")]
async fn old_drivers_log_in_where_that_is_enabled() {
    let mut server = TestServer::with(|settings| {
        settings.logins.mechanisms = vec![LoginMechanism::MongoCr, scram(Mechanism::Sha1)];
    });
    let ann = UserName::new("ann", "test");
    let bob = UserName::new("bob", "test");
    add_user(
        &server,
        &ann,
        &[LoginMechanism::MongoCr, scram(Mechanism::Sha1)],
    );
    add_user(&server, &bob, &[scram(Mechanism::Sha1)]);
    let attempt = |server: &mut TestServer, user: &str, password: &str| {
        let reply = server.run("test", doc! {"getnonce": 1});
        let nonce = reply.get_str("nonce").unwrap();
        let digest = password_digest(user, password);
        let key = mongo_cr::response(nonce, user, &digest);
        let command = doc! {"authenticate": 1, "user": user, "nonce": nonce, "key": key.as_str()};
        (server.reply("test", command.clone()), command)
    };
    for (user, password) in [("ann", "crayon"), ("nobody", PASSWORD), ("bob", PASSWORD)] {
        let (reply, _) = attempt(&mut server, user, password);
        assert_eq!(failure(&reply), FAILED, "{user}");
        assert_eq!(is_in(&mut server), None);
    }
    let (reply, command) = attempt(&mut server, "ann", PASSWORD);
    assert_eq!(reply, doc! {"dbname": "test", "user": "ann", "ok": 1.0});
    assert_eq!(is_in(&mut server), Some(ann));
    server.run("test", doc! {"logout": 1});
    // A nonce is for one login.
    assert_eq!(failure(&server.reply("test", command.clone())), FAILED);
    server.run("test", doc! {"getnonce": 1});
    assert_eq!(failure(&server.reply("test", command)), FAILED);
    assert_eq!(is_in(&mut server), None);
}

/// mgo sends `getnonce` on each new connection, and gives the connection up if it fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_nonce_is_given_where_its_logins_are_not_enabled() {
    let mut server = TestServer::with(|settings| {
        settings.logins.mechanisms = vec![scram(Mechanism::Sha1)];
    });
    let ann = UserName::new("ann", "test");
    add_user(&server, &ann, &[scram(Mechanism::Sha1)]);
    let reply = server.run("admin", doc! {"getnonce": 1});
    let nonce = reply.get_str("nonce").unwrap();
    assert_eq!(nonce.len(), 16);
    // A connection that does not log in is not closed for it.
    assert_eq!(server.state.login.deadline(), None);
    let key = mongo_cr::response(nonce, "ann", &password_digest("ann", PASSWORD));
    let command = doc! {"authenticate": 1, "user": "ann", "nonce": nonce, "key": key.as_str()};
    assert_eq!(server.code("test", command), 334);
    assert_eq!(is_in(&mut server), None);
}

/// `createUser` stores the credential for MONGODB-CR where that is enabled, and only there.
#[tokio::test(flavor = "multi_thread")]
async fn a_created_user_logs_in_by_every_enabled_mechanism() {
    for is_enabled in [false, true] {
        let mut server = TestServer::with(|settings| {
            if is_enabled {
                settings.logins.mechanisms = LoginMechanism::ALL.to_vec();
            }
        });
        server.run(
            "admin",
            doc! {"setParameter": 1, "scramIterationCount": 5000},
        );
        server.run(
            "admin",
            doc! {"createUser": "bob", "pwd": PASSWORD, "roles": []},
        );
        let digest = password_digest("eve", PASSWORD);
        let digested = doc! {
            "createUser": "eve", "pwd": digest.as_str(), "roles": [], "digestPassword": false,
            "mechanisms": ["SCRAM-SHA-1"],
        };
        server.run("admin", digested);
        for name in ["bob", "eve"] {
            let user = UserName::new(name, "admin");
            let found = server
                .server
                .clients
                .access
                .find_for_login(&user)
                .unwrap()
                .unwrap();
            let cr = found
                .credentials
                .cr
                .as_ref()
                .map(|digest| digest.to_string());
            let expected = password_digest(name, PASSWORD).to_string();
            assert_eq!(cr, (is_enabled && name == "bob").then_some(expected));
            let sha1 = found.credentials.for_mechanism(Mechanism::Sha1).unwrap();
            assert_eq!(sha1.iterations(), 5000, "that of the parameter");
            log_in(&mut server, Mechanism::Sha1, &user, PASSWORD);
            assert_eq!(is_in(&mut server), Some(user));
            server.run("admin", doc! {"logout": 1});
        }
        let named = doc! {"createUser": "x", "pwd": "p", "roles": [], "mechanisms": ["MONGODB-CR"]};
        let reply = server.reply("admin", named);
        assert_eq!(reply.get_f64("ok") == Some(1.0), is_enabled, "{reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_of_an_unknown_command_is_wiped() {
    let (mut server, _) = with_ann(|_| {});
    let command = doc! {"copydbsaslstart": 1, "payload": binary("a password")};
    let answer = server.answer("own", &command, false);
    assert_eq!(answer.reply.get_i32("code"), Some(59));
    assert!(answer.has_secrets);
}

/// After logins of every kind, with all lines in the log, no secret is in the log or in `currentOp`.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_shown_nowhere() {
    let (mut server, ann) = with_ann(|settings| {
        settings.quiet = false;
        settings.log_verbosity = 5;
        settings.slow_operation = Duration::ZERO;
        settings.logins.mechanisms = LoginMechanism::ALL.to_vec();
    });
    let stored = add_user(
        &server,
        &ann,
        &[
            LoginMechanism::MongoCr,
            scram(Mechanism::Sha1),
            scram(Mechanism::Sha256),
        ],
    );
    let credentials = stored.get_doc("credentials").unwrap();
    let mut secrets = vec![
        PASSWORD.to_owned(),
        "crayon".to_owned(),
        password_digest("ann", PASSWORD).to_string(),
    ];
    for mechanism in Mechanism::ALL {
        let credential = credentials.get_doc(mechanism.name()).unwrap();
        for field in ["salt", "storedKey", "serverKey"] {
            secrets.push(credential.get_str(field).unwrap().to_owned());
        }
    }
    let kept =
        |server: &TestServer| format!("{:?}", server.connection.running.lock().command_doc());
    for (mechanism, password) in [
        (Mechanism::Sha1, PASSWORD),
        (Mechanism::Sha256, "crayon"),
        (Mechanism::Sha256, PASSWORD),
    ] {
        let client = ClientPassword::new(mechanism, "ann", password).unwrap();
        let (mut client, first) = client.start().unwrap();
        let (_, nonce) = first.split_once("r=").unwrap();
        secrets.push(nonce.to_owned());
        let start = doc! {"saslStart": 1, "mechanism": mechanism.name(), "payload": binary(&first)};
        let hello = doc! {
            "hello": 1,
            "speculativeAuthenticate": {
                "saslStart": 1, "mechanism": mechanism.name(), "payload": binary(&first), "db": "admin",
            },
        };
        server.run("admin", hello);
        assert!(kept(&server).contains("\"xxx\""), "{}", kept(&server));
        let reply = server.run("admin", start);
        assert!(
            kept(&server).contains("\"payload\":\"xxx\""),
            "{}",
            kept(&server)
        );
        let last = client.answer(&payload(&reply)).unwrap();
        let (_, proof) = last.split_once(",p=").unwrap();
        secrets.push(proof.to_owned());
        let go_on = doc! {"saslContinue": 1, "conversationId": 1, "payload": binary(&last)};
        assert!(server.answer("admin", &go_on, false).has_secrets);
        assert!(
            kept(&server).contains("\"payload\":\"xxx\""),
            "{}",
            kept(&server)
        );
    }
    let reply = server.run("admin", doc! {"getnonce": 1});
    let nonce = reply.get_str("nonce").unwrap();
    let key = mongo_cr::response(nonce, "ann", &password_digest("ann", PASSWORD));
    let command = doc! {"authenticate": 1, "user": "ann", "nonce": nonce, "key": key.as_str()};
    server.run("admin", command);
    assert!(
        kept(&server).contains("\"key\":\"xxx\""),
        "{}",
        kept(&server)
    );
    secrets.extend([nonce.to_owned(), key.to_string()]);
    // Users that are written as documents, as a restore does.
    let insert = doc! {"insert": "tempusers", "documents": [&stored]};
    server.run("admin", insert);
    assert!(
        kept(&server).contains("\"documents\":\"xxx\""),
        "{}",
        kept(&server)
    );
    let update = doc! {
        "update": "system.users",
        "updates": [{"q": {}, "u": {"$set": {"credentials": credentials}}}],
    };
    server.run("admin", update);
    assert!(
        kept(&server).contains("\"updates\":\"xxx\""),
        "{}",
        kept(&server)
    );
    // A command that is refused before it runs is not quoted either.
    server.reply(
        "admin",
        doc! {"saslStart": 1, "mechanism": "PLAIN", "payload": PASSWORD},
    );
    server.reply(
        "admin",
        doc! {"authenticate": 1, "key": PASSWORD, "pwd": PASSWORD},
    );
    let log = log_text(&server);
    assert!(
        log.contains("Slow query") && log.contains("saslContinue"),
        "{log}"
    );
    let (recent, _) = server.server.log.recent();
    let recent = recent.join("\n");
    for secret in secrets {
        assert!(!log.contains(&secret), "{secret}: {log}");
        assert!(!recent.contains(&secret), "{secret}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_tell_the_truth() {
    let mut server = TestServer::with(|settings| {
        settings.logins.mechanisms = vec![LoginMechanism::MongoCr, scram(Mechanism::Sha1)];
    });
    let reply = server.run(
        "admin",
        doc! {
            "getParameter": 1, "authenticationMechanisms": 1, "scramIterationCount": 1,
            "scramSHA256IterationCount": 1, "authFailedDelayMs": 1, "enableLocalhostAuthBypass": 1,
        },
    );
    let expected = doc! {
        "authFailedDelayMs": 100,
        "authenticationMechanisms": ["MONGODB-CR", "SCRAM-SHA-1"],
        "enableLocalhostAuthBypass": true,
        "scramIterationCount": 10_000,
        "scramSHA256IterationCount": 15_000,
        "ok": 1.0,
    };
    assert_eq!(reply, expected);
    server.run(
        "admin",
        doc! {"setParameter": 1, "scramIterationCount": 20_000},
    );
    assert_eq!(
        server.server.clients.logins.iterations(Mechanism::Sha1),
        20_000
    );
    for (name, value, code) in [
        ("scramIterationCount", 4999, 2),
        ("scramSHA256IterationCount", 0, 2),
        ("authFailedDelayMs", 0, 20),
        ("enableLocalhostAuthBypass", 0, 20),
        ("authenticationMechanisms", 0, 20),
    ] {
        let set = doc! {"setParameter": 1, name: value};
        assert_eq!(server.code("admin", set), code, "{name}");
    }
}
