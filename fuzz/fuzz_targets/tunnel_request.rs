//! Raw bytes as the head of a request inside an intercepted tunnel. An accepted head names only the host of the tunnel,
//! in every form of the target, and a WebSocket handshake has only one interpretation.

#![no_main]

use dray_egress_fetcher::proxy::head::{
    ProxyRequest, RequestFraming, RequestRecipient, RequestTarget, head_length, parse_head,
};
use dray_guard::CanonicalUrl;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(length) = head_length(bytes, 0) else {
        return;
    };
    let Ok(request) = parse_head(&bytes[..length], RequestRecipient::Server) else {
        return;
    };
    // A tunnel inside the tunnel would lead to another host.
    assert!(!matches!(request.target, RequestTarget::Authority(_)));
    assert_ne!(request.method, "CONNECT");
    for tunnel in [
        "https://files.example.org/",
        "https://files.example.org:8443/",
        "http://files.example.org/",
    ] {
        check_target(&request, &CanonicalUrl::parse(tunnel).unwrap());
    }
    if request.is_websocket_handshake() {
        assert!(request.wants_websocket());
        assert_eq!(request.method, "GET");
        assert_eq!(request.framing, RequestFraming::Empty);
        assert_eq!(request.fields.get_all("upgrade").iter().count(), 1);
    }
});

fn check_target(request: &ProxyRequest, tunnel: &CanonicalUrl) {
    let Ok(url) = request.url_in_tunnel(tunnel) else {
        return;
    };
    assert_eq!(url.host(), tunnel.host());
    assert_eq!((url.port(), url.https()), (tunnel.port(), tunnel.https()));
    // The written URL is parsed as the same request to the same host.
    let repeated = CanonicalUrl::parse(&url.to_string()).unwrap();
    assert_eq!(repeated, url);
    if let RequestTarget::Origin(path) = &request.target {
        assert!(path.starts_with('/'));
    }
    let _ = request.has_fitting_host(&url);
}
