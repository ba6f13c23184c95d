//! Shared by the test programs.
