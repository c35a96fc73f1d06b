//! Section 5, rule by rule.

use super::*;

mod differential;

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
fn accessors_tell_what_was_read() {
    let url = CanonicalUrl::parse("https://Files.Example.com.:8443/a/b?c=d#e").unwrap();
    assert!(url.https() && url.root_dot());
    assert_eq!((url.scheme(), url.port()), ("https", 8443));
    assert_eq!((url.path(), url.path_and_query()), ("/a/b", "/a/b?c=d"));
    // Q-1 and T-5: the root dot does not travel.
    assert_eq!(url.host_header(), "files.example.com:8443");
    assert_eq!(url.without_query(), "https://files.example.com:8443/a/b");
    let Host::Name(name) = url.host() else {
        panic!("not a name");
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
    let longest = format!("{head}{}", "a".repeat(LONGEST_URL - head.len()));
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

// U-5
#[test]
fn u_5_brackets_hold_an_ipv6_address_and_nothing_else() {
    check("http://[2606:4700:0:0::1]/", "http://[2606:4700::1]/");
    check(
        "http://[2606:4700::8.8.8.8]/",
        "http://[2606:4700::808:808]/",
    );
    check("http://[2606:4700::A]:8080/", "http://[2606:4700::a]:8080/");
    for text in [
        "http://[fe80::1%eth0]/",
        "http://[v1.fe80::a]/",
        "http://[example.com]/",
        "http://[127.0.0.1]/",
        "http://[]/",
        "http://[::1/",
        "http://::1/",
        "http://[::1]a/",
        "http://[::1].example.com/",
        "http://[::1]:/",
        "http://a[::1]/",
        "http://[[::1]]/",
        "http://[::1]]/",
        "http://[1::2::3]/",
        "http://[::01.2.3.4]/",
        "http://[12345::]/",
    ] {
        check_refused(text, Code::InvalidUrl);
    }
}

// 8.3
#[test]
fn mapped_literals_become_the_address_inside() {
    check("http://[::ffff:8.8.8.8]/", "http://8.8.8.8/");
    check("http://[::ffff:7f00:1]:8080/", "http://127.0.0.1:8080/");
}

// U-6
#[test]
fn u_6_only_the_canonical_form_of_an_ipv4_address_is_accepted() {
    check("http://8.8.8.8/", "http://8.8.8.8/");
    check("http://127.0.0.1:8080/", "http://127.0.0.1:8080/");
    for text in [
        "http://127.1/",
        "http://127.0.1/",
        "http://0x7f000001/",
        "http://0X7F.0.0.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://010.8.8.8/",
        "http://8.8.8.8./",
        "http://8.8.8.8../",
        "http://08.8.8.8/",
        "http://8.8.8.08/",
        "http://256.1.1.1/",
        "http://1.2.3.4.5/",
        "http://example.123/",
        "http://a.0x1/",
        "http://a.0x/",
        "http://0/",
        "http://0xg/",
        "http://99999999999/",
        "http://example.1./",
    ] {
        check_refused(text, Code::AmbiguousHost);
    }
    check("http://1.2.3.4.example.com/", "http://1.2.3.4.example.com/");
    check("http://0x7f.example.com/", "http://0x7f.example.com/");
}

// U-7
#[test]
fn u_7_names_have_clean_labels() {
    let label = "a".repeat(63);
    check(
        &format!("http://{label}.com/"),
        &format!("http://{label}.com/"),
    );
    let longest = format!("{}example.com", "abc.".repeat(60)) + "mm";
    assert_eq!(longest.len(), 253);
    check(&format!("http://{longest}/"), &format!("http://{longest}/"));
    for host in [
        "",
        ".",
        "..",
        ".example.com",
        "example..com",
        "example.com..",
        "-a.example.com",
        "a-.example.com",
        "a.-example.com",
        "xn--.example.com",
        "xn--a.example.com",
        "xn--abc-.example.com",
        "xn--99999999.example.com",
        &format!("a{label}.com"),
        &format!("m{longest}"),
    ] {
        check_refused(&format!("http://{host}/"), Code::InvalidUrl);
    }
    for character in "*;()!'\"$&{}~,`<>^|+=".chars() {
        check_refused(
            &format!("http://a{character}b.example.com/"),
            Code::InvalidUrl,
        );
    }
}

// U-7
#[test]
fn u_7_one_root_dot_is_dropped_and_remembered() {
    let url = CanonicalUrl::parse("http://Example.com./a").unwrap();
    assert!(url.root_dot());
    assert_eq!(
        (url.host().to_string().as_str(), url.to_string().as_str()),
        ("example.com", "http://example.com./a")
    );
    assert_eq!(CanonicalUrl::parse(&url.to_string()), Ok(url));
}

// U-7
#[test]
fn u_7_international_names_are_mapped_without_transition() {
    check("http://bücher.example/", "http://xn--bcher-kva.example/");
    check("http://BÜCHER.example/", "http://xn--bcher-kva.example/");
    check("http://straße.example/", "http://xn--strae-oqa.example/");
    check("http://例え.テスト/", "http://xn--r8jz45g.xn--zckzah/");
    check(
        "http://παράδειγμα.example/",
        "http://xn--hxajbheg2az3al.example/",
    );
    check(
        "http://ΠΑΡΆΔΕΙΓΜΑ.example/",
        "http://xn--hxajbheg2az3al.example/",
    );
    check(
        "http://xn--BCHER-kva.example/",
        "http://xn--bcher-kva.example/",
    );
    // Written with a combining mark: the same letter.
    check(
        "http://bu\u{308}cher.example/",
        "http://xn--bcher-kva.example/",
    );
    check_refused("http://\u{308}a.example/", Code::InvalidUrl);
}

// U-8
#[test]
fn u_8_disguised_hosts_are_ambiguous() {
    for host in [
        "１２７.0.0.1",
        "①②⑦.0.0.1",
        "ｅxample.com",
        "ｅｘａｍｐｌｅ.com",
        "ⓔxample.com",
        "ﬁles.example.com",
        "exam\u{ad}ple.com",
        "exam\u{200b}ple.com",
        "exam\u{200d}ple.com",
        "exam\u{2060}ple.com",
        "example。com",
        "example．com",
        "example｡com",
        "127。0。0。1",
        "ℯxample.com",
        "\u{212a}.example.com",
        "bü\u{212a}.example",
        "exa\u{fe0f}mple.com",
        // A genuine international label does not excuse what is hidden beside it.
        "bü\u{ad}cher.example",
        "bü\u{200b}cher.example",
        "büﬁ.example",
        "１bücher.example",
        "bücher\u{fe0f}.example",
        "０x7f.0.0.1",
        "localhos\u{ff54}",
    ] {
        check_refused(&format!("http://{host}/"), Code::AmbiguousHost);
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
fn u_12_any_printable_character_may_stand_in_path_and_query() {
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
