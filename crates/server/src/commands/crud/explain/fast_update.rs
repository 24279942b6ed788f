//! The explanation of an update that is sent as a message and reads nothing.

use frond_bson::{DocBuf, doc};
use frond_store::{Namespace, UpdateRequest, Verbosity};

/// The reply without its end. As for the reply to the update, one document is said to change.
pub fn describe(
    namespace: &Namespace,
    request: &UpdateRequest<'_>,
    verbosity: Verbosity,
) -> DocBuf {
    let mut reply = doc! {"explainVersion": "1"};
    reply.push_doc("queryPlanner", |planner| {
        planner.push("namespace", namespace.as_str());
        planner.push("parsedQuery", request.filter);
        planner.push_doc("winningPlan", |plan| {
            plan.push("stage", "FAST_UPDATE");
            plan.push("upsert", request.upsert);
        });
        planner.push_array("rejectedPlans", |_| ());
    });
    if verbosity == Verbosity::QueryPlanner {
        return reply;
    }
    reply.push_doc("executionStats", |stats| {
        stats.push("executionSuccess", true);
        stats.push("nReturned", 0);
        stats.push("executionTimeMillis", 0);
        stats.push("totalKeysExamined", 0);
        stats.push("totalDocsExamined", 0);
        stats.push_doc("executionStages", |stage| {
            stage.push("stage", "FAST_UPDATE");
            stage.push("nReturned", 0);
            stage.push("nMatched", 1);
            stage.push("nWouldModify", 1);
            stage.push("upsert", request.upsert);
        });
        if verbosity == Verbosity::AllPlansExecution {
            stats.push_array("allPlansExecution", |_| ());
        }
    });
    reply
}
