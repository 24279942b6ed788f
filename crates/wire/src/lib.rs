//! MongoDB's wire protocol: message framing, opcodes and compression.
