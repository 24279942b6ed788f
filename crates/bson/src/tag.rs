//! The BSON type bytes, as in the BSON specification (bsonspec.org), and their names in MongoDB.

pub const DOUBLE: u8 = 0x01;
pub const STRING: u8 = 0x02;
pub const DOCUMENT: u8 = 0x03;
pub const ARRAY: u8 = 0x04;
pub const BINARY: u8 = 0x05;
pub const UNDEFINED: u8 = 0x06;
pub const OBJECT_ID: u8 = 0x07;
pub const BOOL: u8 = 0x08;
pub const DATE_TIME: u8 = 0x09;
pub const NULL: u8 = 0x0A;
pub const REGEX: u8 = 0x0B;
pub const DB_POINTER: u8 = 0x0C;
pub const JAVASCRIPT: u8 = 0x0D;
pub const SYMBOL: u8 = 0x0E;
pub const JAVASCRIPT_WITH_SCOPE: u8 = 0x0F;
pub const INT32: u8 = 0x10;
pub const TIMESTAMP: u8 = 0x11;
pub const INT64: u8 = 0x12;
pub const DECIMAL128: u8 = 0x13;
pub const MIN_KEY: u8 = 0xFF;
pub const MAX_KEY: u8 = 0x7F;
/// Not a BSON type: the placeholder of a value that is stored elsewhere, with a number of 4 bytes. Elements of this
/// type can be iterated and copied, but have no value. Validation refuses them, so that none comes from outside.
pub const ELSEWHERE: u8 = 0x60;

/// Type bytes and the names that `$type` and error messages use.
const TYPES: [(u8, &str); 21] = [
    (DOUBLE, "double"),
    (STRING, "string"),
    (DOCUMENT, "object"),
    (ARRAY, "array"),
    (BINARY, "binData"),
    (UNDEFINED, "undefined"),
    (OBJECT_ID, "objectId"),
    (BOOL, "bool"),
    (DATE_TIME, "date"),
    (NULL, "null"),
    (REGEX, "regex"),
    (DB_POINTER, "dbPointer"),
    (JAVASCRIPT, "javascript"),
    (SYMBOL, "symbol"),
    (JAVASCRIPT_WITH_SCOPE, "javascriptWithScope"),
    (INT32, "int"),
    (TIMESTAMP, "timestamp"),
    (INT64, "long"),
    (DECIMAL128, "decimal"),
    (MIN_KEY, "minKey"),
    (MAX_KEY, "maxKey"),
];

/// The type byte of a type's name in MongoDB, such as "int" or "objectId".
pub fn type_code_of_name(name: &str) -> Option<u8> {
    TYPES
        .iter()
        .find(|(_, n)| *n == name)
        .map(|(code, _)| *code)
}

/// MongoDB's name of a type byte.
pub fn type_name_of_code(code: u8) -> Option<&'static str> {
    TYPES
        .iter()
        .find(|(c, _)| *c == code)
        .map(|(_, name)| *name)
}
