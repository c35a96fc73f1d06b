//! Tests of patterns, including hostile ones.

use proptest::prelude::*;

use super::super::path::{PathList, PathPattern, ReadablePath};
use super::super::pattern::{HostList, matches_glob};
use super::*;

fn path_list(pattern: &str) -> PathList {
    PathPattern::parse(pattern).into_iter().collect()
}

fn path_matches(pattern: &str, path: &str) -> bool {
    path_list(pattern).allows(&ReadablePath::of(path).unwrap())
}

#[test]
fn a_path_pattern_matches_by_segments() {
    for (pattern, path, expected) in [
        ("/", "/", true),
        ("/", "/a", false),
        ("/simple/**", "/simple/", true),
        ("/simple/**", "/simple", true),
        ("/simple/**", "/simple/a/b", true),
        ("/simple/**", "/simplex/a", false),
        ("/**", "/", true),
        ("/**/*.csv", "/a.csv", true),
        ("/**/*.csv", "/a/b/c.csv", true),
        ("/**/*.csv", "/a/b/c.csvx", false),
        ("/*/x", "/a/x", true),
        ("/*/x", "/a/b/x", false),
        ("/a b", "/a%20b", true),
        ("/admin", "/%61dmin", true),
        ("/Admin", "/admin", false),
        ("/ü", "/%C3%BC", true),
    ] {
        assert_eq!(path_matches(pattern, path), expected, "{pattern} {path}");
    }
}

#[test]
fn a_method_in_another_case_is_denied_and_not_allowed() {
    let text = "default = \"allow\"\n[[role]]\nname = \"a\"\n\
                [[role.rule]]\nname = \"deny\"\noutcome = \"deny\"\nmethods = [\"POST\"]\nhosts = [\"a.example.org\"]\n\
                [[role.rule]]\nname = \"allow\"\noutcome = \"allow\"\nmethods = [\"GET\"]\nhosts = [\"b.example.org\"]\n\
                [[role.rule]]\nname = \"rest\"\noutcome = \"deny\"\nhosts = [\"b.example.org\"]\n";
    let rules = rules(text);
    for (url, method, expected) in [
        ("https://a.example.org/", "POST", false),
        // Some servers read it as `POST`.
        ("https://a.example.org/", "post", false),
        ("https://a.example.org/", "Post", false),
        ("https://a.example.org/", "PUT", true),
        ("https://b.example.org/", "GET", true),
        ("https://b.example.org/", "get", false),
    ] {
        let url = CanonicalUrl::parse(url).unwrap();
        let decision = rules.decide(&Caller::default(), &RequestView::request(&url, method));
        assert_eq!(decision.is_allowed(), expected, "{method} {url}");
    }
}

#[test]
fn a_request_whose_query_names_another_method_needs_the_permission_for_both() {
    let text = "default = \"deny\"\n[[role]]\nname = \"a\"\n\
                [[role.rule]]\nname = \"read\"\noutcome = \"allow\"\nmethods = [\"GET\"]\nhosts = [\"a.example.org\"]\n\
                [[role.rule]]\nname = \"kept\"\noutcome = \"deny\"\nmethods = [\"DELETE\"]\nhosts = [\"b.example.org\"]\n\
                [[role.rule]]\nname = \"any\"\noutcome = \"allow\"\nhosts = [\"b.example.org\"]\n\
                [[role.rule]]\nname = \"person\"\noutcome = \"ask\"\nhosts = [\"c.example.org\"]\n\
                [[role.rule]]\nname = \"tried\"\noutcome = \"report\"\nmethods = [\"PUT\"]\nhosts = [\"d.example.org\"]\n\
                [[role.rule]]\nname = \"rest\"\noutcome = \"allow\"\nhosts = [\"d.example.org\"]\n";
    let rules = rules(text);
    for (text, expected) in [
        (
            "https://a.example.org/?_method=get&x=1",
            decided(true, "a/read", ""),
        ),
        (
            "https://a.example.org/?_method=DELETE",
            decided(false, "default", ""),
        ),
        (
            "https://a.example.org/?_method=GET&_method=DELETE",
            decided(false, "default", ""),
        ),
        (
            "https://b.example.org/?_method=PUT",
            decided(true, "a/any", ""),
        ),
        (
            "https://b.example.org/?x=1;%5fmethod=delete",
            decided(false, "a/kept", ""),
        ),
        (
            "https://c.example.org/?_method=DELETE",
            decided(false, "a/person", ""),
        ),
        (
            "https://d.example.org/?_method=PUT",
            decided(true, "a/rest", "a/tried"),
        ),
        (
            "https://d.example.org/_method=PUT",
            decided(true, "a/rest", ""),
        ),
    ] {
        assert_eq!(fetch(&rules, text), expected, "{text}");
    }
    // The query is not visible in a tunnel.
    let target = url("https://a.example.org/?_method=DELETE");
    let tunnel = rules.decide(&caller("acme"), &RequestView::intercepted(&target));
    assert!(tunnel.is_allowed());
}

