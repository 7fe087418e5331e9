#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    argala_fuzz::bodies(bytes);
});
