//! Tests of access: login links, sessions, roles, forged forms, requests from other host names and sites.

use super::*;
use crate::server::form_routes;

/// Every page, with a text that is on it.
const PAGE_TEXTS: [(&str, &str); 6] = [
    ("/live", "<h1>Live</h1>"),
    ("/deliveries", "<h1>Deliveries</h1>"),
    ("/letters", "<h1>Dead letters</h1>"),
    ("/policy", "<h1>Policy tester</h1>"),
    ("/sandboxes", "<h1>Sandboxes</h1>"),
    ("/setup", "<h1>Set-up</h1>"),
];

#[tokio::test]
async fn paths_that_name_nothing_show_the_navigation() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    let missing = console.get("/leters", Some(&login)).await;
    assert_eq!(missing.status, 404, "{missing:?}");
    assert!(missing.body.contains("<code>/leters</code>"), "{missing:?}");
    let letter = console.get("/letters/zz", Some(&login)).await;
    assert!(
        letter.body.contains("The dead letter zz does not exist"),
        "{letter:?}"
    );
    for page in [missing, letter] {
        assert!(page.body.contains("href=\"/deliveries\""), "{page:?}");
        assert!(page.header("content-security-policy").is_some());
    }
    let unknown_asset = console.get("/assets/none.js", None).await;
    assert_eq!(unknown_asset.status, 404);
}

#[tokio::test]
async fn paths_with_invalid_bytes_and_addresses_of_actions_show_the_navigation() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Act).await;
    for path in [
        "/letters/%FF",
        "/operations/a%C0%80",
        "/files/%FF",
        "/playground/%FF/events",
        "/none/%FF",
    ] {
        let missing = console.get(path, Some(&login)).await;
        assert_eq!(missing.status, 404, "{path}");
        assert!(
            missing.body.contains("<h1>Page not found</h1>"),
            "{path}: {missing:?}"
        );
        assert_eq!(console.get(path, None).await.status, 401, "{path}");
    }
    // The address that a browser shows after an action.
    let action = console.get("/letters/redrive", Some(&login)).await;
    assert_eq!(action.status, 405);
    assert_eq!(action.header("allow"), Some("POST"));
    assert!(action.body.contains("<h1>Not a page</h1>"), "{action:?}");
    let posted = console.post("/letters", &login, "").await;
    assert_eq!(
        (posted.status, posted.header("allow")),
        (405, Some("GET,HEAD"))
    );
    for page in [action, posted] {
        assert!(page.body.contains("href=\"/deliveries\""), "{page:?}");
    }
}

#[tokio::test]
async fn a_link_logs_in_once_and_every_other_request_requires_the_cookie() {
    let console = ConsoleFixture::new().await;
    for (path, _) in PAGE_TEXTS
        .iter()
        .chain(&[("/status", ""), ("/live/events", ""), ("/", "")])
    {
        let refused = console.get(path, None).await;
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.body.contains("dray console link"), "{refused:?}");
    }
    let link = console.link_path(ConsoleRole::Look);
    let first = console.get(&link, None).await;
    assert_eq!(first.status, 200);
    assert_eq!(first.header("refresh"), Some("0;url=/"));
    let cookie = first.header("set-cookie").unwrap();
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let repeated = console.get(&link, None).await;
    assert_eq!(repeated.status, 401);
    assert!(repeated.header("set-cookie").is_none(), "{repeated:?}");
    assert!(repeated.body.contains("used before"), "{repeated:?}");
    let login = Login {
        cookie: cookie.split(';').next().unwrap().to_owned(),
        form_token: String::new(),
    };
    for (path, text) in PAGE_TEXTS {
        let page = console.get(path, Some(&login)).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.body.contains(text), "{path}: {page:?}");
    }
}

