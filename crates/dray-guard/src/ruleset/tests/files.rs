//! Tests that a problem in a file is reported with its line and its remedy.

use super::*;

const RULE_TEXT: &str =
    "[[role]]\nname = \"a\"\n[[role.rule]]\nname = \"b\"\noutcome = \"allow\"\n";

/// Files with one problem each, and the beginning of the message.
const WRONG_FILES: [(&str, &str); 20] = [
    (
        "[[role]]\nname = \"a\"\n[[role.rule]]\nname = \"b\"\noutcome = \"ask\"\npaths = [\"/x\"]\n",
        "policy.toml:3: a person is asked about a host and a port, not methods and paths. Name hosts",
    ),
    (
        "\n\ndefault = \"maybe\"",
        "policy.toml:3: \"maybe\" is not an outcome. Write",
    ),
    (
        "# nothing\n",
        "policy.toml:1: the file has no rule. Write roles, or default",
    ),
    (
        "[[deny]]\nname = \"x\"\n",
        "policy.toml:1: the entry names nothing. Name hosts or ports",
    ),
    (
        "[[deny]]\nname = \"x\"\nhosts = []\n",
        "policy.toml:3: an empty list matches nothing. Leave the list out",
    ),
    (
        "[[deny]]\nname = \"x\"\nports = [\n 443,\n 70000]\n",
        "policy.toml:5: 70000 is not a port. Write numbers",
    ),
    (
        "[[deny]]\nname = \"x y\"\nports = [1]\n",
        "policy.toml:2: \"x y\" is not a name. Use 1 to 64",
    ),
    (
        "[[deny]]\nname = \"x\"\nhosts = [\"10.0.0.1\"]\n",
        "policy.toml:3: host pattern \"10.0.0.1\" is an address; patterns are host names. Block addresses with egress-fetcher.extra_blocked_cidrs.",
    ),
    (
        "[[deny]]\nname = \"x\"\nhosts = [\"https://a.example\"]\n",
        "policy.toml:3: host pattern",
    ),
    (
        "[[deny]]\nname = \"x\"\nhosts = [\"a.*\"]\n",
        "policy.toml:3: host pattern",
    ),
    (
        "[[role]]\nname = \"a\"\nhost = []\n",
        "policy.toml:3: unknown field `host`",
    ),
    (
        "[[role]]\nname = \"deny\"\n",
        "policy.toml:2: a role cannot be named \"deny\". Choose",
    ),
    (
        "[[role]]\nname = \"a\"\ntenants = [\" a\"]\n",
        "policy.toml:3: an item is empty or has blanks. Leave",
    ),
    (
        "[[role]]\nname = \"a\"\n[role.limits]\nconcurrent = 0\n",
        "policy.toml:4: a limit of 0. Leave it out",
    ),
    (
        "[[role]]\nname = \"a\"\n[role.limits]\nbytes_per_day = \"1 parsec\"\n",
        "policy.toml:4: `1 parsec` is not a size",
    ),
    ("not toml", "policy.toml:1:"),
    (
        "[[deny]]\nname = \"x\"\nports = [\"1-100\"]\n",
        "policy.toml:3: invalid type: string \"1-100\", expected a whole number.",
    ),
    (
        "[[deny]]\nname = \"x\"\nhosts = [\"api.*.b\u{fc}cher.example\"]\n",
        "policy.toml:3: host pattern \"api.*.b\u{fc}cher.example\" is not ASCII; write \"api.*.xn--bcher-kva.example\".",
    ),
    (
        "[[deny]]\nname = \"x\"\nhosts = [\"a.*.-b.example\"]\n",
        "policy.toml:3: host pattern \"a.*.-b.example\" has an invalid label",
    ),
    (
        "[[role]]\nname = \"a\"\n[[role]]\nname = \"a\"\n",
        "policy.toml:4: a role \"a\" exists at policy.toml:2. Rename",
    ),
];

/// Lines of a rule with one problem each, and the beginning of the message.
const WRONG_LINES: [(&str, &str); 12] = [
    (
        "methods = [\"get\"]",
        "policy.toml:6: \"get\" is not a method of a request. Write methods in capitals",
    ),
    (
        "methods = [\"CONNECT\"]",
        "policy.toml:6: \"CONNECT\" is not a method",
    ),
    (
        "paths = [\"simple\"]",
        "policy.toml:6: \"simple\" is not a pattern of paths. Write /simple/**",
    ),
    (
        "paths = [\"/a/../b\"]",
        "policy.toml:6: \"/a/../b\" is not a pattern",
    ),
    (
        "paths = [\"/a%20b\"]",
        "policy.toml:6: \"/a%20b\" is not a pattern",
    ),
    (
        "paths = [\"/a**\"]",
        "policy.toml:6: \"/a**\" is not a pattern",
    ),
    (
        "media_types = [\"csv\"]",
        "policy.toml:6: \"csv\" is not a media type. Write text/csv",
    ),
    (
        "robots = \"yes\"",
        "policy.toml:6: \"yes\" is not a mode of robots. Write \"ignore\"",
    ),
    ("max_bytes = 0", "policy.toml:6: a limit of 0."),
    (
        "outcom = 1",
        "policy.toml:6: unknown field `outcom`, expected one of",
    ),
    (
        "[[role.rule]]\nname = \"b\"\noutcome = \"deny\"",
        "policy.toml:6: the role has another rule \"b\" at line 3. Rename",
    ),
    (
        "[[role.rule]]\nname = \"c\"\noutcome = \"deny\"\nmax_bytes = 1",
        "policy.toml:6: media_types, max_bytes and robots are limits of what a rule allows. Move",
    ),
];

