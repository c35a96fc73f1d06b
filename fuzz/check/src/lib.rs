//! A replacement for the crate `libfuzzer-sys`: its macro turns a fuzz target into a function, which a test calls with
//! its inputs. It measures no coverage and finds no inputs.

/// Defines the function `run`, which gets the bytes of one input.
#[macro_export]
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:expr) => {
        /// Runs the target with one input.
        pub fn run($bytes: &[u8]) {
            $body
        }
    };
    (|$text:ident: &str| $body:expr) => {
        /// Runs the target with one input. Skips an input that is not UTF-8.
        pub fn run(bytes: &[u8]) {
            if let Ok($text) = std::str::from_utf8(bytes) {
                $body
            }
        }
    };
}
