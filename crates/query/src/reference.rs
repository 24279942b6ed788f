//! Which operators there are and which are lacking, for the page on compatibility.

use crate::{aggregate, expr, matcher, update};

/// One family of names.
pub struct Family {
    /// What the names are.
    pub title: &'static str,
    /// Those that work.
    pub names: Vec<&'static str>,
    /// Those that MongoDB has and this server does not: an error names them.
    pub lacking: Vec<&'static str>,
}

/// Every family of the query, update and aggregation languages, names in order.
pub fn families() -> Vec<Family> {
    let mut families = vec![
        matcher::reference(),
        update::reference(),
        aggregate::reference_of_stages(),
        aggregate::reference_of_accumulators(),
        aggregate::reference_of_windows(),
        expr::reference(),
    ];
    for family in &mut families {
        family.names.sort_unstable();
        family.names.dedup();
        family.lacking.sort_unstable();
    }
    families
}
