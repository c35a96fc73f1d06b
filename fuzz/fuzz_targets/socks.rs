//! Raw bytes as the messages of a SOCKS5 client: lengths are within the bytes, and a target is one authority.

#![no_main]

use dray_egress_fetcher::proxy::head::tunnel_url;
use dray_egress_fetcher::proxy::socks::{read_greeting, read_password, read_request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((_, length))) = read_greeting(bytes, false) {
        assert!(length <= bytes.len());
    }
    if let Ok(Some((password, length))) = read_password(bytes) {
        assert!(password.len() <= 255 && length <= bytes.len());
    }
    let Ok(Some((target, length))) = read_request(bytes) else {
        return;
    };
    assert!(length <= bytes.len());
    // Further bytes do not change the result, and fewer bytes are not enough.
    assert_eq!(
        read_request(&bytes[..length]),
        Ok(Some((target.clone(), length)))
    );
    assert_eq!(read_request(&bytes[..length - 1]), Ok(None));
    let port = target.rsplit(':').next().unwrap_or_default();
    if let Ok(url) = tunnel_url(&target, |_| false) {
        assert_eq!(url.port().to_string(), port);
    }
});
