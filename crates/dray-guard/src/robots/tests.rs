//! Tests with the rules and examples of RFC 9309, and of behaviour that the parsers of large crawlers share.

use super::*;

const TOKEN: &str = "dray";

/// Whether the product may request the path.
fn allows(text: impl AsRef<[u8]>, path: &str) -> bool {
    let file = RobotsFile::parse(text.as_ref(), TOKEN);
    file.decide(path).refused_by.is_none()
}

/// Checks paths against a group with these rules.
fn check(rules: &str, cases: &[(&str, bool)]) {
    let text = format!("user-agent: {TOKEN}\n{rules}");
    for (path, expected) in cases {
        assert_eq!(allows(&text, path), *expected, "{rules:?} {path}");
    }
}

#[test]
fn a_file_without_matching_rules_allows_everything() {
    for text in [
        "",
        "\n\n#\n",
        "not a rule",
        "<html><body>Disallow: /</body></html>",
        "disallow: /",
        "user-agent: other\ndisallow: /",
        "user-agent: dray\ndisallow:",
        "user-agent: dray\nallow:\n",
        "user-agent: *\n",
        "user-agent: dray\nsitemap: https://files.example.org/\n",
    ] {
        assert!(allows(text, "/a"), "{text:?}");
    }
}

#[test]
fn a_group_is_found_by_its_product_in_any_case_and_with_any_version() {
    for name in [
        "dray", "DRAY", "Dray/2.0", "dray bot", "dray; x", "  dray\t",
    ] {
        let text = format!("User-Agent:{name}\r\nDisallow: /a\r\n");
        assert!(!allows(&text, "/a"), "{name}");
    }
    for name in ["dra", "drayage", "dray-bot", "a dray", "", "*dray", "bot*"] {
        let text = format!("user-agent: {name}\ndisallow: /a\n");
        assert!(allows(&text, "/a"), "{name}");
    }
    // A product without a token has no group that names it.
    let file = RobotsFile::parse(b"user-agent:\ndisallow: /\nuser-agent: *\ndisallow: /a", "");
    assert_eq!(file.decide("/a").refused_by, Some(4));
    assert_eq!(file.decide("/b").refused_by, None);
}

#[test]
fn all_groups_of_a_product_count_together_and_the_general_ones_only_without_any() {
    let text = "user-agent: *\ndisallow: /general\n\n\
                user-agent: dray\ndisallow: /a\n\n\
                user-agent: other\nuser-agent: Dray\ndisallow: /b\n\n\
                user-agent: other\ndisallow: /c\n";
    for (path, expected) in [
        ("/a", false),
        ("/b", false),
        ("/c", true),
        ("/general", true),
    ] {
        assert_eq!(allows(text, path), expected, "{path}");
    }
    let text = "user-agent: *\ndisallow: /a\nuser-agent: * \ndisallow: /b\n";
    assert!(!allows(text, "/a") && !allows(text, "/b"));
    // An empty group that names the product replaces the general group.
    assert!(allows(
        "user-agent: *\ndisallow: /\nuser-agent: dray\n",
        "/a"
    ));
}

#[test]
fn lines_outside_groups_do_not_end_a_group() {
    let text = "user-agent: dray\ncrawl-delay: 5\nsitemap: /x\nuser-agent: other\n\ndisallow: /a\n";
    assert!(!allows(text, "/a"));
    assert_eq!(
        RobotsFile::parse(text.as_bytes(), TOKEN).decide("/a").line,
        Some(6)
    );
}

#[test]
fn every_line_ending_is_accepted_and_comments_and_blanks_are_ignored() {
    for end in ["\n", "\r", "\r\n", "\n\n", " # comment\n"] {
        let text = ["user-agent : dray", "  DISALLOW\t:  /a  ", "allow: /a/b#c"].join(end);
        assert!(!allows(&text, "/a"), "{end:?}");
        assert!(allows(&text, "/a/b"), "{end:?}");
    }
    assert!(!allows("\u{feff}user-agent: dray\ndisallow: /a", "/a"));
    let binary = b"\xff\xfe\0\nuser-agent: dray\ndisallow: /a\n\xff: \xff\n";
    assert!(!allows(binary, "/a"));
    let numbered = RobotsFile::parse(b"\r\n\nuser-agent: dray\r\n\rdisallow: /a", TOKEN);
    assert_eq!(numbered.decide("/a").refused_by, Some(5));
}

#[test]
fn the_longest_pattern_decides_and_of_equal_ones_the_one_that_allows() {
    check(
        "allow: /p\ndisallow: /",
        &[("/page", true), ("/other", false)],
    );
    check(
        "allow: /directory\ndisallow: /directory",
        &[("/directory/page", true)],
    );
    check("allow: /page\ndisallow: /*.htm", &[("/page.htm", false)]);
    check("allow: /page\ndisallow: /*.ph", &[("/page.php5", true)]);
    check(
        "allow: /$\ndisallow: /",
        &[("/", true), ("/page.htm", false)],
    );
    check(
        "disallow: /\nallow: /a/b",
        &[("/a/b/c", true), ("/a/", false)],
    );
    check(
        "disallow: /x/page.html\nallow: /x/",
        &[("/x/page.html", false), ("/x/", true)],
    );
}