#[test]
fn a_path_with_several_readings_is_not_readable() {
    for path in [
        "/a%2Fb",
        "/a%5cb",
        "/a%252e",
        "/a//b",
        "/a/%2e%2e/b",
        "/a%00",
        "/%ff",
        "/%zz",
        "/a%2",
        "a",
        "/a\\b",
        "/x/..;/a",
        "/x/..%3bv=1/a",
        "/.;/a",
        "/;v=1/a",
        // Servers that ignore dots and blanks at the end of a segment read these as dot segments.
        "/x/..%20/a",
        "/x/.%20/a",
        "/x/.%20./a",
        "/x/%20/a",
        "/.../a",
        "/x/..%20;v=1/a",
        "/x/..%20",
    ] {
        assert_eq!(ReadablePath::of(path), None, "{path}");
    }
    let text = "default = \"allow\"\n[[role]]\nname = \"a\"\n[[role.rule]]\nname = \"b\"\noutcome = \"deny\"\npaths = [\"/admin/**\"]\n";
    let rules = rules(text);
    for (text, expected) in [
        ("https://a.example.org/x", true),
        ("https://a.example.org/admin/x", false),
        ("https://a.example.org/%61dmin/x", false),
        ("https://a.example.org/x/../admin/", false),
        ("https://a.example.org/x%2f..%2fadmin", false),
        ("https://a.example.org//admin/", false),
        ("https://a.example.org/x/..;/admin/", false),
        ("https://a.example.org/;v=1/admin/", false),
        ("https://a.example.org/x/..%20/admin/y", false),
        ("https://a.example.org/x/...y/z", true),
    ] {
        assert_eq!(fetch(&rules, text).0, expected, "{text}");
    }
}

#[test]
fn a_rule_that_denies_a_path_matches_each_reading_of_a_server() {
    for path in [
        "/admin/x",
        "/admin",
        "/ADMIN/x",
        "/%41dmin/x",
        "/admin;v=1/x",
        "/admin;/x",
        "/admin%3bv/x",
        "/admin./x",
        "/admin%20/x",
        "/Admin.;v/x",
    ] {
        let path = ReadablePath::of(path).unwrap();
        assert!(path_list("/admin/**").denies(&path), "{path:?}");
        assert!(path_list("/Admin/**").denies(&path), "{path:?}");
    }
    for (pattern, path, expected) in [
        ("/admin", "/admin/", true),
        ("/admin/", "/Admin", true),
        ("/x/*", "/x/a/", true),
        ("/", "/", true),
        ("/", "/a", false),
        ("/admin", "/admins", false),
        ("/admin/**", "/x;admin/y", false),
        ("/admin/**", "/", false),
    ] {
        let path = ReadablePath::of(path).unwrap();
        assert_eq!(
            path_list(pattern).denies(&path),
            expected,
            "{pattern} {path:?}"
        );
    }
}

#[test]
fn a_rule_that_allows_a_path_needs_its_readings_with_and_without_parameters() {
    for (pattern, path, expected) in [
        ("/public/**", "/public/a;v=1/b", true),
        ("/public/*", "/public/a;v=1", true),
        ("/files/*-public/x", "/files/secret;-public/x", false),
        ("/files/*;v=1", "/files/a;v=1", true),
        ("/files/a", "/files/a;v=1", false),
        ("/public/**", "/PUBLIC/a", false),
    ] {
        assert_eq!(path_matches(pattern, path), expected, "{pattern} {path}");
    }
}