#[tokio::test]
async fn a_head_request_does_not_use_up_a_login_link() {
    let console = ConsoleFixture::new().await;
    let link = console.link_path(ConsoleRole::Look);
    let host = console.address;
    let head = format!("HEAD {link} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    assert_eq!(console.send(head).await.status, 401);
    assert_eq!(console.get(&link, None).await.status, 200);
}

#[tokio::test]
async fn a_login_gets_a_new_session_and_a_planted_one_is_refused() {
    let console = ConsoleFixture::new().await;
    let port = console.address.port();
    let planted = Login {
        cookie: format!("dray-console-{port}=planted"),
        form_token: String::new(),
    };
    let link = console.link_path(ConsoleRole::Look);
    let response = console.get(&link, Some(&planted)).await;
    let cookie = response.header("set-cookie").unwrap();
    assert!(!cookie.contains("planted"), "{cookie}");
    assert_eq!(console.get("/live", Some(&planted)).await.status, 401);
}

#[tokio::test]
async fn a_logout_ends_the_session() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    let other = console.log_in(ConsoleRole::Look).await;
    let forged = Login {
        form_token: other.form_token.clone(),
        ..login.clone()
    };
    assert_eq!(console.post("/logout", &forged, "").await.status, 403);
    assert_eq!(console.get("/live", Some(&login)).await.status, 200);
    let response = console.post("/logout", &login, "").await;
    assert_eq!(response.status, 303);
    assert!(response.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(console.get("/live", Some(&login)).await.status, 401);
    assert_eq!(console.get("/live", Some(&other)).await.status, 200);
}

#[tokio::test]
async fn an_open_page_does_not_keep_the_session_of_a_person_who_has_left() {
    let clock = Clock::manual(Clock::system().now_ms());
    let bus = empty_bus().await;
    let console =
        ConsoleFixture::start_with_clock(bus, ConsoleFixture::acting(), None, clock).await;
    // What the script requests from each page, from the live page, a replay and the playground.
    let polled = [
        "/status",
        "/live/charts",
        "/policy/replay/progress",
        "/playground/c1/events",
    ];
    let login = console.log_in(ConsoleRole::Act).await;
    let (mut passed, step) = (Duration::ZERO, Duration::from_mins(30));
    while passed < Duration::from_hours(2) {
        console.clock.advance(step);
        passed += step;
        for path in polled {
            assert_ne!(console.get(path, Some(&login)).await.status, 401, "{path}");
        }
    }
    console.clock.advance(Duration::from_secs(1));
    for path in polled {
        assert_eq!(console.get(path, Some(&login)).await.status, 401, "{path}");
    }
    // A page that a person opens is use.
    let login = console.log_in(ConsoleRole::Act).await;
    for _ in 0..3 {
        console.clock.advance(Duration::from_mins(90));
        assert_eq!(console.get("/live", Some(&login)).await.status, 200);
    }
}

#[test]
fn the_page_of_the_console_names_the_limits_of_its_listener() {
    let page = include_str!("../../../../docs/console.md");
    let limits = dray_http_server::ConnectionLimits::default();
    let minutes = limits.write_idle_timeout.as_secs() / 60;
    assert!(page.contains(&format!("its connection ends after {minutes} minutes")));
}

#[tokio::test]
async fn requests_from_other_host_names_or_sites_are_refused() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Act).await;
    let port = console.address.port();
    for host in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1"] {
        let cookie = &login.cookie;
        let request = format!(
            "GET /deliveries HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        );
        let refused = console.send(request).await;
        assert_eq!(refused.status, 421, "{host}");
        assert!(!refused.body.contains("Deliveries"));
    }
    let (host, cookie) = (console.address, &login.cookie);
    for (target, hosts) in [
        (
            "/deliveries",
            format!("Host: {host}\r\nHost: evil.example\r\n"),
        ),
        (
            "/deliveries",
            format!("Host: evil.example\r\nHost: {host}\r\n"),
        ),
        ("/deliveries", String::new()),
        (
            "http://evil.example/deliveries",
            format!("Host: {host}\r\n"),
        ),
    ] {
        let request = format!(
            "GET {target} HTTP/1.1\r\n{hosts}Cookie: {cookie}\r\nConnection: close\r\n\r\n"
        );
        let refused = console.send(request).await;
        assert_eq!(refused.status, 421, "{target} {hosts}");
    }
    let body = format!("csrf={}&letter=1&mode=start", login.form_token);
    for origin in [
        "",
        "Origin: null\r\n",
        "Origin: http://evil.example\r\n",
        // For cookies, another port of this machine is the same site.
        "Origin: http://127.0.0.1:1\r\n",
    ] {
        let refused = console
            .post_raw("/letters/redrive", &login, origin, &body)
            .await;
        assert_eq!(refused.status, 403, "{origin}");
    }
    let local = format!("Origin: http://localhost:{port}\r\n");
    let accepted = console
        .post_raw("/letters/redrive", &login, &local, &body)
        .await;
    assert_eq!(accepted.status, 200, "{accepted:?}");
}

