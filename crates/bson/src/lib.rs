//! BSON documents as bytes: reading, building, validating, comparing and encoding as ordered keys.
