//! `profile`

use std::time::Duration;

use frond_bson::{DocBuf, doc};
use frond_error::{Error, Result};

use super::{Command, Traits};
use crate::authorization::{Action, Needs, Place, Requested};
use crate::context::Context;

/// Gets or sets the slow-operation threshold.
pub struct Profile;

impl Command for Profile {
    fn names(&self) -> &'static [&'static str] {
        &["profile"]
    }

    fn doc(&self) -> &'static str {
        "Gets or sets the slow-operation threshold. Only level 0 is supported."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["slowms", "sampleRate"]
    }

    fn unsupported_fields(&self) -> &'static [&'static str] {
        &["filter"]
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let changing = Needs::on_database(request, Action::EnableProfiler);
        let profile = Place::collection(request.db, "system.profile");
        let level = request.body.first().and_then(|(_, level)| level.as_f64());
        let options = ["slowms", "sampleRate", "filter"];
        let changes = options.iter().any(|name| request.body.contains_key(name));
        match level == Some(-1.0) && !changes {
            true => Ok(changing.or(Needs::on(profile, Action::Find))),
            false => Ok(changing),
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let level = args
            .i64("profile")?
            .ok_or_else(|| args.missing("profile"))?;
        // As in MongoDB, a level outside of 0..=2 only reads.
        if matches!(level, 1 | 2) {
            return Err(Error::not_supported(format!(
                "the profiling level {level}, which fills the collection 'system.profile',"
            )));
        }
        match args.f64("sampleRate")? {
            Some(rate) if !(0.0..=1.0).contains(&rate) => {
                return Err(Error::bad_value(
                    "'sampleRate' must be between 0.0 and 1.0 inclusive",
                ));
            }
            Some(rate) if rate < 1.0 => {
                return Err(Error::not_supported("a 'sampleRate' below 1.0"));
            }
            _ => {}
        }
        let was = cx.server.slow_operation();
        if let Some(slow_ms) = args.i64("slowms")? {
            // In MongoDB every operation exceeds a negative threshold.
            let ms = slow_ms.clamp(0, i64::from(i32::MAX)).unsigned_abs();
            cx.server.set_slow_operation(Duration::from_millis(ms));
        }
        Ok(doc! {
            "was": 0,
            "slowms": i32::try_from(was.as_millis()).unwrap_or(i32::MAX),
            "sampleRate": 1.0,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_threshold_is_read_and_set() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"profile": -1}, 100),
            (doc! {"profile": 0, "slowms": 20}, 100),
            (doc! {"profile": 7, "slowms": 5, "sampleRate": 1.0}, 20),
            (doc! {"profile": 0.0, "slowms": -1}, 5),
            (doc! {"profile": -1}, 0),
        ];
        for (command, slow_ms) in cases {
            assert_eq!(
                server.run("test", command.clone()),
                doc! {"was": 0, "slowms": slow_ms, "sampleRate": 1.0, "ok": 1.0},
                "{command:?}"
            );
        }
        assert_eq!(server.server.slow_operation(), Duration::ZERO);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_there_is_not_is_refused() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"profile": 1, "slowms": 1}, 238),
            (doc! {"profile": 2, "slowms": 1}, 238),
            (doc! {"profile": 0, "sampleRate": 0.5, "slowms": 1}, 238),
            (doc! {"profile": 0, "sampleRate": 2, "slowms": 1}, 2),
            (
                doc! {"profile": 0, "filter": {"op": "query"}, "slowms": 1},
                238,
            ),
            (doc! {"profile": "on"}, 14),
            (doc! {"profile": null}, 40414),
            (doc! {"profile": 0, "slowms": "x"}, 14),
            (doc! {"profile": 0, "level": 1}, 40415),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
        assert_eq!(server.server.slow_operation(), Duration::from_millis(100));
    }
}
