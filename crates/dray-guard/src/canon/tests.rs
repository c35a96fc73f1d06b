//! Tests of section 5, rule by rule.

use super::*;

mod differential;
mod hosts;
mod parts;

#[track_caller]
fn check(text: &str, canonical: &str) {
    assert_eq!(
        CanonicalUrl::parse(text)
            .map(|url| url.to_string())
            .as_deref(),
        Ok(canonical),
        "{text}"
    );
}

#[track_caller]
fn check_refused(text: &str, code: Code) {
    assert_eq!(
        CanonicalUrl::parse(text).map(|url| url.to_string()),
        Err(code),
        "{text:?}"
    );
}

#[test]
fn plain_urls_are_accepted() {
    check("https://example.com", "https://example.com/");
    check(
        "HTTP://Example.COM:8080/a?b=c",
        "http://example.com:8080/a?b=c",
    );
    check("https://example.com?q", "https://example.com/?q");
    check("http://a_b.example.com/", "http://a_b.example.com/");
}

#[test]
fn accessors_return_the_parsed_parts() {
    let url = CanonicalUrl::parse("https://Files.Example.com.:8443/a/b?c=d#e").unwrap();
    assert!(url.https() && url.root_dot());
    assert_eq!((url.scheme(), url.port()), ("https", 8443));
    assert_eq!((url.path(), url.path_and_query()), ("/a/b", "/a/b?c=d"));
    // Q-1 and T-5: the root dot is not sent.
    assert_eq!(url.host_header(), "files.example.com:8443");
    assert_eq!(url.without_query(), "https://files.example.com:8443/a/b");
    let Host::Name(name) = url.host() else {
        panic!("the host must be a name");
    };
    assert_eq!(
        (name.as_str(), name.fqdn().as_str()),
        ("files.example.com", "files.example.com.")
    );
    let address = CanonicalUrl::parse("http://[2606:4700::1]:80/").unwrap();
    assert_eq!(address.host_header(), "[2606:4700::1]");
}

// U-1
#[test]
fn u_1_length_is_1_to_8192_bytes() {
    check_refused("", Code::InvalidUrl);
    let head = "http://example.com/";
    let longest = format!("{head}{}", "a".repeat(MAX_URL_BYTES - head.len()));
    check(&longest, &longest);
    check_refused(&format!("{longest}a"), Code::InvalidUrl);
    // The canonical form has to fit as well, or it could not be read again.
    check_refused(&format!("{head}{}", "é".repeat(4000)), Code::InvalidUrl);
}

// U-2
#[test]
fn u_2_characters_that_parsers_strip_are_refused_everywhere() {
    let forbidden = (0..=0x20)
        .chain(0x7f..=0x9f)
        .chain([0x2028, 0x2029, 0xfeff, 0xfffd, u32::from('\\')])
        .map(|number| char::from_u32(number).unwrap());
    for character in forbidden {
        for text in [
            format!("{character}http://example.com/"),
            format!("http{character}://example.com/"),
            format!("http:/{character}/example.com/"),
            format!("http://{character}example.com/"),
            format!("http://exam{character}ple.com/"),
            format!("http://example.com{character}/"),
            format!("http://example.com/a{character}b"),
            format!("http://example.com/?a{character}"),
            format!("http://example.com/#a{character}"),
            format!("http://example.com/{character}"),
        ] {
            check_refused(&text, Code::InvalidUrl);
        }
    }
    check_refused("http://a\\@127.0.0.1/", Code::InvalidUrl);
}

// U-3
#[test]
fn u_3_the_scheme_is_http_or_https_with_an_authority() {
    check("HtTpS://example.com/", "https://example.com/");
    for text in [
        "http:example.com",
        "http:/example.com",
        "http:///example.com",
        "http://",
        "http://?q",
        "http://#f",
        "https:",
        "//example.com/",
        "example.com/a",
        "/a",
        "://example.com/",
        "1http://example.com/",
        "ht_tp://example.com/",
        "http;//example.com",
    ] {
        check_refused(text, Code::InvalidUrl);
    }
    for text in [
        "ftp://example.com/",
        "file:///etc/passwd",
        "data:text/plain,hello",
        "javascript:alert(1)",
        "httpss://example.com/",
        "view-source:http://example.com/",
        "ws://example.com/",
    ] {
        check_refused(text, Code::UnsupportedScheme);
    }
}