#[test]
fn every_problem_names_file_line_and_remedy() {
    let lines = WRONG_LINES.map(|(line, expected)| (format!("{RULE_TEXT}{line}\n"), expected));
    let files = WRONG_FILES.map(|(text, expected)| (text.to_owned(), expected));
    for (text, expected) in files.into_iter().chain(lines) {
        let found = problems(&text);
        let is_reported = found.iter().any(|problem| problem.starts_with(expected));
        assert!(is_reported, "{text}\n{found:?}");
    }
}

#[test]
fn all_problems_of_all_files_are_reported_together() {
    let wrong = "[[role]]\nname = \"a\"\n[[role.rule]]\nname = \"b\"\noutcome = \"maybe\"\npaths = [\"x\"]\n";
    let files = [
        PolicyText::new("10.toml", "default = \"deny\"\nnonsense = 1"),
        PolicyText::new("20.toml", wrong),
        PolicyText::new("30.toml", "default = \"deny\""),
        PolicyText::new("40.toml", "default = \"allow\""),
    ];
    let problems = RuleSet::parse(&files).unwrap_err();
    let places: Vec<_> = problems
        .iter()
        .map(|problem| format!("{}:{}", problem.file, problem.line))
        .collect();
    assert_eq!(places, ["10.toml:2", "20.toml:5", "20.toml:6", "40.toml:1"]);
}

#[test]
fn a_file_that_is_not_utf_8_or_too_large_is_refused_with_its_line() {
    let found = problems(b"default = \"deny\"\n# \xff\n");
    assert_eq!(
        found,
        ["policy.toml:2: the file is not UTF-8. Save it as UTF-8 text."]
    );
    let found = problems(format!(
        "default = \"deny\"\n#{}",
        "x".repeat(MAX_POLICY_BYTES)
    ));
    assert!(
        found[0].contains("the policy is larger than 1024 KiB"),
        "{found:?}"
    );
    let first_text = format!("default = \"deny\"\n#{}", "x".repeat(MAX_POLICY_BYTES / 2));
    let second_text = first_text.replace("default = \"deny\"", "[[role]]\nname = \"a\"");
    let files = [
        PolicyText::new("a.toml", &first_text),
        PolicyText::new("b.toml", &second_text),
    ];
    assert_eq!(RuleSet::parse(&files).unwrap_err().len(), 1);
}

#[test]
fn a_file_with_deep_nesting_or_too_many_rules_is_refused() {
    for (open, close) in [("[", "]"), ("{a=", "}")] {
        let deep = format!(
            "default = {}{}",
            open.repeat(100_000),
            close.repeat(100_000)
        );
        assert_eq!(problems(deep).len(), 1);
    }
    let many: Vec<String> = (0..5000)
        .map(|index| format!("[[deny]]\nname = \"n{index}\"\nports = [1]\n"))
        .collect();
    assert!(
        problems(many.concat())[0].contains("has 5000 rules; at most 4096"),
        "limit"
    );
    let wrong = "[[deny]]\nname = \"\"\n".repeat(1000);
    assert_eq!(problems(wrong).len(), 50);
}

#[test]
fn the_digest_is_the_one_that_sha256sum_prints() {
    // printf 'default = "deny"\n' | sha256sum
    let single_file = rules("default = \"deny\"\n");
    assert_eq!(
        single_file.digest(),
        dray_types::Sha256Digest::of(b"default = \"deny\"\n").to_hex()
    );
    let texts = ["default = \"deny\"\n", "[[role]]\nname = \"a\"\n"];
    let files = [
        PolicyText::new("a.toml", texts[0]),
        PolicyText::new("b.toml", texts[1]),
    ];
    let lines: Vec<String> = ["a.toml", "b.toml"]
        .iter()
        .zip(texts)
        .map(|(name, text)| {
            let digest = dray_types::Sha256Digest::of(text.as_bytes()).to_hex();
            format!("{digest}  {name}\n")
        })
        .collect();
    let lines = lines.concat();
    let expected = dray_types::Sha256Digest::of(lines.as_bytes()).to_hex();
    assert_eq!(RuleSet::parse(&files).unwrap().digest(), expected);
}

#[test]
fn limits_are_those_of_every_role_of_the_caller() {
    let rules = rules(
        "[[role]]\nname = \"a\"\ntenants = [\"acme\"]\n[role.limits]\nrequests_per_hour = 5\nbytes_per_day = \"1GiB\"\n\
         [[role]]\nname = \"b\"\n[role.limits]\nconcurrent = 2\n[[role]]\nname = \"c\"\n",
    );
    let acme = caller("acme");
    let limits: Vec<_> = rules.limits(&acme).collect();
    assert_eq!(limits.len(), 2);
    assert_eq!(
        (limits[0].0.name.as_str(), limits[0].1.requests_per_hour),
        ("a", Some(5))
    );
    assert_eq!(limits[0].1.bytes_per_day, Some(1 << 30));
    assert_eq!(
        (limits[1].0.name.as_str(), limits[1].1.concurrent),
        ("b", Some(2))
    );
    assert_eq!(rules.limits(&caller("other")).count(), 1);
}
