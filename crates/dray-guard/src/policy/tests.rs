//! Tests of both truth tables line by line, of the order of the steps of 3.1, and of the digest.

use super::*;

const FILE_URL: &str = "https://files.example.com/a";

fn admin(list: Option<&str>) -> AdminPolicy {
    AdminPolicy {
        enabled: true,
        host_allowlist: list.map(|text| HostPatterns::parse(text.split(',')).unwrap()),
        ..AdminPolicy::default()
    }
}

fn app(list: Option<&[&str]>) -> AppPolicy {
    AppPolicy {
        enabled: None,
        host_allowlist: list.map(|items| items.iter().map(ToString::to_string).collect()),
    }
}

fn decide(admin: &AdminPolicy, app: &AppPolicy, text: &str) -> Result<(), Code> {
    EffectivePolicy::new(admin, app)?.check(&CanonicalUrl::parse(text)?)
}

// C-3: every line in which the app sets a value.
#[test]
fn on_off_table_of_3_2() {
    let check = |enabled: bool, by_app: Option<bool>, expected: Result<(), Code>| {
        let admin = AdminPolicy {
            enabled,
            ..AdminPolicy::default()
        };
        let app = AppPolicy {
            enabled: by_app,
            host_allowlist: None,
        };
        assert_eq!(
            decide(&admin, &app, FILE_URL),
            expected,
            "{enabled} {by_app:?}"
        );
    };
    check(false, None, Err(Code::DisabledByAdmin));
    check(false, Some(true), Err(Code::DisabledByAdmin));
    check(false, Some(false), Err(Code::DisabledByAdmin));
    check(true, None, Ok(()));
    check(true, Some(true), Ok(()));
    check(true, Some(false), Err(Code::DisabledByApp));
    assert!(!AdminPolicy::default().enabled);
}

// P-1: an empty list and no list differ. I-5: an app cannot widen the policy.
#[test]
fn allowlist_table_of_3_3() {
    const MATCHING_HOST: &str = "*.example.com";
    const OTHER_HOST: &str = "other.example";
    let check = |by_admin: Option<&str>, by_app: Option<&[&str]>, expected: Result<(), Code>| {
        let decision = decide(&admin(by_admin), &app(by_app), FILE_URL);
        assert_eq!(decision, expected, "{by_admin:?} {by_app:?}");
    };
    check(None, None, Ok(()));
    check(None, Some(&[MATCHING_HOST]), Ok(()));
    check(None, Some(&[OTHER_HOST]), Err(Code::HostNotInAppAllowlist));
    check(None, Some(&[]), Err(Code::HostNotInAppAllowlist));
    check(Some(MATCHING_HOST), None, Ok(()));
    check(Some(OTHER_HOST), None, Err(Code::HostNotInAdminAllowlist));
    check(Some(MATCHING_HOST), Some(&[MATCHING_HOST]), Ok(()));
    check(
        Some(MATCHING_HOST),
        Some(&[OTHER_HOST]),
        Err(Code::HostNotInAppAllowlist),
    );
    check(
        Some(OTHER_HOST),
        Some(&[MATCHING_HOST]),
        Err(Code::HostNotInAdminAllowlist),
    );
    check(
        Some(OTHER_HOST),
        Some(&[OTHER_HOST]),
        Err(Code::HostNotInAdminAllowlist),
    );
    check(
        Some(MATCHING_HOST),
        Some(&[]),
        Err(Code::HostNotInAppAllowlist),
    );
    check(
        Some(OTHER_HOST),
        Some(&[]),
        Err(Code::HostNotInAdminAllowlist),
    );
}

// C-3
#[test]
fn c_3_an_absent_app_policy_restricts_nothing() {
    let nothing = AppPolicy {
        enabled: None,
        host_allowlist: None,
    };
    assert_eq!(AppPolicy::default(), nothing);
    assert_eq!(
        decide(&admin(None), &AppPolicy::default(), FILE_URL),
        Ok(())
    );
}