#[test]
fn a_host_pattern_matches_whole_labels() {
    let mut hosts = HostList::default();
    for pattern in [
        "files.example.org",
        "*.Example.com",
        "api.*.example.net",
        "a.*.*.example.net",
    ] {
        hosts.insert(pattern).unwrap();
    }
    for (name, expected) in [
        ("files.example.org", true),
        ("x.files.example.org", false),
        ("example.com", false),
        ("a.example.com", true),
        ("a.b.example.com", true),
        ("notexample.com", false),
        ("api.eu.example.net", true),
        ("api.eu.west.example.net", false),
        ("a.eu.west.example.net", true),
        ("api.example.net", false),
    ] {
        let url = url(&format!("https://{name}/"));
        assert_eq!(hosts.matches(url.host()), expected, "{name}");
    }
    for wrong in [
        "*",
        "*.*.example.org",
        "a.*",
        "a.*.org",
        "a.example.*",
        "*.a.*.example.org",
        "a.x*.example.org",
        "",
        "a..example.org",
        "a.*.ex ample.org",
    ] {
        assert!(hosts.insert(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn many_wildcards_do_not_take_exponential_time() {
    let glob = "*a".repeat(200);
    let text = "a".repeat(8000) + "b";
    assert!(!matches_glob(glob.as_bytes(), text.as_bytes()));
    let pattern = format!("{}/x", "/**/a*".repeat(40));
    let path = "/a".repeat(4000);
    assert!(!path_matches(&pattern, &path));
}

/// The obvious definition, which is fast enough for short texts.
fn slow_glob(glob: &[u8], text: &[u8]) -> bool {
    match (glob, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|taken| slow_glob(rest, &text[taken..])),
        ([item, rest @ ..], [byte, others @ ..]) => item == byte && slow_glob(rest, others),
        _ => false,
    }
}

proptest! {
    #[test]
    fn a_glob_matches_as_it_is_defined(glob in "[ab*]{0,8}", text in "[ab]{0,10}") {
        prop_assert_eq!(
            matches_glob(glob.as_bytes(), text.as_bytes()),
            slow_glob(glob.as_bytes(), text.as_bytes())
        );
    }

    #[test]
    fn any_bytes_are_a_policy_or_a_problem(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(problems) = RuleSet::parse(&[PolicyText::new("p.toml", &bytes)]) {
            prop_assert!(!problems.is_empty());
            prop_assert!(problems.iter().all(|problem| problem.line >= 1 && !problem.remedy.is_empty()));
        }
    }

    #[test]
    fn a_rule_that_only_reports_changes_no_verdict(
        hosts in proptest::collection::vec("[abc]\\.example\\.org", 1..4),
        outcomes in proptest::collection::vec("allow|ask|deny", 1..4),
        at in 0..4_usize,
        asked in "[abcd]\\.example\\.org",
    ) {
        let rule = |index: usize, host: &str, outcome: &str| {
            format!("[[role.rule]]\nname = \"r{index}\"\noutcome = \"{outcome}\"\nhosts = [\"{host}\"]\n")
        };
        let mut lines: Vec<String> = hosts
            .iter()
            .zip(&outcomes)
            .enumerate()
            .map(|(index, (host, outcome))| rule(index, host, outcome))
            .collect();
        let head = "[[role]]\nname = \"a\"\n".to_owned();
        let before = rules(&(head.clone() + &lines.concat()));
        lines.insert(at.min(lines.len()), rule(99, "a.example.org", "report"));
        let after = rules(&(head + &lines.concat()));
        let target = format!("https://{asked}/");
        let target = url(&target);
        let decide = |rules: &RuleSet| rules.decide(&caller("acme"), &RequestView::fetch(&target));
        let (before, after) = (decide(&before), decide(&after));
        prop_assert_eq!(before.verdict(), after.verdict());
        prop_assert_eq!(before.approved().verdict(), after.clone().approved().verdict());
        // It reports what passes, by itself or with the answer of a person, unless an earlier rule decides.
        let mut earlier = hosts.iter().take(at.min(lines.len() - 1));
        let decides_first = asked == "a.example.org" && !earlier.any(|host| *host == asked);
        let after = after.approved();
        prop_assert_eq!(after.reported.is_some(), decides_first && after.is_allowed());
    }

    #[test]
    fn the_deny_list_overrides_everything_else_in_the_file(
        default in "allow|report|ask|deny",
        outcome in "allow|report|ask|deny",
        host in "[ab]\\.example\\.org",
    ) {
        let text = format!(
            "default = \"{default}\"\n[[deny]]\nname = \"d\"\nhosts = [\"a.example.org\"]\n[[role]]\nname = \"r\"\n\
             [[role.rule]]\nname = \"x\"\noutcome = \"{outcome}\"\nhosts = [\"{host}\"]\n"
        );
        prop_assert!(!fetch(&rules(&text), "https://a.example.org/").0);
    }
}

#[test]
fn a_role_by_certificate_holds_for_its_certificates_alone() {
    let text = "[[role]]\nname = \"agents\"\ncertificates = [\"spiffe://example.org/agents/*\", \"b.example.org\"]\n\
                [[role.rule]]\nname = \"files\"\noutcome = \"allow\"\nhosts = [\"files.example.org\"]\n";
    let rules = rules(text);
    let url = url("https://files.example.org/");
    for (certificate, is_allowed) in [
        ("spiffe://example.org/agents/one", true),
        ("b.example.org", true),
        ("spiffe://example.org/others/one", false),
        ("a.b.example.org", false),
        ("", false),
    ] {
        let caller = Caller {
            certificate: certificate.to_owned(),
            ..caller("acme")
        };
        let decision = rules.decide(&caller, &RequestView::tunnel(&url));
        assert_eq!(decision.is_allowed(), is_allowed, "{certificate}");
    }
}
