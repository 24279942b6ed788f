//! Rules for the plans of a command's queries.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frond_bson::Value;
use frond_error::Result;
use frond_store::PlanRules;

use super::parse::Request;
use crate::state::Server;

/// The rules for the queries of a command: its query settings, and the parameter `notablescan`.
pub fn rules(server: &Server, request: &Request<'_>) -> Result<Option<Arc<PlanRules>>> {
    let (body, is_explained) = match request.body.first() {
        Some(("explain", Value::Document(inner))) => (inner, true),
        _ => (request.body, false),
    };
    let name = body.first().map_or("", |(name, _)| name);
    let rules = match name {
        "find" | "aggregate" | "distinct" => {
            (server.execution.query_settings).rules(request.db, name, body, is_explained)?
        }
        _ => None,
    };
    if !server.execution.no_collection_scans.load(Ordering::Relaxed) {
        return Ok(rules);
    }
    let rules = rules.map_or_else(PlanRules::default, |rules| PlanRules::clone(&rules));
    Ok(Some(Arc::new(PlanRules {
        no_collection_scans: true,
        ..rules
    })))
}