// P-2
#[test]
fn p_2_an_address_is_refused_by_each_list_that_is_set() {
    let check = |by_admin: Option<&str>, by_app: Option<&[&str]>, expected: Result<(), Code>| {
        for text in ["http://8.8.8.8/", "http://[2606:4700::1111]/"] {
            assert_eq!(decide(&admin(by_admin), &app(by_app), text), expected);
        }
    };
    check(
        Some("*.example.com"),
        None,
        Err(Code::HostNotInAdminAllowlist),
    );
    check(
        None,
        Some(&["*.example.com"]),
        Err(Code::HostNotInAppAllowlist),
    );
    check(None, Some(&[]), Err(Code::HostNotInAppAllowlist));
    check(None, None, Ok(()));
}

// P-4
#[test]
fn p_4_an_invalid_app_pattern_refuses_every_fetch_of_the_app() {
    for bad in [
        "",
        " ",
        "*",
        "https://a.example",
        "10.0.0.1",
        "bücher.example",
    ] {
        let app = app(Some(&["files.example.com", bad]));
        assert_eq!(
            decide(&admin(None), &app, FILE_URL),
            Err(Code::PolicyInvalid),
            "{bad:?}"
        );
    }
    let off = AppPolicy {
        enabled: Some(false),
        ..app(Some(&["*"]))
    };
    assert_eq!(
        decide(&admin(None), &off, FILE_URL),
        Err(Code::DisabledByApp)
    );
}

/// 3.1: each URL fails at two or more steps; the earliest of them is reported.
#[test]
fn the_first_failing_step_of_3_1_decides() {
    let admin = AdminPolicy {
        https_only: true,
        ..admin(Some("*.example.com,*.local,listed.example"))
    };
    let app = app(Some(&["*.example.com", "*.local"]));
    let check =
        |text: &str, expected| assert_eq!(decide(&admin, &app, text), Err(expected), "{text}");
    check("ftp://u:p@10.0.0.1:99999/", Code::UnsupportedScheme);
    check("http://u:p@localhost:22/", Code::UrlCredentials);
    check("http://localhost:22/", Code::UnsupportedScheme);
    check("https://localhost:22/", Code::HostNotInAdminAllowlist);
    check("https://listed.example:22/", Code::HostNotInAppAllowlist);
    check("https://printer.local:22/", Code::PortNotAllowed);
    check("https://printer.local/", Code::BlockedHost);
    check("https://127.0.0.1:22/", Code::HostNotInAdminAllowlist);
    assert_eq!(decide(&admin, &app, FILE_URL), Ok(()));
}

// U-3
#[test]
fn u_3_plain_http_is_an_unsupported_scheme_if_the_operator_requires_https() {
    let admin = AdminPolicy {
        https_only: true,
        ..admin(None)
    };
    let none = AppPolicy::default();
    let http = "http://files.example.com/";
    assert_eq!(decide(&admin, &none, http), Err(Code::UnsupportedScheme));
    assert_eq!(decide(&admin, &none, FILE_URL), Ok(()));
}

// U-9
#[test]
fn u_9_ports_outside_the_set_are_refused() {
    let check = |ports: &str, port: u16, expected: Result<(), Code>| {
        let admin = AdminPolicy {
            ports: ports.parse().unwrap(),
            ..admin(None)
        };
        let text = format!("http://files.example.com:{port}/");
        let decision = decide(&admin, &AppPolicy::default(), &text);
        assert_eq!(decision, expected, "{ports} {port}");
    };
    let default = AllowedPorts::default().to_string();
    assert_eq!(default, "80,443,8000,8080,8443");
    for port in [80, 443, 8000, 8080, 8443] {
        check(&default, port, Ok(()));
    }
    for port in [1, 22, 81, 8081, 65535] {
        check(&default, port, Err(Code::PortNotAllowed));
    }
    check("9000", 9000, Ok(()));
    check("9000", 80, Err(Code::PortNotAllowed));
    check("any", 65535, Ok(()));
    check(" ANY ", 6667, Err(Code::PortNotAllowed));
    for bad in BAD_PORTS.into_iter().filter(|port| *port != 0) {
        check("any", bad, Err(Code::PortNotAllowed));
    }
}

