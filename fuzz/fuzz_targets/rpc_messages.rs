#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| door_langbot::fuzzing::messages(bytes));
