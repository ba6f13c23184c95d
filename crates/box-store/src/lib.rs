//! The embedded memory of a server: SQLite behind box-core's Store.
