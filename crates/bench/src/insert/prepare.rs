//! Before the clock runs: is the collection as it should be?

use super::{Options, Plan};
use crate::client::Client;
use crate::collection::check_batch;
use crate::document::{Generator, Source};
use crate::error::{Error, Result};

/// Checks the settings against the server's limits and makes the collection ready. Returns how
/// many documents it holds.
pub fn prepare(client: &mut Client, options: &Options, plan: &Plan) -> Result<u64> {
    let document_bytes = Generator::new(0, options.elements as usize).document_bytes();
    check_batch(client, plan.acknowledged, options.batch, document_bytes)?;
    let collection = &plan.collection;
    if options.drop {
        collection.drop(client)?;
    }
    let already = collection.count(client)?;
    if already > 0 && !options.keep {
        return Err(Error::Settings(format!(
            "{collection} holds {already} documents: --drop drops them, --keep keeps them"
        )));
    }
    let fields = options.indexed_fields();
    let indexes: Vec<&[&str]> = fields.iter().map(std::slice::from_ref).collect();
    collection.create_indexes(client, &indexes)?;
    Ok(already)
}
