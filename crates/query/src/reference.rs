//! The names of the operators that are supported and of those that are not, for the page on compatibility.

use crate::{accumulators, aggregate, expr, matcher, update};

/// One family of names.
pub struct Family {
    pub title: &'static str,
    /// Those that work, in order.
    pub names: Vec<&'static str>,
    /// Those that MongoDB has and this server does not, in order: an error names them.
    pub unsupported: Vec<&'static str>,
}

impl Family {
    fn new(
        title: &'static str,
        mut names: Vec<&'static str>,
        unsupported: &[&'static str],
    ) -> Family {
        names.sort_unstable();
        names.dedup();
        let mut unsupported = unsupported.to_vec();
        unsupported.sort_unstable();
        Family {
            title,
            names,
            unsupported,
        }
    }
}

/// Every family of the query, update and aggregation languages.
pub fn families() -> Vec<Family> {
    let (queries, updates, expressions) = (
        matcher::operators::names(),
        update::operators::names(),
        expr::operators::names(),
    );
    let (stages, windows) = (
        aggregate::stages::names(),
        aggregate::stages::window::function::names(),
    );
    let not_stages = aggregate::stages::UNSUPPORTED;
    vec![
        Family::new("Query operators", queries, &[]),
        Family::new("Update operators", updates, &[]),
        Family::new("Aggregation stages", stages, not_stages),
        Family::new("Accumulators of `$group`", accumulators::names(), &[]),
        Family::new("Window functions", windows, &[]),
        Family::new("Expression operators", expressions, &[]),
    ]
}
