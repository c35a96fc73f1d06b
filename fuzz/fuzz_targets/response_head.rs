//! Raw bytes as a response: no panic, no other address than the pinned one is dialled, never more stored than the
//! limit, and it ends in time (the clock is paused).

#![no_main]

mod server;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|answer: &[u8]| {
    server::check(answer.to_vec(), &server::request());
});