// U-4
#[test]
fn u_4_credentials_are_refused() {
    for text in [
        "http://user@example.com/",
        "http://user:password@example.com/",
        "http://@example.com/",
        "http://:@example.com/",
        "http://example.com@127.0.0.1/",
        "http://example.com%40@127.0.0.1/",
        "http://a@b@example.com/",
        "http://@/",
    ] {
        check_refused(text, Code::UrlCredentials);
    }
    check("http://example.com/@a?b@c", "http://example.com/@a?b@c");
    check("http://example.com/#@evil.example", "http://example.com/");
}

// U-4
#[test]
fn u_4_percent_encoded_hosts_are_refused() {
    for text in [
        "http://exam%70le.com/",
        "http://127%2e0%2e0%2e1/",
        "http://example.com%2f.evil.example/",
        "http://%/",
        "http://[::1%25eth0]/",
        "http://example.com:8%30/",
    ] {
        check_refused(text, Code::InvalidUrl);
    }
}

// U-9
#[test]
fn u_9_ports_are_written_plainly() {
    check("http://example.com:80/", "http://example.com/");
    check("https://example.com:443/", "https://example.com/");
    check("https://example.com:80/", "https://example.com:80/");
    check("http://example.com:65535/", "http://example.com:65535/");
    for port in [
        "", "0", "00", "080", "+80", "-80", "65536", "99999", "808080", "8o", "８０", "80:80",
        "0x50", "8_0",
    ] {
        check_refused(&format!("http://example.com:{port}/"), Code::InvalidUrl);
    }
    check_refused("http://:80/", Code::InvalidUrl);
}

// U-10
#[test]
fn u_10_the_fragment_is_discarded() {
    check("http://example.com/a#b", "http://example.com/a");
    check("http://example.com#@127.0.0.1/", "http://example.com/");
    check("http://example.com?a#b?c", "http://example.com/?a");
}

// U-12
#[test]
fn u_12_path_and_query_keep_their_encoding() {
    check(
        "http://example.com/%41%2f%2e?%41",
        "http://example.com/%41%2f%2e?%41",
    );
    check("http://example.com/a/../b/./c", "http://example.com/b/c");
    check("http://example.com/../../a", "http://example.com/a");
    check("http://example.com/é?ü", "http://example.com/%C3%A9?%C3%BC");
    check(
        "http://example.com/%0d%0aX:1?%0D%0A",
        "http://example.com/%0d%0aX:1?%0D%0A",
    );
    check(
        "http://example.com/?http://127.0.0.1/",
        "http://example.com/?http://127.0.0.1/",
    );
    check(
        "http://example.com//127.0.0.1/",
        "http://example.com//127.0.0.1/",
    );
    check("http://example.com/a?", "http://example.com/a?");
}

// U-12
#[test]
fn u_12_path_and_query_may_contain_any_printable_character() {
    for character in ('!'..='~').filter(|character| *character != '\\') {
        for text in [
            format!("http://example.com/a{character}b"),
            format!("http://example.com/?a{character}b"),
        ] {
            let url = CanonicalUrl::parse(&text);
            assert_eq!(
                url.map(|url| url.host_header()).as_deref(),
                Ok("example.com"),
                "{text}"
            );
        }
    }
}

// U-13
#[test]
fn u_13_the_scheme_is_checked_before_the_host() {
    for text in [
        "gopher://127.0.0.1/",
        "gopher://user@127.0.0.1:70/",
        "dict://[::1]:11111/",
        "ldap://%/",
        "ftp:",
    ] {
        check_refused(text, Code::UnsupportedScheme);
    }
}

#[test]
fn names_are_read_like_hosts() {
    let read = |text: &str| text.parse::<CanonicalName>().map(|name| name.to_string());
    assert_eq!(
        read("Bücher.Example.").as_deref(),
        Ok("xn--bcher-kva.example")
    );
    for text in [
        "",
        "127.0.0.1",
        "[::1]",
        "a.example/b",
        "a.example:80",
        "a@b.example",
        "a.example?",
        "a.example#",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}
