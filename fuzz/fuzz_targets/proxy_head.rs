//! Raw bytes as the head of a proxy request: an accepted head has only one interpretation, and a canonical target names
//! one host.

#![no_main]

use dray_egress_fetcher::proxy::head::{
    RequestFraming, RequestRecipient, RequestTarget, head_length, parse_head,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(length) = head_length(bytes, 0) else {
        return;
    };
    let head = &bytes[..length];
    // The head ends at the same byte when it arrives byte by byte.
    let found = (1..=bytes.len()).find_map(|end| head_length(&bytes[..end], end - 1));
    assert_eq!(found, Some(length));
    let Ok(request) = parse_head(head, RequestRecipient::Proxy) else {
        return;
    };
    let lines = head.split(|byte| *byte == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        assert_eq!(line.last(), Some(&b'\r'), "no bare line end");
        assert!(
            !line.starts_with(b" ") && !line.starts_with(b"\t"),
            "no folding"
        );
        assert_eq!(line.iter().filter(|byte| **byte == b'\r').count(), 1);
    }
    let count = |name: &str| request.fields.get_all(name).iter().count();
    let (codings, lengths) = (count("transfer-encoding"), count("content-length"));
    match request.framing {
        RequestFraming::Empty => assert_eq!((codings, lengths), (0, 0)),
        RequestFraming::Length(_) => assert_eq!((codings, lengths), (0, 1)),
        RequestFraming::Chunked => assert_eq!((codings, lengths), (1, 0)),
    }
    let is_tunnel = matches!(request.target, RequestTarget::Authority(_));
    assert_eq!(is_tunnel, request.method == "CONNECT");
    if let Ok(url) = request.url(|_| false) {
        assert_eq!(url.https(), is_tunnel);
        assert!(url.to_string().parse::<dray_guard::CanonicalUrl>().is_ok());
        let _ = request.has_fitting_host(&url);
    }
});
