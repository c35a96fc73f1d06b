//! `Location` values: a followed redirect leads to a URL that an agent could have written, and a relative one stays
//! on its origin.

#![no_main]

use std::sync::{Arc, LazyLock};

use dray_guard::{AdminPolicy, AppPolicy, CanonicalUrl, Chain, Code, EffectivePolicy};
use libfuzzer_sys::fuzz_target;

static POLICY: LazyLock<Arc<EffectivePolicy>> = LazyLock::new(|| {
    let admin = AdminPolicy {
        enabled: true,
        ..AdminPolicy::default()
    };
    Arc::new(EffectivePolicy::new(&admin, &AppPolicy::default()).expect("enabled"))
});

fuzz_target!(|location: &[u8]| {
    for first in [
        "https://start.example.com/a/b?c",
        "http://8.8.8.8:8080/",
        "https://start.example.com./",
    ] {
        let mut chain = Chain::start(first, POLICY.clone()).expect("plain");
        match chain.on_redirect(302, &[location]) {
            Ok(_) => {
                let text = chain.current().to_string();
                let again = CanonicalUrl::parse(&text).expect("canonical");
                assert_eq!(&again, chain.current());
                assert!(Chain::start(&text, POLICY.clone()).is_ok());
                let location = std::str::from_utf8(location).expect("followed");
                if !location.contains(':') && !location.starts_with("//") {
                    let start = CanonicalUrl::parse(first).expect("plain");
                    assert!(again.is_same_origin(&start));
                }
            }
            Err(refused) => {
                assert_ne!(refused.code, Code::InvalidUrl);
                assert_eq!(chain.current().to_string(), first);
            }
        }
    }
});
