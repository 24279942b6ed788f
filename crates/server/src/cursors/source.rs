//! Sources of a cursor: a query, documents in memory, a backup.

use frond_bson::DocBuf;
use frond_error::Result;
use frond_store::QueryCursor;

use super::BackupSource;
use crate::memory_quota::Release;

/// The source of a cursor's documents.
pub enum Source {
    /// A query over collections. Boxed, because it is most of the size of an idle cursor.
    Query(Box<QueryCursor>),
    /// Documents in memory, such as those of `listCollections`.
    Fixed(std::vec::IntoIter<DocBuf>),
    /// The stream of a backup.
    Backup(Box<BackupSource>),
}

impl Source {
    /// Lets go of memory that it can do without.
    ///
    /// # Errors
    /// Errors of the engine and of temporary files.
    pub fn release(&mut self, what: Release) -> Result<()> {
        match (self, what) {
            (Source::Query(cursor), Release::Pages) => cursor.release_pages(),
            (Source::Query(cursor), Release::Memory) => cursor.release_memory()?,
            (Source::Fixed(_) | Source::Backup(_), _) => {}
        }
        Ok(())
    }
}
