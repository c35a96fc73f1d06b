//! Fetches a response of raw bytes. They cause no panic and no connection to any address except the pinned one,
//! the content stays within its size limit, and the fetch ends in time (the clock is paused).

#![no_main]

mod server;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|answer: &[u8]| {
    server::check(answer.to_vec(), &server::request());
});
