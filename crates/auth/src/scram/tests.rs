#![allow(clippy::unwrap_used)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frond_bson::{DocBuf, doc};
use zeroize::Zeroizing;

use super::message::{ClientFinal, ServerFirst, escape, unescape};
use super::*;
use crate::UserName;

/// A conversation with fixed nonces: the four messages are those of `expected`.
fn replay(mechanism: Mechanism, prepared: &str, nonces: (&str, &str), expected: [&str; 4]) {
    let first = ServerFirst::parse(expected[1].as_bytes()).unwrap();
    let salt = STANDARD.decode(first.salt).unwrap();
    let credential = Credential::derive(mechanism, prepared, &salt, first.iterations);
    let password = ClientPassword::prepared(mechanism, "user", Zeroizing::new(prepared.to_owned()));
    for _ in 0..2 {
        let (mut client, message) = password.with_nonce(nonces.0.to_owned());
        assert_eq!(message, expected[0]);
        let parsed = ClientFirst::parse(message.as_bytes()).unwrap();
        assert_eq!(parsed.user, "user");
        let (server, message) =
            ServerConversation::with_nonce(&parsed, credential.clone(), nonces.1);
        assert_eq!(message, expected[1]);
        let message = client.answer(message.as_bytes()).unwrap();
        assert_eq!(message, expected[2]);
        let message = server.finish(message.as_bytes()).unwrap();
        assert_eq!(message, expected[3]);
        client.verify(message.as_bytes()).unwrap();
    }
}

