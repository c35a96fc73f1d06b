//! A stand-in for the crate `libfuzzer-sys`: its macro makes a function of a fuzz target, which a test calls with inputs of
//! its own. It measures no coverage and finds no inputs.

/// Makes `run`, which takes the bytes of one input.
#[macro_export]
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:expr) => {
        /// Runs the target with one input.
        pub fn run($bytes: &[u8]) {
            $body
        }
    };
    (|$text:ident: &str| $body:expr) => {
        /// Runs the target with one input; text that is not UTF-8 is none.
        pub fn run(bytes: &[u8]) {
            if let Ok($text) = std::str::from_utf8(bytes) {
                $body
            }
        }
    };
}
