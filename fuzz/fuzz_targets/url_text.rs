//! Raw URL text: an accepted text is canonical, and every parser sees the same host in it.

#![no_main]

use dray_guard::{CanonicalUrl, Host};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(url) = CanonicalUrl::parse(text) else {
        return;
    };
    let canonical = url.to_string();
    assert_eq!(CanonicalUrl::parse(&canonical).as_ref(), Ok(&url));

    let root = if url.root_dot() { "." } else { "" };
    let host = format!("{}{root}", url.host());
    let raw = url::Url::parse(text).expect("accepted by the guard alone");
    let whatwg = url::Url::parse(&canonical).expect("canonical");
    let uri: http::Uri = canonical.parse().expect("canonical");
    assert_eq!(whatwg.host_str(), Some(host.as_str()));
    assert_eq!(uri.host(), Some(host.as_str()));
    for parsed in [&raw, &whatwg] {
        assert_eq!(parsed.scheme(), url.scheme());
        assert_eq!(parsed.port_or_known_default(), Some(url.port()));
        assert_eq!((parsed.username(), parsed.password()), ("", None));
    }
    match url.host() {
        Host::Name(name) => {
            let is_clean =
                |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
            assert!(name.as_str().bytes().all(is_clean));
            assert_eq!(raw.domain(), Some(host.as_str()));
        }
        // An address in the text is dotted decimal or in brackets, never another notation of a number.
        Host::Ip(address) => {
            assert!(text.contains('[') || text.contains(&address.to_string()));
        }
    }
});
