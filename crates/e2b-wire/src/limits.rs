//! How large anything may be.

/// Bytes of one message. SDKs send commands, paths and pieces of input in them; files go another way.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes of one message with input for a process: SDKs send all of it at once, in letters that take a third more.
pub const INPUT_MESSAGE_BYTES_MAX: usize = 32 << 20;

/// Characters of a sandbox id. Ours have [`crate::id::SANDBOX_ID_CHARS`].
pub const SANDBOX_ID_CHARS_MAX: usize = 64;
