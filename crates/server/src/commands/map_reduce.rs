//! `mapReduce`

use frond_bson::DocBuf;
use frond_error::Result;
use frond_query::error::Error;

use super::{Command, Traits};
use crate::context::Context;

/// Refuses, as a mongod with JavaScript disabled does.
pub struct MapReduce;

impl Command for MapReduce {
    fn names(&self) -> &'static [&'static str] {
        &["mapReduce", "mapreduce"]
    }

    fn doc(&self) -> &'static str {
        "Refuses: this server does not run JavaScript. Use a pipeline."
    }

    fn fields(&self) -> &'static [&'static str] {
        &[
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
        ]
    }

    fn traits(&self) -> Traits {
        Traits::CHEAP
    }

    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Err(Error::location(
            31264,
            "Cannot run server-side javascript without the javascript engine enabled: this server has none; use a \
             pipeline of $group and $merge or $out in place of mapReduce",
        ))
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_refuses() {
        let command = doc! {"mapReduce": "c", "map": "", "reduce": ""};
        assert_eq!(TestServer::new().code("db", command), 31264);
    }
}