// U-9
#[test]
fn u_9_lists_of_ports_are_read_strictly() {
    let check = |text: &str, expected: PortsError| {
        assert_eq!(
            text.parse::<AllowedPorts>().unwrap_err(),
            expected,
            "{text}"
        );
    };
    check("80,22", PortsError::Bad(22));
    check("10080", PortsError::Bad(10080));
    check("", PortsError::Empty);
    check(" ", PortsError::Empty);
    for item in ["0", "080", "+80", "-1", "65536", "http", "80-90", "٨٠"] {
        check(
            &format!("443,{item}"),
            PortsError::NotAPort(item.to_owned()),
        );
    }
    check("80,", PortsError::NotAPort(String::new()));
    let spaced: AllowedPorts = " 443 , 80 ".parse().unwrap();
    assert_eq!(spaced, AllowedPorts::listed([80, 443]).unwrap());
    assert_eq!(AllowedPorts::listed([]), Err(PortsError::Empty));
}

#[test]
fn switches_are_only_true_or_false() {
    assert_eq!(parse_switch("TRUE"), Ok(true));
    assert_eq!(parse_switch("false"), Ok(false));
    for text in ["", "1", "yes", "on", " true", "true ", "truе"] {
        let message = parse_switch(text).unwrap_err().to_string();
        assert!(message.contains(&format!("{text:?}")), "{message}");
    }
}

//
#[test]
fn x_1_the_redirect_limit_is_a_number_from_0_to_10() {
    assert_eq!(MaxRedirects::default().to_string(), "5");
    assert_eq!("0".parse::<MaxRedirects>().unwrap().get(), 0);
    assert_eq!("10".parse::<MaxRedirects>().unwrap().get(), 10);
    for text in [
        "11",
        "-1",
        "+5",
        "",
        "five",
        "5.0",
        " 5",
        "99999999999999999999",
    ] {
        assert!(text.parse::<MaxRedirects>().is_err(), "{text}");
    }
    assert!(MaxRedirects::new(256).is_err());
}

// C-4
#[test]
fn c_4_the_digest_does_not_depend_on_how_the_policy_is_written() {
    let of = |by_admin: Option<&str>, by_app: Option<&[&str]>| {
        policy_digest(&admin(by_admin), &app(by_app))
    };
    let base = of(
        Some("a.example,*.b.example"),
        Some(&["c.example", "d.example"]),
    );
    assert_eq!(base.len(), 64);
    assert_eq!(
        base,
        of(
            Some(" *.B.example. ,a.example"),
            Some(&["D.example", "c.example.", "c.example"])
        )
    );
    let effective = EffectivePolicy::new(
        &admin(Some("a.example,*.b.example")),
        &app(Some(&["c.example", "d.example"])),
    );
    assert_eq!(effective.unwrap().digest(), base);

    let mut digests = vec![base, of(None, Some(&[])), of(None, Some(&["*"]))];
    let changes: [fn(&mut AdminPolicy); 8] = [
        |policy| policy.enabled = false,
        |policy| policy.host_allowlist = None,
        |policy| policy.ports = AllowedPorts::any(),
        |policy| policy.https_only = true,
        |policy| policy.allow_downgrade = true,
        |policy| policy.max_redirects = MaxRedirects::new(4).unwrap(),
        |policy| policy.private_ranges = "10.1.0.0/16".parse().unwrap(),
        |policy| policy.blocked_hosts = HostPatterns::parse(["x.example"]).unwrap(),
    ];
    for change in changes {
        let mut changed = admin(Some("a.example"));
        digests.push(policy_digest(&changed, &AppPolicy::default()));
        change(&mut changed);
        let after = policy_digest(&changed, &AppPolicy::default());
        assert_ne!(digests.pop(), Some(after.clone()));
        digests.push(after);
    }
    let off = AppPolicy {
        enabled: Some(false),
        host_allowlist: None,
    };
    digests.push(policy_digest(&admin(None), &off));
    let count = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), count);
}

// H-5, 8.6
#[test]
fn risky_settings_give_warnings() {
    assert!(admin(Some("files.example.com")).warnings().is_empty());
    assert!(AdminPolicy::default().warnings().is_empty());
    let policy = AdminPolicy {
        private_ranges: "10.0.0.0/8".parse().unwrap(),
        blocked_hosts: HostPatterns::parse(["*.net"]).unwrap(),
        ..admin(None)
    };
    assert_eq!(
        policy.warnings(),
        [
            "blocked hosts: *.net covers every name under a public suffix",
            "10.0.0.0/8 opens a very wide private range",
            "private ranges are open to every app: no host allowlist is set",
        ]
    );
    assert_eq!(
        admin(Some("*.github.io")).warnings(),
        ["host allowlist: *.github.io covers every name under a public suffix"]
    );
}
