//! Commands that list and clear the plan cache, and those for index filters.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, Result};
use frond_store::{AllowedIndexes, ShapeExample};

use crate::arguments::Arguments;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

const PLAN_CACHE: Spec = Spec {
    on_collection: true,
    ..Spec::CHEAP
};

/// The fields of commands about one query shape.
const SHAPE_FIELDS: &[&str] = &["query", "projection", "sort", "collation"];

pub struct PlanCacheClear;

const PLAN_CACHE_CLEAR: Spec = Spec {
    names: &["planCacheClear"],
    doc: "Clears the plan cache of a collection, or removes the plan for one query shape.",
    fields: SHAPE_FIELDS,
    ..PLAN_CACHE
};

impl Command for PlanCacheClear {
    fn spec(&self) -> &'static Spec {
        &PLAN_CACHE_CLEAR
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::PlanCacheWrite)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let example = example(&cx.args())?;
        let store = &cx.server.store;
        store.forget_plans(&namespace, example.as_ref())?;
        Ok(DocBuf::new())
    }
}

/// For shells before MongoDB 4.4.
pub struct PlanCacheListQueryShapes;

const PLAN_CACHE_LIST_QUERY_SHAPES: Spec = Spec {
    names: &["planCacheListQueryShapes"],
    doc: "Lists the query shapes in the plan cache of a collection: see `$planCacheStats`.",
    ..PLAN_CACHE
};

impl Command for PlanCacheListQueryShapes {
    fn spec(&self) -> &'static Spec {
        &PLAN_CACHE_LIST_QUERY_SHAPES
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::PlanCacheRead)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let plans = cx.server.store.cached_plans(&namespace)?;
        let mut reply = DocBuf::new();
        reply.push_array("shapes", |list| {
            for plan in &plans {
                // Shells identify a shape by its query, so a plan without one is left out.
                let Some(mut shape) = plan.example.clone() else {
                    continue;
                };
                shape.push("queryHash", plan.hashes.shape.as_str());
                list.push(&shape);
            }
        });
        Ok(reply)
    }
}

/// For shells before MongoDB 4.4.
pub struct PlanCacheListPlans;

const PLAN_CACHE_LIST_PLANS: Spec = Spec {
    names: &["planCacheListPlans"],
    doc: "Shows the plan in the plan cache for a query shape: see `$planCacheStats`.",
    fields: SHAPE_FIELDS,
    ..PLAN_CACHE
};

impl Command for PlanCacheListPlans {
    fn spec(&self) -> &'static Spec {
        &PLAN_CACHE_LIST_PLANS
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::PlanCacheRead)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let example = required_example(&cx.args())?;
        let plan = cx.server.store.cached_plan(&namespace, &example)?;
        let mut reply = DocBuf::new();
        reply.push_array("plans", |list| {
            if let Some(plan) = &plan {
                // The plan cache keeps no rejected plans.
                list.push(&doc! {
                    "details": {"solution": plan.summary.as_str()},
                    "feedback": {"nfeedback": i64::from(plan.uses)},
                    "filterSet": false,
                });
            }
        });
        if let Some(plan) = plan {
            reply.push("timeOfCreation", Value::DateTime(plan.chosen_ms));
            reply.push("queryHash", plan.hashes.shape.as_str());
            reply.push("planCacheKey", plan.hashes.key.as_str());
            reply.push("isActive", true);
            reply.push("works", i64::try_from(plan.works).unwrap_or(i64::MAX));
        }
        Ok(reply)
    }
}

/// Reads the fields that give an example of a shape, for a command that must have one.
fn required_example<'a>(args: &Arguments<'a>) -> Result<ShapeExample<'a>> {
    let missing = || Error::bad_value("required field query missing");
    match args.get("query") {
        None => Err(missing()),
        Some(_) => example(args)?.ok_or_else(missing),
    }
}

/// Reads the fields that give an example of a shape. Without one the command is about all queries.
fn example<'a>(args: &Arguments<'a>) -> Result<Option<ShapeExample<'a>>> {
    let object = |name: &str| match args.get(name) {
        None => Ok(None),
        Some(Value::Document(doc)) => Ok(Some(doc)),
        Some(_) => Err(Error::bad_value(format!("{name} must be an object"))),
    };
    let (sort, projection) = (object("sort")?, object("projection")?);
    let collation = object("collation")?;
    let Some(query) = object("query")? else {
        if sort.or(projection).or(collation).is_some() {
            return Err(Error::bad_value(
                "sort, projection or collation provided without query",
            ));
        }
        return Ok(None);
    };
    Ok(Some(ShapeExample {
        query,
        sort: sort.unwrap_or(Doc::empty()),
        projection: projection.unwrap_or(Doc::empty()),
        collation,
    }))
}

pub struct PlanCacheListFilters;