#[test]
fn the_example_of_rfc_5802() {
    replay(
        Mechanism::Sha1,
        "pencil",
        ("fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j"),
        [
            "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ],
    );
}

#[test]
fn the_example_of_rfc_7677() {
    replay(
        Mechanism::Sha256,
        "pencil",
        ("rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"),
        [
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ],
    );
}

/// The example of the drivers' specification: the password of SCRAM-SHA-1 is MongoDB's digest.
#[test]
fn the_example_of_the_drivers_for_sha_1() {
    let prepared = Mechanism::Sha1.prepare("user", "pencil").unwrap();
    replay(
        Mechanism::Sha1,
        &prepared,
        (
            "fyko+d2lbbFgONRv9qkxdawL",
            "Ho+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE",
        ),
        [
            "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
            "r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,s=rQ9ZY3MntBeuP3E1TDVC4w==,i=10000",
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawLHo+Vgk7qvUOKUwuWLIWg4l/9SraGMHEE,p=MC2T8BvbmWRckDw8oWl5IVghwCY=",
            "v=UMWeI25JD1yNYZRMpZ4VHvhZ9e0=",
        ],
    );
}

/// Runs a conversation. Returns the outcome at the server, and at the client.
fn converse(
    mechanism: Mechanism,
    credential: &Credential,
    user: &str,
    password: &str,
) -> (Result<String, ScramError>, Result<(), ScramError>) {
    let password = ClientPassword::new(mechanism, user, password).unwrap();
    let (mut client, first) = password.start().unwrap();
    let first = ClientFirst::parse(first.as_bytes()).unwrap();
    assert_eq!(first.user, user);
    let (server, reply) = ServerConversation::start(&first, credential.clone()).unwrap();
    assert_eq!(server.mechanism(), mechanism);
    let last = client.answer(reply.as_bytes()).unwrap();
    let done = server.finish(last.as_bytes());
    let verified = client.verify(done.clone().unwrap_or_else(|_| "v=AAAA".into()).as_bytes());
    (done, verified)
}

#[test]
fn only_the_password_opens_the_door() {
    for mechanism in Mechanism::ALL {
        for user in ["user", "o=x,cn=y", "Jürgen", "=2C", "a b"] {
            let real = Credential::new(mechanism, user, "pencil", 4096).unwrap();
            let stored = real.to_doc();
            let parsed = Credential::parse(mechanism, &stored).unwrap();
            assert_eq!(parsed.to_doc(), stored);
            let (done, verified) = converse(mechanism, &parsed, user, "pencil");
            assert!(done.is_ok() && verified.is_ok(), "{user}: {done:?}");
            for wrong in ["Pencil", "pencil ", "", "pencil\u{301}"] {
                let (done, verified) = converse(mechanism, &parsed, user, wrong);
                assert_eq!(done, Err(ScramError::Proof), "{user} {wrong}");
                assert_eq!(verified, Err(ScramError::Signature));
            }
        }
        // The same password has another salt each time.
        let one = Credential::new(mechanism, "user", "pencil", 4096).unwrap();
        let other = Credential::new(mechanism, "user", "pencil", 4096).unwrap();
        assert_ne!(one.salt(), other.salt());
        assert_ne!(one.to_doc(), other.to_doc());
    }
}

#[test]
fn a_digest_is_as_good_as_its_password_for_sha_1() {
    let digest = crate::password_digest("user", "pencil");
    let credential = Credential::of_digest(&digest, 5000).unwrap();
    assert_eq!(
        (credential.mechanism(), credential.iterations()),
        (Mechanism::Sha1, 5000)
    );
    let (done, _) = converse(Mechanism::Sha1, &credential, "user", "pencil");
    assert!(done.is_ok());
}

#[test]
fn passwords_are_prepared_for_sha_256() {
    // The examples of the drivers' specification and of RFC 4013.
    for (set, given) in [
        ("IX", "I\u{ad}X"),
        ("\u{2168}", "IX"),
        ("\u{2168}", "\u{2163}\u{ad}"),
        ("\u{2163}", "I\u{ad}V"),
        ("a\u{a0}b", "a b"),
    ] {
        let credential = Credential::new(Mechanism::Sha256, "user", set, 4096).unwrap();
        let (done, _) = converse(Mechanism::Sha256, &credential, "user", given);
        assert_eq!(done.is_ok(), given != "\u{2163}\u{ad}", "{set} {given}");
    }
    for prohibited in ["a\u{7}", "\u{627}1", "\u{e000}"] {
        let failed = Credential::new(Mechanism::Sha256, "user", prohibited, 4096);
        assert_eq!(failed.unwrap_err(), ScramError::Password);
        assert!(Credential::new(Mechanism::Sha1, "user", prohibited, 4096).is_ok());
        let failed = ClientPassword::new(Mechanism::Sha256, "user", prohibited);
        assert_eq!(failed.unwrap_err(), ScramError::Password);
    }
}

#[test]
fn a_fake_credential_looks_real_and_fits_no_password() {
    let (secret, other_secret) = ([7; 32], [8; 32]);
    let user = UserName::new("nobody", "admin");
    for mechanism in Mechanism::ALL {
        let fake = Credential::fake(mechanism, &secret, &user, 10_000);
        let again = Credential::fake(mechanism, &secret, &user, 10_000);
        assert_eq!(fake.to_doc(), again.to_doc());
        let real = Credential::new(mechanism, "nobody", "pencil", 10_000).unwrap();
        assert_eq!(fake.salt().len(), real.salt().len());
        let lengths = |credential: &Credential| -> Vec<usize> {
            let doc = credential.to_doc();
            doc.iter().map(|(_, value)| value.len_bytes()).collect()
        };
        assert_eq!(lengths(&fake), lengths(&real));
        for other in [
            Credential::fake(mechanism, &other_secret, &user, 10_000),
            Credential::fake(mechanism, &secret, &UserName::new("nobody", "test"), 10_000),
            Credential::fake(
                mechanism,
                &secret,
                &UserName::new("nobod", "yadmin"),
                10_000,
            ),
        ] {
            assert_ne!(fake.salt(), other.salt());
        }
        assert_eq!(
            converse(mechanism, &fake, "nobody", "pencil").0,
            Err(ScramError::Proof)
        );
        // Even one that had a password.
        let mut with_password = Credential::new(mechanism, "nobody", "pencil", 4096).unwrap();
        with_password.is_fake = true;
        assert_eq!(
            converse(mechanism, &with_password, "nobody", "pencil").0,
            Err(ScramError::Proof)
        );
    }
}

#[test]
fn first_messages_are_checked() {
    for good in [
        "n,,n=user,r=abcd",
        "y,,n=user,r=abcd",
        "n,a=user,n=user,r=abcd",
        "n,a=us=2Cer,n=us=2Cer,r=abcd",
        "n,,n=user,r=abcd,x=ignored",
    ] {
        assert!(ClientFirst::parse(good.as_bytes()).is_ok(), "{good}");
    }
    let long = format!("n,,n={},r=abcd", "u".repeat(9000));
    for bad in [
        "",
        "n",
        "n,",
        "n,,",
        "n,,n=user",
        "n,,r=abcd",
        "n,,n=,r=abcd",
        "n,,n=user,r=abc",
        "n,,n=user,r=ab\u{7f}cd",
        "n,,n=us=er,r=abcd",
        "n,,n=user=,r=abcd",
        "n,,n=user=2,r=abcd",
        "n,,n=user=2c,r=abcd",
        "n,,n=us=é,r=abcd",
        "n,a=other,n=user,r=abcd",
        "n,b=user,n=user,r=abcd",
        "n,,m=x,n=user,r=abcd",
        "p=tls-unique,,n=user,r=abcd",
        "p,,n=user,r=abcd",
        "x,,n=user,r=abcd",
        "N,,n=user,r=abcd",
        "n,,r=abcd,n=user",
        long.as_str(),
    ] {
        let parsed = ClientFirst::parse(bad.as_bytes());
        assert!(
            matches!(parsed, Err(ScramError::Message(_))),
            "{bad}: {parsed:?}"
        );
    }
    assert!(ClientFirst::parse(b"n,,n=\xff,r=abcd").is_err());
}

#[test]
fn final_messages_are_checked() {
    let credential = Credential::new(Mechanism::Sha256, "user", "pencil", 4096).unwrap();
    let password = ClientPassword::new(Mechanism::Sha256, "user", "pencil").unwrap();
    let (mut client, first) = password.start().unwrap();
    let first = ClientFirst::parse(first.as_bytes()).unwrap();
    let (server, reply) = ServerConversation::start(&first, credential).unwrap();
    let good = client.answer(reply.as_bytes()).unwrap();
    let parsed = ClientFinal::parse(good.as_bytes()).unwrap();
    let (nonce, proof) = (parsed.nonce, parsed.proof);
    let short = STANDARD.encode([0; 20]);
    for (bad, is_mismatch) in [
        (String::new(), false),
        (format!("c=biws,r={nonce}"), false),
        (format!("c=biws,p={proof}"), false),
        (format!("r={nonce},p={proof}"), false),
        (format!("c=biws,r={nonce},p="), false),
        (format!("c=biws,r={nonce},p=!"), false),
        (format!("c=biws,r={nonce},p={short}"), false),
        (format!("c=eSws,r={nonce},p={proof}"), true),
        (format!("c=biws,r={nonce}x,p={proof}"), true),
        (format!("c=biws,r={},p={proof}", &nonce[1..]), true),
    ] {
        let failed = server.finish(bad.as_bytes()).unwrap_err();
        let is_as_expected = match failed {
            ScramError::Mismatch(_) => is_mismatch,
            ScramError::Message(_) => !is_mismatch,
            _ => false,
        };
        assert!(is_as_expected, "{bad}: {failed:?}");
        assert!(!failed.to_string().contains(nonce));
    }
    // An extension changes what is signed.
    let extended = format!("c=biws,r={nonce},x=1,p={proof}");
    assert_eq!(server.finish(extended.as_bytes()), Err(ScramError::Proof));
    assert!(server.finish(good.as_bytes()).is_ok());
}

#[test]
fn clients_do_not_trust_a_server() {
    let password = ClientPassword::new(Mechanism::Sha1, "user", "pencil").unwrap();
    let (mut client, _) = password.with_nonce("abcdefgh".into());
    for bad in [
        "r=abcdefgh,s=QSXCR+Q6sek8bf92,i=4096",
        "r=other,s=QSXCR+Q6sek8bf92,i=4096",
        "r=abcdefghijk,s=QSXCR+Q6sek8bf92,i=4095",
        "r=abcdefghijk,s=QSXCR+Q6sek8bf92,i=99999999",
        "r=abcdefghijk,s=QSXCR+Q6sek8bf92,i=x",
        "r=abcdefghijk,s=,i=4096",
        "r=abcdefghijk,s=*,i=4096",
        "r=abcdefghijk,i=4096",
        "e=other-error",
    ] {
        assert!(client.answer(bad.as_bytes()).is_err(), "{bad}");
    }
    // A server that skips the proof has no signature to show.
    assert_eq!(client.verify(b"v="), Err(ScramError::Signature));
    client
        .answer(b"r=abcdefghijk,s=QSXCR+Q6sek8bf92,i=4096")
        .unwrap();
    for bad in ["v=", "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=", "e=invalid-proof"] {
        assert!(client.verify(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn stored_credentials_are_checked() {
    let good = Credential::new(Mechanism::Sha1, "user", "pencil", 4096)
        .unwrap()
        .to_doc();
    let without = |field: &str| {
        let mut doc = DocBuf::new();
        for (name, value) in good.iter().filter(|(name, _)| *name != field) {
            doc.push(name, value);
        }
        doc
    };
    for field in ["iterationCount", "salt", "storedKey", "serverKey"] {
        let missing = Credential::parse(Mechanism::Sha1, &without(field));
        assert_eq!(missing.unwrap_err(), ScramError::Credential(field));
        let mut wrong = without(field);
        wrong.push(field, "not base64");
        assert!(Credential::parse(Mechanism::Sha1, &wrong).is_err());
    }
    let mut few = without("iterationCount");
    few.push("iterationCount", 4095);
    assert!(Credential::parse(Mechanism::Sha1, &few).is_err());
    let other = Credential::parse(Mechanism::Sha256, &good);
    assert_eq!(other.unwrap_err(), ScramError::Credential("storedKey"));
    assert!(Credential::parse(Mechanism::Sha1, &doc! {}).is_err());
}

#[test]
fn names_are_escaped() {
    for name in ["", "a", "a=b", "a,b", "=2C", ",=,=", "ü=ü"] {
        let escaped = escape(name);
        assert!(!escaped.contains(','));
        assert_eq!(unescape(&escaped).as_deref(), Some(name));
    }
    assert_eq!(escape("a=b,c"), "a=3Db=2Cc");
}

#[test]
fn debug_texts_have_no_secrets() {
    let credential = Credential::new(Mechanism::Sha1, "user", "pencil", 4096).unwrap();
    let stored = credential.to_doc();
    let password = ClientPassword::new(Mechanism::Sha1, "user", "pencil").unwrap();
    let (mut client, first) = password.start().unwrap();
    let first = ClientFirst::parse(first.as_bytes()).unwrap();
    let (server, reply) = ServerConversation::start(&first, credential.clone()).unwrap();
    client.answer(reply.as_bytes()).unwrap();
    let shown = format!("{credential:?} {password:?} {first:?} {server:?}");
    let digest = crate::password_digest("user", "pencil");
    for secret in [
        "pencil",
        digest.as_str(),
        stored.get_str("storedKey").unwrap(),
        stored.get_str("serverKey").unwrap(),
        server_nonce(&reply),
    ] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

fn server_nonce(reply: &str) -> &str {
    ServerFirst::parse(reply.as_bytes()).unwrap().nonce
}
