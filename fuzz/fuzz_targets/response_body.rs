//! Bodies: any bytes after a valid head cause no panic, at most the limit is stored, the counts agree with the stored
//! bytes, and the fetch ends in time (the clock is paused).
//!
//! The first byte chooses framing and coding, the second the limit; the rest is the body on the wire.

#![no_main]

mod server;

use dray_egress_fetcher::fetch::FetchJob;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [shape, limit, body @ ..] = bytes else {
        return;
    };
    let framing = match shape % 4 {
        0 => String::new(),
        1 => "Transfer-Encoding: chunked\r\n".to_owned(),
        2 => format!("Content-Length: {}\r\n", body.len()),
        _ => format!("Content-Length: {}\r\n", u32::from(*limit) * 16),
    };
    let coding = match (shape / 4) % 3 {
        0 => "",
        1 => "Content-Encoding: gzip\r\n",
        _ => "Content-Encoding: deflate\r\n",
    };
    let mut response = format!("HTTP/1.1 200 OK\r\n{framing}{coding}\r\n").into_bytes();
    response.extend_from_slice(body);
    let request = FetchJob {
        size_limit: u64::from(*limit) * 16 + 1,
        ..server::request()
    };
    server::check(response, &request);
});
