//! Tests of the separate parts that implement the rules: each check holds even where another check would have refused.

use url::Url;

use super::super::authority::UrlAuthority;
use super::super::{CanonicalUrl, Code, agree};

fn url(text: &str) -> CanonicalUrl {
    CanonicalUrl::parse(text).unwrap()
}

// U-11
#[test]
fn u_11_any_difference_to_the_whatwg_parser_is_detected() {
    let check = |ours: &str, theirs: &str, expected: bool| {
        let agrees = agree::with_whatwg(&url(ours), &Url::parse(theirs).unwrap());
        assert_eq!(agrees, expected, "{ours} {theirs}");
    };
    check("http://a.example/", "http://a.example/", true);
    check("http://a.example./", "http://a.example./", true);
    check("http://[::ffff:8.8.8.8]/", "http://[::ffff:8.8.8.8]/", true);
    check("http://a.example/", "http://b.example/", false);
    check("http://a.example/", "http://a.example./", false);
    check("http://a.example/", "http://8.8.8.8/", false);
    check("http://8.8.8.8/", "http://a.example/", false);
    check("http://8.8.8.8/", "http://8.8.4.4/", false);
    check("http://[2606:4700::1]/", "http://[2606:4700::2]/", false);
    check("http://a.example:443/", "https://a.example/", false);
    check("http://a.example/", "http://a.example:8080/", false);
    check("http://a.example/", "http://user@a.example/", false);
    check("http://a.example/", "http://:password@a.example/", false);
    check("http://a.example/", "data:text/plain,a", false);
}

// U-11
#[test]
fn u_11_any_difference_to_the_http_parser_is_detected() {
    let check = |ours: &str, theirs: &str, expected: bool| {
        let agrees = agree::with_http(&url(ours), theirs);
        assert_eq!(agrees, expected, "{ours} {theirs}");
    };
    check("http://a.example/b?c", "http://a.example/b?c", true);
    check("http://a.example/b?c", "http://a.example:80/b?c", true);
    check("https://a.example./", "https://a.example./", true);
    check("http://a.example/", "https://a.example:80/", false);
    check("http://a.example/", "http://b.example/", false);
    check("http://a.example./", "http://a.example/", false);
    check("http://a.example/", "http://a.example:8080/", false);
    check("https://a.example/", "https://a.example:80/", false);
    check("http://a.example/b", "http://a.example/c", false);
    check("http://a.example/?b", "http://a.example/?c", false);
    check("http://a.example/", "http://a b/", false);
}

// U-4
#[test]
fn u_4_the_splitter_refuses_by_itself() {
    let check = |rest: &str, code: Code| {
        assert_eq!(UrlAuthority::split(rest).unwrap_err(), code, "{rest}");
    };
    check("", Code::InvalidUrl);
    check("/a", Code::InvalidUrl);
    check("a%62.example", Code::InvalidUrl);
    check("@", Code::UrlCredentials);
    check("a%40b@c", Code::UrlCredentials);
    assert!(UrlAuthority::split("a.example/@?%").is_ok());
}

#[test]
fn origins_differ_in_scheme_host_root_dot_or_port() {
    let first = url("https://a.example:8443/x?y");
    let check = |text: &str, expected: bool| {
        assert_eq!(first.is_same_origin(&url(text)), expected, "{text}");
    };
    check("https://A.example:8443/other", true);
    check("http://a.example:8443/x?y", false);
    check("https://b.example:8443/x?y", false);
    check("https://a.example.:8443/x?y", false);
    check("https://a.example/x?y", false);
}