#[tokio::test]
async fn every_response_forbids_foreign_content_frames_and_caches() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    for (path, login) in [
        ("/deliveries", Some(&login)),
        ("/status", Some(&login)),
        ("/live", None),
        ("/no-such-page", Some(&login)),
        ("/assets/console.js", None),
    ] {
        let response = console.get(path, login).await;
        let policy = response.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"));
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(response.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(response.header("referrer-policy"), Some("same-origin"));
        let is_asset = path.starts_with("/assets/");
        assert_eq!(
            response.header("cache-control") == Some("no-store"),
            !is_asset,
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_read_only_login_is_offered_no_action_and_each_is_refused() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    for (path, fields) in [
        ("/deliveries/resend", "delivery=d1"),
        ("/letters/redrive", "letter=1&mode=start"),
        ("/sandboxes/file", "session=s&path=a"),
        ("/policy", "url=https://example.com&resolve=1"),
    ] {
        let refused = console.post(path, &login, fields).await;
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.body.contains("may look and not act"), "{refused:?}");
    }
    let form = "--b\r\nContent-Disposition: form-data; name=\"csrf\"\r\n\r\nx\r\n--b--\r\n";
    let (host, origin, cookie) = (console.address, &console.base_url, &login.cookie);
    let refused = console
        .send(format!(
            "POST /sandboxes/put HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nCookie: {cookie}\r\n\
             Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{form}",
            form.len()
        ))
        .await;
    assert_eq!(refused.status, 403, "{refused:?}");
}

/// Forms that a login may send that may only look: they judge policies and end its session.
const LOOKING_FORMS: [&str; 4] = [
    "/logout",
    "/policy",
    "/policy/replay",
    "/policy/replay/cancel",
];

#[tokio::test]
async fn every_form_needs_the_token_of_its_session_and_actions_a_login_that_may_act() {
    let console = ConsoleFixture::new().await;
    let acting = console.log_in(ConsoleRole::Act).await;
    let looking = console.log_in(ConsoleRole::Look).await;
    let forged = Login {
        form_token: looking.form_token.clone(),
        ..acting.clone()
    };
    let routes = form_routes();
    for (path, _) in &routes {
        let path = path
            .replace("{digest}", &"0".repeat(64))
            .replace("{id}", "c1");
        // A handler reads one of the two kinds of forms, and refuses the other one.
        let fields = format!("csrf={}", forged.form_token);
        let multipart = multipart_form(&[("csrf", &forged.form_token)], &[("a", "b")]);
        let responses = [
            console.post(&path, &forged, &fields).await,
            console.post_multipart(&path, &forged, &multipart).await,
        ];
        let refused = responses.iter().filter(|response| {
            response.status == 403 && response.body.contains("does not belong to this login")
        });
        assert!(refused.count() >= 1, "{path}: {responses:?}");
        for response in &responses {
            assert!(response.status >= 400, "{path}: {response:?}");
        }
        if LOOKING_FORMS.contains(&path.as_str()) {
            continue;
        }
        let multipart = multipart_form(&[("csrf", &looking.form_token)], &[("a", "b")]);
        for response in [
            console.post(&path, &looking, "").await,
            console.post_multipart(&path, &looking, &multipart).await,
        ] {
            assert_eq!(response.status, 403, "{path}: {response:?}");
            assert!(response.body.contains("may look and not act"), "{path}");
        }
    }
    // A form whose route is elsewhere would not be among those that this test sends.
    let posts = include_str!("../server.rs").matches("post(").count();
    assert_eq!(posts, routes.len());
}

#[tokio::test]
async fn a_read_only_console_accepts_no_link_for_actions() {
    let console = ConsoleFixture::with(ConsoleSettings::default()).await;
    let refused = console
        .get(&console.link_path(ConsoleRole::Act), None)
        .await;
    assert_eq!(refused.status, 401);
    assert!(
        refused.body.contains("does not let anyone act"),
        "{refused:?}"
    );
    console.log_in(ConsoleRole::Look).await;
}

#[tokio::test]
async fn an_address_of_other_machines_needs_a_url_with_tls() {
    let bind = |public_url: Option<&str>| {
        let settings = ConsoleSettings {
            public_url: public_url.map(str::to_owned),
            ..ConsoleSettings::default()
        };
        ConsoleServer::bind(([0, 0, 0, 0], 0).into(), settings, Clock::system())
    };
    for refused in [
        None,
        Some("http://console.example.org"),
        Some("https://console.example.org/path"),
        Some("https://me@console.example.org"),
        Some("ftp://console.example.org"),
        Some("console"),
    ] {
        assert!(bind(refused).await.is_err(), "{refused:?}");
    }
    let server = bind(Some("https://console.example.org")).await.unwrap();
    assert_eq!(server.base_url(), "https://console.example.org");
}
