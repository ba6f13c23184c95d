#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| box_server::fuzzing::form(bytes));
