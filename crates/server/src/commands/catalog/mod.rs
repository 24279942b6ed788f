//! Databases, collections and indexes.

use crate::commands::spec::Command;

pub mod clone_collection_as_capped;
pub mod coll_mod;
mod coll_mod_index;
pub mod convert_to_capped;
pub mod create;
pub mod create_indexes;
pub mod drop;
pub mod drop_database;
pub mod drop_indexes;
pub mod list_collections;
pub mod list_databases;
pub mod list_indexes;
pub mod partitions;
pub mod re_index;
pub mod rename_collection;
pub mod truncate_capped;

pub static COMMANDS: &[&dyn Command] = &[
    &clone_collection_as_capped::CloneCollectionAsCapped,
    &coll_mod::CollMod,
    &convert_to_capped::ConvertToCapped,
    &create::Create,
    &create_indexes::CreateIndexes,
    &drop::Drop,
    &drop_database::DropDatabase,
    &drop_indexes::DropIndexes,
    &list_collections::ListCollections,
    &list_databases::ListDatabases,
    &list_indexes::ListIndexes,
    &partitions::AddPartition,
    &partitions::DropPartition,
    &partitions::GetPartitionInfo,
    &re_index::ReIndex,
    &rename_collection::RenameCollection,
    &truncate_capped::Captrunc,
    &truncate_capped::EmptyCapped,
];
