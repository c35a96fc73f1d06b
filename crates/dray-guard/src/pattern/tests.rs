//! Tests of section 4, rule by rule, and of P-4.

use super::*;

fn url(text: &str) -> CanonicalUrl {
    CanonicalUrl::parse(text).unwrap()
}

#[track_caller]
fn check_refused(pattern: &str, expected: impl Fn(&PatternError) -> bool) {
    let error = HostPattern::parse(pattern).unwrap_err();
    assert!(expected(&error), "{pattern:?}: {error:?}");
    // An operator's list may have addresses: they match nothing.
    let is_literal = pattern.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_address = is_literal || matches!(error, PatternError::Address(_));
    let list = parse_admin_list(&format!("a.example, {pattern}"));
    assert_eq!(list.is_ok(), is_address, "{pattern:?}");
}

#[track_caller]
fn check_accepted(pattern: &str, canonical: &str) {
    assert_eq!(HostPattern::parse(pattern).unwrap().to_string(), canonical);
}

#[test]
fn grammar_accepts_exact_names_and_leading_wildcards() {
    check_accepted("example.com", "example.com");
    check_accepted("*.example.com", "*.example.com");
    check_accepted("A_b-1.Example.COM.", "a_b-1.example.com");
    check_accepted(" *.Example.com. ", "*.example.com");
    check_accepted("xn--bcher-kva.example", "xn--bcher-kva.example");
    check_accepted("1.example", "1.example");
    let label = "a".repeat(63);
    check_accepted(&format!("{label}.com"), &format!("{label}.com"));
}

// H-1
#[test]
fn h_1_names_are_at_most_253_long_and_end_in_no_number() {
    let longest = format!("{}example", "abc.".repeat(61)) + "aa";
    assert_eq!(longest.len(), 253);
    check_accepted(&longest, &longest);
    check_accepted(&format!("{longest}."), &longest);
    check_refused(&format!("a{longest}"), |error| {
        matches!(error, PatternError::TooLong(_))
    });
    for pattern in ["example.123", "1.2.3.4", "*.4", "*.2.3.4"] {
        check_refused(pattern, |error| matches!(error, PatternError::Address(_)));
    }
}

// H-2
#[test]
fn h_2_everything_but_a_bare_name_is_refused() {
    for pattern in [
        "*",
        "*.",
        "**.example.com",
        "*example.com",
        "a.*.example.com",
        "example.*",
        "*.*.example.com",
    ] {
        check_refused(pattern, |error| matches!(error, PatternError::Wildcard(_)));
    }
    for pattern in [
        "https://example.com",
        "example.com:443",
        "example.com/path",
        "user@example.com",
        "[::1]",
        "10.0.0.0/8",
        "::1",
        "example.com?q",
        "example.com#f",
        "exa%6dple.com",
        "example.com\\a",
    ] {
        check_refused(pattern, |error| matches!(error, PatternError::NotAHost(_)));
    }
    for pattern in ["localhost", "localhost.", "com"] {
        check_refused(pattern, |error| {
            matches!(error, PatternError::SingleLabel(_))
        });
    }
    let long = format!("{}.com", "a".repeat(64));
    for pattern in [
        "a..example.com",
        ".example.com",
        "example.com..",
        "*..",
        "*..example.com",
        "-a.example.com",
        "a-.example.com",
        "exa mple.com",
        "exa$mple.com",
        ".",
        "..",
        &long,
    ] {
        check_refused(pattern, |error| matches!(error, PatternError::Label(_)));
    }
}

// H-2
#[test]
fn h_2_refusing_a_non_ascii_pattern_shows_the_punycode_form() {
    let check = |pattern: &str, message: &str| {
        assert_eq!(
            HostPattern::parse(pattern).unwrap_err().to_string(),
            message
        );
    };
    check(
        "bücher.example",
        r#"host pattern "bücher.example" is not ASCII; write "xn--bcher-kva.example""#,
    );
    check(
        "*.bücher.example",
        r#"host pattern "*.bücher.example" is not ASCII; write "*.xn--bcher-kva.example""#,
    );
    check(
        "a b\u{e9}.example",
        "host pattern \"a b\u{e9}.example\" is not ASCII",
    );
}

