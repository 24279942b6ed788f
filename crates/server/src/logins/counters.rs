//! Counters of logins, for `serverStatus`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frond_auth::LoginMechanism;
use frond_bson::{DocBuf, doc};

#[derive(Debug, Default)]
pub struct Counters {
    mechanisms: [MechanismCounters; LoginMechanism::ALL.len()],
    /// `hello` commands that asked for the mechanisms of a user.
    supported_asked: AtomicU64,
    failed: AtomicU64,
    /// Time from the first message of each login to its success.
    micros: AtomicU64,
}

/// The counters of one mechanism.
#[derive(Debug, Default)]
struct MechanismCounters {
    received: AtomicU64,
    successful: AtomicU64,
    speculative_received: AtomicU64,
    speculative_successful: AtomicU64,
}

impl Counters {
    fn counters_of(&self, mechanism: LoginMechanism) -> &MechanismCounters {
        let [cr, x509, sha1, sha256] = &self.mechanisms;
        match mechanism {
            LoginMechanism::MongoCr => cr,
            LoginMechanism::X509 => x509,
            LoginMechanism::Scram(frond_auth::scram::Mechanism::Sha1) => sha1,
            LoginMechanism::Scram(frond_auth::scram::Mechanism::Sha256) => sha256,
        }
    }

    /// Counts a login that begins. `speculative`: in a `hello`.
    pub fn begun(&self, mechanism: LoginMechanism, speculative: bool) {
        let of = self.counters_of(mechanism);
        of.received.fetch_add(1, Ordering::Relaxed);
        of.speculative_received
            .fetch_add(u64::from(speculative), Ordering::Relaxed);
    }

    /// Counts a login that succeeded.
    pub fn succeeded(&self, mechanism: LoginMechanism, speculative: bool, took: Duration) {
        let of = self.counters_of(mechanism);
        of.successful.fetch_add(1, Ordering::Relaxed);
        of.speculative_successful
            .fetch_add(u64::from(speculative), Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts a login that failed.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a `hello` that asks for the mechanisms of a user.
    pub fn asked_for_mechanisms(&self) {
        self.supported_asked.fetch_add(1, Ordering::Relaxed);
    }

    /// The section `security.authentication` of `serverStatus`, with the mechanisms that are enabled.
    pub fn to_doc(&self, mechanisms: &[LoginMechanism]) -> DocBuf {
        let mut out = doc! {"saslSupportedMechsReceived": count(&self.supported_asked)};
        out.push_doc("mechanisms", |out| {
            for mechanism in mechanisms {
                let of = self.counters_of(*mechanism);
                let counters = doc! {
                    "speculativeAuthenticate": {
                        "received": count(&of.speculative_received),
                        "successful": count(&of.speculative_successful),
                    },
                    // There are no other members.
                    "clusterAuthenticate": {"received": 0i64, "successful": 0i64},
                    "authenticate": {
                        "received": count(&of.received), "successful": count(&of.successful),
                    },
                };
                out.push(mechanism.name(), &counters);
            }
        });
        out.push("failed", count(&self.failed));
        out.push("totalAuthenticationTimeMicros", count(&self.micros));
        out
    }
}

fn count(counter: &AtomicU64) -> i64 {
    i64::try_from(counter.load(Ordering::Relaxed)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_counted_by_mechanism() {
        let counters = Counters::default();
        for mechanism in LoginMechanism::ALL {
            counters.begun(mechanism, false);
            counters.begun(mechanism, true);
            counters.succeeded(mechanism, true, Duration::from_micros(5));
        }
        counters.begun(LoginMechanism::X509, false);
        counters.failed();
        counters.asked_for_mechanisms();
        let one = |received: i64| {
            doc! {
                "speculativeAuthenticate": {"received": 1i64, "successful": 1i64},
                "clusterAuthenticate": {"received": 0i64, "successful": 0i64},
                "authenticate": {"received": received, "successful": 1i64},
            }
        };
        let expected = doc! {
            "saslSupportedMechsReceived": 1i64,
            "mechanisms": {"MONGODB-X509": one(3), "SCRAM-SHA-1": one(2), "SCRAM-SHA-256": one(2)},
            "failed": 1i64,
            "totalAuthenticationTimeMicros": 20i64,
        };
        assert_eq!(counters.to_doc(&LoginMechanism::DEFAULT), expected);
    }
}
