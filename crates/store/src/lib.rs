//! Collections, indexes, plans and transactions over ordered trees of bytes.
