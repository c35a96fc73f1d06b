//! Raw bytes as a response: they cause no panic, only the pinned address is dialled, at most the limit is stored, and
//! the fetch ends in time (the clock is paused).

#![no_main]

mod server;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|answer: &[u8]| {
    server::check(answer.to_vec(), &server::request());
});
