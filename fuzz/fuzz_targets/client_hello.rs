//! Raw bytes as the first bytes of a tunnel: rustls, as a server, reads the same server name or refuses them.

#![no_main]

use dray_egress_fetcher::proxy::hello::{MAX_HELLO_BYTES, read_client_hello};
use libfuzzer_sys::fuzz_target;
use rustls::server::Acceptor;

fuzz_target!(|bytes: &[u8]| {
    let whole = read_client_hello(bytes);
    if bytes.len() >= MAX_HELLO_BYTES {
        assert_ne!(whole, Ok(None), "no further bytes are awaited");
    }
    // A decision about a prefix is the decision about all bytes.
    for end in [1, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let part = bytes.get(..end).unwrap_or_default();
        match read_client_hello(part) {
            Ok(None) => {}
            decided => assert_eq!(decided, whole),
        }
    }
    let Ok(Some(hello)) = whole else {
        return;
    };
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() && acceptor.read_tls(&mut rest).is_ok_and(|count| count > 0) {
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_owned);
                // rustls drops names that are addresses or no DNS names; it never reads another one.
                if let Some(name) = name {
                    let ours = hello.server_name.as_deref().unwrap_or_default();
                    assert!(ours.eq_ignore_ascii_case(&name), "{ours} {name}");
                }
                return;
            }
            Err(_) => return,
        }
    }
});
