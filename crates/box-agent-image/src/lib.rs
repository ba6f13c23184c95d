//! The agent's bytes.
