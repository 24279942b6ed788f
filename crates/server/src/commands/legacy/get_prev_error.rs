use frond_bson::{DocBuf, doc};
use frond_error::Result;

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct GetPrevError;

const SPEC: Spec = Spec {
    names: &["getPrevError", "getpreverror"],
    doc: "Reports the last error on this connection and how many operations ago it was.",
    keeps_last_error: true,
    ..Spec::CHEAP
};

impl Command for GetPrevError {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::Anyone)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let last = &cx.state.last_error;
        Ok(match &last.failure {
            None => doc! {"err": null, "n": 0, "nPrev": -1},
            Some(failure) => doc! {
                "err": failure.message(),
                "code": failure.code().code(),
                "n": 0,
                "nPrev": i32::try_from(last.age + 1).unwrap_or(i32::MAX),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn errors_age() {
        let mut server = TestServer::new();
        let none = server.run("test", doc! {"getPrevError": 1});
        assert_eq!(none.get_i32("nPrev"), Some(-1));
        server.reply("test", doc! {"ping": 1, "x": 1});
        server.run("test", doc! {"ping": 1});
        let reply = server.run("test", doc! {"getPrevError": 1});
        assert_eq!(
            (reply.get_i32("nPrev"), reply.get_i32("code")),
            (Some(2), Some(40415))
        );
        server.run("test", doc! {"resetError": 1});
        assert_eq!(
            server
                .run("test", doc! {"getPrevError": 1})
                .get_i32("nPrev"),
            Some(-1)
        );
    }
}
