#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| door_e2b::files::fuzzing::form(bytes));
