//! Errors of commands, with MongoDB's codes and messages.

use frond_bson::DocBuf;

/// An error that is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    code: i32,
    name: &'static str,
    text: String,
}

impl Failure {
    /// Nothing has this name, or not here.
    pub fn command_not_found(name: &str) -> Failure {
        Failure {
            code: 59,
            name: "CommandNotFound",
            text: format!("no such command: '{name}'"),
        }
    }

    /// A collection's name is not a string, or empty.
    pub fn namespace(text: impl Into<String>) -> Failure {
        Failure {
            code: 73,
            name: "InvalidNamespace",
            text: text.into(),
        }
    }

    /// A field that must be there.
    pub fn missing(command: &str, field: &str) -> Failure {
        Failure {
            code: 40414,
            name: "Location40414",
            text: format!("BSON field '{command}.{field}' is missing but a required field"),
        }
    }

    /// A field of another type.
    pub fn wrong_type(command: &str, field: &str, expected: &str) -> Failure {
        Failure {
            code: 14,
            name: "TypeMismatch",
            text: format!(
                "BSON field '{command}.{field}' is the wrong type, expected type '{expected}'"
            ),
        }
    }

    /// Too many statements, or none.
    pub fn batch_size(count: usize, most: usize) -> Failure {
        Failure {
            code: 16,
            name: "InvalidLength",
            text: format!(
                "Write batch sizes must be between 1 and {most}. Got {count} operations."
            ),
        }
    }

    /// More collections than this server counts for.
    pub fn too_many_collections(most: usize) -> Failure {
        Failure {
            code: 96,
            name: "OperationFailed",
            text: format!("the null server counts the documents of at most {most} collections"),
        }
    }

    pub fn write(&self, reply: &mut DocBuf) {
        reply.clear();
        reply.push("ok", 0.0);
        reply.push("errmsg", self.text.as_str());
        reply.push("code", self.code);
        reply.push("codeName", self.name);
    }
}
