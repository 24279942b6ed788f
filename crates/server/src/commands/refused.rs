//! `mapReduce`: a known command that this server always refuses, with the error of a mongod that cannot run it either.

use frond_bson::DocBuf;
use frond_error::{Error, Result};

use super::{Command, Traits};
use crate::authorization::{Action, Needs, Requested};
use crate::context::Context;

/// A command that always fails.
pub struct Refused {
    names: &'static [&'static str],
    doc: &'static str,
    fields: &'static [&'static str],
    traits: Traits,
    error: fn() -> Error,
}

/// `mapReduce`
pub static MAP_REDUCE: Refused = Refused {
    names: &["mapReduce", "mapreduce"],
    doc: "Refuses: this server does not run JavaScript. Use a pipeline.",
    fields: &[
        "map",
        "reduce",
        "out",
        "query",
        "sort",
        "limit",
        "finalize",
        "scope",
        "verbose",
        "bypassDocumentValidation",
        "collation",
    ],
    traits: Traits::CHEAP,
    error: || {
        Error::location(
            31264,
            "Cannot run server-side javascript without the javascript engine enabled: this server has none; use a \
             pipeline of $group and $merge or $out in place of mapReduce",
        )
    },
};

impl Command for Refused {
    fn names(&self) -> &'static [&'static str] {
        self.names
    }

    fn doc(&self) -> &'static str {
        self.doc
    }

    fn fields(&self) -> &'static [&'static str] {
        self.fields
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::Find)
    }

    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Err((self.error)())
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_error_is_that_of_mongod() {
        let mut server = TestServer::new();
        let command = doc! {"mapReduce": "c", "map": "", "reduce": ""};
        assert_eq!(server.code("db", command), 31264);
    }
}
