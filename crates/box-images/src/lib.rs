//! Root file systems by name: pulled from registries, or brought as archives; verified, unpacked once, shared.
