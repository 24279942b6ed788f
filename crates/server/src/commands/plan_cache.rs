//! `planCacheClear`, and the commands for index filters.

use frond_bson::DocBuf;
use frond_error::{Error, Result};

use super::{Command, Traits};
use crate::authorization::{Action, Needs, Requested};
use crate::context::Context;

const PLAN_CACHE: Traits = Traits {
    on_collection: true,
    ..Traits::CHEAP
};

/// Clears the plan cache of a collection.
pub struct PlanCacheClear;

impl Command for PlanCacheClear {
    fn names(&self) -> &'static [&'static str] {
        &["planCacheClear"]
    }

    fn doc(&self) -> &'static str {
        "Clears the plan cache of a collection."
    }

    fn fields(&self) -> &'static [&'static str] {
        // Plans for one query shape are not cleared separately: the next query chooses a plan again.
        &["query", "projection", "sort", "collation"]
    }

    fn traits(&self) -> Traits {
        PLAN_CACHE
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::PlanCacheWrite)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let args = cx.args();
        let query = args.doc_field("query")?;
        for name in ["projection", "sort", "collation"] {
            if args.doc_field(name)?.is_some() && query.is_none() {
                return Err(Error::bad_value(
                    "sort, projection or collation provided without query",
                ));
            }
        }
        cx.server.store.forget_plans(&namespace)?;
        Ok(DocBuf::new())
    }
}

/// Lists index filters, of which there are none.
pub struct PlanCacheListFilters;

impl Command for PlanCacheListFilters {
    fn names(&self) -> &'static [&'static str] {
        &["planCacheListFilters"]
    }

    fn doc(&self) -> &'static str {
        "Lists the index filters of a collection, of which there are none."
    }

    fn traits(&self) -> Traits {
        PLAN_CACHE
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::PlanCacheIndexFilter)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        cx.namespace()?;
        let mut reply = DocBuf::new();
        reply.push_array("filters", |_| ());
        Ok(reply)
    }
}

/// Clears index filters, of which there are none.
pub struct PlanCacheClearFilters;

impl Command for PlanCacheClearFilters {
    fn names(&self) -> &'static [&'static str] {
        &["planCacheClearFilters"]
    }

    fn doc(&self) -> &'static str {
        "Clears the index filters of a collection, of which there are none."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["query", "projection", "sort", "collation"]
    }

    fn traits(&self) -> Traits {
        PLAN_CACHE
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::PlanCacheIndexFilter)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        cx.namespace()?;
        Ok(DocBuf::new())
    }
}

/// Refuses: there are no index filters.
pub struct PlanCacheSetFilter;

impl Command for PlanCacheSetFilter {
    fn names(&self) -> &'static [&'static str] {
        &["planCacheSetFilter"]
    }

    fn doc(&self) -> &'static str {
        "Refuses: a query names its index with a hint."
    }

    fn fields(&self) -> &'static [&'static str] {
        &["query", "projection", "sort", "collation", "indexes"]
    }

    fn traits(&self) -> Traits {
        PLAN_CACHE
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::PlanCacheIndexFilter)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        cx.namespace()?;
        Err(Error::not_supported("the command 'planCacheSetFilter'"))
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn plans_are_forgotten_and_filters_refused() {
        let mut server = TestServer::new();
        server.fill("c", 3);
        let ok = doc! {"ok": 1.0};
        assert_eq!(server.run("test", doc! {"planCacheClear": "c"}), ok);
        assert_eq!(server.run("test", doc! {"planCacheClear": "none"}), ok);
        assert_eq!(
            server.code("test", doc! {"planCacheClear": "c", "sort": {"a": 1}}),
            2
        );
        let none = doc! {"filters": [], "ok": 1.0};
        assert_eq!(server.run("test", doc! {"planCacheListFilters": "c"}), none);
        assert_eq!(server.run("test", doc! {"planCacheClearFilters": "c"}), ok);
        let set = doc! {"planCacheSetFilter": "c", "query": {"a": 1}, "indexes": ["a_1"]};
        assert_eq!(server.code("test", set), 238);
    }
}