// H-3
#[test]
fn h_3_patterns_match_whole_labels_of_the_canonical_host() {
    let check = |pattern: &str, host: &str, expected: bool| {
        let patterns = HostPatterns::parse([pattern]).unwrap();
        let url = url(&format!("https://{host}/"));
        assert_eq!(patterns.matches(&url), expected, "{pattern} on {host}");
    };
    check("example.com", "example.com", true);
    check("example.com", "EXAMPLE.com", true);
    check("example.com", "a.example.com", false);
    check("example.com", "example.com.evil.net", false);
    check("*.example.com", "a.example.com", true);
    check("*.example.com", "a.b.c.example.com", true);
    check("*.example.com", "example.com", false);
    check("*.example.com", "notexample.com", false);
    check("*.example.com", "a.example.com.evil.net", false);
    check("*.com", "example.com", true);
    check("xn--bcher-kva.example", "bücher.example", true);
    // An allowlist names one spelling: a host with a root dot is another.
    check("example.com", "example.com.", false);
    check("example.com.", "example.com.", false);
    check("*.example.com", "a.example.com.", false);
}

// P-2
#[test]
fn p_2_addresses_match_no_pattern() {
    let patterns = HostPatterns::parse(["*.com", "*.8", "8.example"].iter().take(1)).unwrap();
    for text in ["http://8.8.8.8/", "http://[2606:4700::1]/"] {
        assert!(!patterns.matches(&url(text)), "{text}");
    }
}

// H-4
#[test]
fn h_4_a_list_is_a_set() {
    let list = |text: &str| parse_admin_list(text).unwrap().unwrap();
    let expected = list("a.example,*.b.example");
    for text in [
        "*.b.example,a.example",
        " A.EXAMPLE. ,\t*.B.example ,a.example\n",
        r#"["*.b.example", " a.example "]"#,
    ] {
        assert_eq!(list(text), expected, "{text}");
    }
    let items: Vec<_> = expected.iter().map(ToString::to_string).collect();
    assert_eq!(items, ["a.example", "*.b.example"]);
}

// H-5
#[test]
fn h_5_wildcards_over_public_suffixes_are_legal_and_named() {
    let check = |pattern: &str, expected: bool| {
        let patterns = HostPatterns::parse([pattern]).unwrap();
        let named = patterns.over_public_suffixes().count() == 1;
        assert_eq!(named, expected, "{pattern}");
    };
    check("*.com", true);
    check("*.github.io", true);
    check("*.co.uk", true);
    check("*.example.com", false);
    check("*.pages.example.co.uk", false);
    check("github.io", false);
}

// P-4
#[test]
fn p_4_blank_text_counts_as_unset() {
    for text in ["", " ", "\t\n "] {
        assert!(parse_admin_list(text).unwrap().is_none());
    }
}

// P-2
#[test]
fn p_2_an_address_in_an_operator_s_list_is_an_entry_that_refuses() {
    for address in ["10.0.0.7", "8.8.8.8", "2001:db8::1", "[2001:db8::1]"] {
        let list = HostPatterns::parse_allowlist([address]).unwrap();
        assert!(!list.is_empty());
        assert!(list.iter().all(HostPattern::is_address), "{address}");
        let host = address.trim_matches(['[', ']']);
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        for text in [format!("https://{host}/"), "https://a.example/".to_owned()] {
            assert!(!list.matches(&url(&text)), "{address}: {text}");
        }
    }
    let mixed = HostPatterns::parse_allowlist(["10.0.0.7", "a.example"]).unwrap();
    assert!(mixed.matches(&url("https://a.example/")));
    for wrong in ["10.0.0.7:80", "http://10.0.0.7", "10.0.0.0/8", ""] {
        assert!(HostPatterns::parse_allowlist([wrong]).is_err(), "{wrong}");
    }
}

// P-4
#[test]
fn p_4_text_without_a_pattern_or_with_a_gap_is_an_error() {
    for text in [",", " , ,", "[]", "[ ]", r#"[""]"#, r#"["", " "]"#] {
        let error = parse_admin_list(text).unwrap_err();
        assert!(matches!(error, PatternError::NoPattern), "{text}: {error}");
    }
    for text in [
        "a.example,,b.example",
        "a.example,",
        ",a.example",
        r#"["a.example",""]"#,
    ] {
        let error = parse_admin_list(text).unwrap_err();
        assert!(matches!(error, PatternError::EmptyItem), "{text}: {error}");
    }
    for text in [
        "[a.example]",
        r#"["a.example""#,
        "[1]",
        r#"[["a.example"]]"#,
        "[null]",
    ] {
        let error = parse_admin_list(text).unwrap_err();
        assert!(matches!(error, PatternError::Json(_)), "{text}: {error}");
    }
}

#[test]
fn an_empty_set_matches_no_host() {
    let none = HostPatterns::parse::<[&str; 0]>([]).unwrap();
    assert!(none.is_empty());
    assert!(!none.matches(&url("https://a.example/")));
    assert!(!HostPatterns::parse(["a.example"]).unwrap().is_empty());
}