const PLAN_CACHE_LIST_FILTERS: Spec = Spec {
    names: &["planCacheListFilters"],
    doc: "Lists the index filters of a collection.",
    ..PLAN_CACHE
};

impl Command for PlanCacheListFilters {
    fn spec(&self) -> &'static Spec {
        &PLAN_CACHE_LIST_FILTERS
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::PlanCacheIndexFilter)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let filters = cx.server.store.index_filters(&namespace)?;
        let mut reply = DocBuf::new();
        reply.push_array("filters", |list| {
            for filter in &filters {
                let mut shown = filter.query.clone();
                shown.push("indexes", &filter.allowed.to_array());
                list.push(&shown);
            }
        });
        Ok(reply)
    }
}

pub struct PlanCacheClearFilters;

const PLAN_CACHE_CLEAR_FILTERS: Spec = Spec {
    names: &["planCacheClearFilters"],
    doc: "Removes the index filter of a query shape, or all of a collection.",
    fields: SHAPE_FIELDS,
    ..PLAN_CACHE
};

impl Command for PlanCacheClearFilters {
    fn spec(&self) -> &'static Spec {
        &PLAN_CACHE_CLEAR_FILTERS
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::PlanCacheIndexFilter)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let example = example(&cx.args())?;
        let store = &cx.server.store;
        store.clear_index_filters(&namespace, example.as_ref())?;
        Ok(DocBuf::new())
    }
}

pub struct PlanCacheSetFilter;

const PLAN_CACHE_SET_FILTER: Spec = Spec {
    names: &["planCacheSetFilter"],
    doc: "Says which indexes the queries of a shape may use, until the server stops.",
    fields: &["query", "projection", "sort", "collation", "indexes"],
    ..PLAN_CACHE
};