#[test]
fn patterns_match_from_the_beginning_with_wildcards_and_an_end() {
    let fish = [
        ("/fish", false),
        ("/fish.html", false),
        ("/fish/salmon", false),
        ("/fishheads", false),
        ("/fish?id=anything", false),
        ("/Fish.asp", true),
        ("/catfish", true),
        ("/desert/fish", true),
    ];
    check("disallow: /fish", &fish);
    check("disallow: /fish*", &fish);
    check(
        "disallow: /fish/",
        &[("/fish/", false), ("/fish", true), ("/fish.html", true)],
    );
    check(
        "disallow: /*.php",
        &[
            ("/index.php", false),
            ("/a/b.php?c", false),
            ("/", true),
            ("/windows.PHP", true),
        ],
    );
    check(
        "disallow: /*.php$",
        &[
            ("/a.php", false),
            ("/a.php.php", false),
            ("/a.php?b", true),
            ("/a.php/", true),
        ],
    );
    check(
        "disallow: /fish*.php",
        &[
            ("/fish.php", false),
            ("/fishheads/cat.php?x", false),
            ("/Fish.PHP", true),
        ],
    );
    check("disallow: *a*b*$", &[("/xaxbx", false), ("/ba", true)]);
    check("disallow: /a$b", &[("/a$b", false), ("/a", true)]);
    check("disallow: /**x", &[("/yx", false), ("/y", true)]);
    check("disallow: a", &[("/a", true)]);
}

#[test]
fn encodings_of_the_same_path_are_equal() {
    // The table of RFC 9309, section 2.2.2.
    for (pattern, path) in [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
        (
            "/foo/bar?baz=https://foo.bar",
            "/foo/bar?baz=https%3A%2F%2Ffoo.bar",
        ),
        (
            "/foo/bar?baz=https%3a%2f%2ffoo.bar",
            "/foo/bar?baz=https://foo.bar",
        ),
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%e3%83%84", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
        ("/foo/bar/baz", "/foo/bar/%62%61%7A"),
        ("/a%2Ab", "/a*b"),
        ("/a%24", "/a$"),
        ("/a%zz%", "/a%zz%"),
        ("/%7Ejoe/", "/~joe/"),
    ] {
        check(&format!("disallow: {pattern}"), &[(path, false)]);
    }
    // An encoded slash of a path is not the end of a segment.
    check("disallow: /a/b", &[("/a%2Fb", true)]);
    check("disallow: /a%2Fb", &[("/a%2fb", false), ("/a/b", true)]);
}

#[test]
fn encodings_are_equal_in_a_query_that_a_wildcard_stands_for() {
    check(
        "disallow: /*to=https%3A%2F%2F",
        &[
            ("/a?to=https%3a%2f%2fb", false),
            ("/a?to=https://b", false),
            ("/to=https%3A%2F%2Fb", false),
            ("/to=https://b", true),
            ("/to=https://b?c", true),
        ],
    );
    check(
        "disallow: /*a%2Fb*c%3Ad$",
        &[
            ("/?a/b&c:d", false),
            ("/a%2Fb?c%3Ad", false),
            ("/a%2Fb?c:d", false),
            ("/a%2Fb?c:de", true),
            ("/a/b?c:d", true),
            ("/a%2Fb/c:d", true),
        ],
    );
}

#[test]
fn the_file_itself_is_always_allowed() {
    check(
        "disallow: /",
        &[
            ("/robots.txt", true),
            ("/robots.txt?x", true),
            ("/robots.txt2", false),
        ],
    );
}

#[test]
fn a_decision_names_its_line() {
    let file = RobotsFile::parse(b"user-agent: *\nallow: /a\ndisallow: /a/b", TOKEN);
    let decide = |path| {
        let decision = file.decide(path);
        (decision.refused_by, decision.line)
    };
    assert_eq!(decide("/a"), (None, Some(2)));
    assert_eq!(decide("/a/b"), (Some(3), Some(3)));
    assert_eq!(decide("/c"), (None, None));
}

#[test]
fn lines_and_rules_beyond_the_limits_are_ignored() {
    let mut text = b"user-agent: dray\n".to_vec();
    text.resize(MAX_ROBOTS_BYTES, b'\n');
    text.extend(b"disallow: /\n");
    assert!(allows(&text, "/a"));
    let mut text = "user-agent: dray\n".to_owned();
    text.extend((0..=MAX_RULES).map(|index| format!("disallow: /{index:05}\n")));
    assert!(!allows(&text, "/09999") && allows(&text, "/10000"));
    let file = RobotsFile::parse(text.as_bytes(), TOKEN);
    assert!(file.size() < 1024 * 1024);
}

#[test]
fn a_line_that_the_limit_truncates_is_ignored_and_a_complete_one_counts() {
    for (after, expected) in [("$\n", true), ("\ndisallow: /b\n", false)] {
        let rule = "disallow: /a";
        let mut text = "user-agent: dray\n".to_owned();
        text.push_str(&"\n".repeat(MAX_ROBOTS_BYTES - text.len() - rule.len()));
        text.push_str(rule);
        text.push_str(after);
        assert_eq!(allows(&text, "/a/b"), expected, "{after:?}");
        assert!(allows(&text, "/b"), "{after:?}");
    }
    assert_eq!(whole_lines(b"a\nb"), b"a");
    assert_eq!(whole_lines(b"a"), b"");
}

#[test]
fn a_hostile_pattern_does_not_make_a_decision_slow() {
    // Backtracking would need more steps than there are atoms.
    let pattern = format!("disallow: /{}b$", "*a".repeat(4_000));
    check(&pattern, &[(&format!("/{}", "a".repeat(8_000)), true)]);
    let rules = "disallow: *a*a*a*a*a*c\n".repeat(9_000);
    check(&rules, &[(&format!("/{}", "a".repeat(8_000)), true)]);
}

#[test]
fn the_product_is_the_token_at_the_start_of_the_user_agent() {
    for (agent, token) in [
        ("dray/0.1.0", "dray"),
        ("My_Bot-x (+https://example.org)", "My_Bot-x"),
        ("dray", "dray"),
        ("1bot", ""),
        ("", ""),
    ] {
        assert_eq!(product_token(agent), token);
    }
}