impl Command for PlanCacheSetFilter {
    fn spec(&self) -> &'static Spec {
        &PLAN_CACHE_SET_FILTER
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::PlanCacheIndexFilter)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let args = cx.args();
        let example = required_example(&args)?;
        let indexes = match args.get("indexes") {
            None => return Err(Error::bad_value("required field indexes missing")),
            Some(Value::Array(indexes)) => indexes,
            Some(_) => return Err(Error::bad_value("required field indexes must be an array")),
        };
        if indexes.is_empty() {
            return Err(Error::bad_value(
                "required field indexes must contain at least one index",
            ));
        }
        let allowed = AllowedIndexes::parse(indexes)?;
        cx.server
            .store
            .set_index_filter(&namespace, &example, allowed)?;
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn plans_are_forgotten() {
        let mut server = TestServer::new();
        server.fill("c", 3);
        let ok = doc! {"ok": 1.0};
        for command in [
            doc! {"planCacheClear": "c"},
            doc! {"planCacheClear": "c", "query": {"a": 1}, "sort": {"a": 1}},
            doc! {"planCacheClear": "none"},
            doc! {"planCacheClearFilters": "none"},
        ] {
            assert_eq!(server.run("test", command), ok);
        }
        for name in ["planCacheClear", "planCacheClearFilters"] {
            assert_eq!(server.code("test", doc! {name: "c", "sort": {"a": 1}}), 2);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn old_shells_list_shapes_and_plans() {
        let mut server = TestServer::new();
        let (shapes, plans) = (
            doc! {"planCacheListQueryShapes": "c"},
            doc! {"planCacheListPlans": "c", "query": {"a": 5, "b": 1}, "sort": {"c": -1}},
        );
        assert_eq!(
            server.run("test", shapes.clone()),
            doc! {"shapes": [], "ok": 1.0}
        );
        assert_eq!(
            server.run("test", plans.clone()),
            doc! {"plans": [], "ok": 1.0}
        );
        server.fill("c", 50);
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [
                {"key": {"a": 1}, "name": "a_1"}, {"key": {"b": 1}, "name": "b_1"},
            ]},
        );
        let find = doc! {"find": "c", "filter": {"a": 1, "b": 2}, "sort": {"c": -1}};
        server.run("test", find.clone());
        server.run("test", find);
        // A large query has a plan, but is not kept itself.
        let large: Vec<i32> = (0..1000).collect();
        let large = frond_bson::ArrayBuf::from_iter(large);
        server.run(
            "test",
            doc! {"find": "c", "filter": {"a": {"$in": &large}, "b": 2}},
        );
        let shown = server.run("test", shapes.clone());
        let shown = shown.get_array("shapes").unwrap();
        assert_eq!(shown.count(), 1);
        let shape = shown.get_doc("0").unwrap();
        assert_eq!(shape.get_doc("query").unwrap(), &*doc! {"a": 1, "b": 2});
        assert_eq!(shape.get_doc("sort").unwrap(), &*doc! {"c": -1});
        let of = server.run("test", plans.clone());
        assert_eq!(of.get_str("queryHash"), shape.get_str("queryHash"));
        assert_eq!(of.get_bool("isActive"), Some(true));
        assert!(of.get_i64("works").unwrap() > 0);
        let list = of.get_array("plans").unwrap();
        let plan = list.get_doc("0").unwrap();
        let summary = plan.get_doc("details").unwrap().get_str("solution");
        assert!(summary.unwrap().starts_with("IXSCAN"), "{of:?}");
        // One is removed, the other stays.
        let stats = doc! {"aggregate": "c", "pipeline": [{"$planCacheStats": {}}], "cursor": {}};
        let count = |server: &mut TestServer| {
            let reply = server.run("test", stats.clone());
            server.batch(&reply, "firstBatch").len()
        };
        assert_eq!(count(&mut server), 2);
        server.run(
            "test",
            doc! {"planCacheClear": "c", "query": {"a": 9, "b": 9}, "sort": {"c": -1}},
        );
        assert_eq!(count(&mut server), 1);
        assert_eq!(server.run("test", plans), doc! {"plans": [], "ok": 1.0});
        assert_eq!(
            server.code("test", doc! {"planCacheListPlans": "c"}),
            2,
            "without a query"
        );
    }

    fn planner(server: &mut TestServer, find: &DocBuf) -> (bool, String) {
        let explain = doc! {"explain": find, "verbosity": "queryPlanner"};
        let reply = server.run("test", explain);
        let planner = reply.get_doc("queryPlanner").unwrap();
        let plan = format!("{:?}", planner.get_doc("winningPlan").unwrap());
        (planner.get_bool("indexFilterSet").unwrap(), plan)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn queries_of_a_shape_use_the_indexes_of_its_filter() {
        let mut server = TestServer::new();
        server.fill("c", 50);
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [
                {"key": {"a": 1}, "name": "a_1"}, {"key": {"a": 1, "b": 1}, "name": "ab"},
            ]},
        );
        let none = doc! {"filters": [], "ok": 1.0};
        let list = doc! {"planCacheListFilters": "c"};
        assert_eq!(server.run("test", list.clone()), none);
        let set = |query: DocBuf, index: &str| {
            doc! {"planCacheSetFilter": "c", "query": query, "indexes": [index]}
        };
        server.run("test", set(doc! {"a": 1}, "ab"));
        let find = |a: i32| doc! {"find": "c", "filter": {"a": a}, "hint": "a_1"};
        let (is_set, plan) = planner(&mut server, &find(90));
        assert!(is_set && plan.contains("\"ab\""), "{plan}");
        // Another shape: other fields are returned, another order is wanted, or another operator is used.
        for other in [
            doc! {"find": "c", "filter": {"a": 1}, "projection": {"a": 1}},
            doc! {"find": "c", "filter": {"a": 1}, "sort": {"b": 1}},
            doc! {"find": "c", "filter": {"a": {"$gt": 1}}},
        ] {
            assert!(!planner(&mut server, &other).0, "{other:?}");
        }
        // An index that is not there leaves the scan of the collection.
        server.run("test", set(doc! {"a": 1}, "none"));
        let (is_set, plan) = planner(&mut server, &find(90));
        assert!(is_set && plan.contains("COLLSCAN"), "{plan}");
        let found = server.run("test", find(90));
        assert_eq!(server.batch(&found, "firstBatch").len(), 1);
        server.run(
            "test",
            doc! {"planCacheSetFilter": "c", "query": {"b": 1}, "sort": {"a": 1}, "indexes": [{"a": 1}]},
        );
        let filters = server.run("test", list.clone());
        assert_eq!(filters.get_array("filters").unwrap().count(), 2);
        server.run(
            "test",
            doc! {"planCacheClearFilters": "c", "query": {"a": 7}},
        );
        let filters = server.run("test", list.clone());
        let filters = filters.get_array("filters").unwrap();
        assert_eq!(
            filters.get_doc("0"),
            Some(
                &*doc! {"query": {"b": 1}, "sort": {"a": 1}, "projection": {}, "indexes": [{"a": 1}]}
            )
        );
        assert!(!planner(&mut server, &find(90)).0);
        server.run("test", doc! {"planCacheClearFilters": "c"});
        assert_eq!(server.run("test", list), none);
        for (command, code) in [
            (doc! {"planCacheSetFilter": "c", "indexes": ["a_1"]}, 2),
            (
                doc! {"planCacheSetFilter": "c", "query": 1, "indexes": ["a_1"]},
                2,
            ),
            (doc! {"planCacheSetFilter": "c", "query": {}}, 2),
            (
                doc! {"planCacheSetFilter": "c", "query": {}, "indexes": []},
                2,
            ),
            (
                doc! {"planCacheSetFilter": "c", "query": {}, "indexes": 1},
                2,
            ),
            (
                doc! {"planCacheSetFilter": "c", "query": {}, "indexes": [1]},
                2,
            ),
            (
                doc! {"planCacheSetFilter": "none", "query": {}, "indexes": ["a_1"]},
                2,
            ),
        ] {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
    }
}
