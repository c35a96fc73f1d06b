//! Logins that must not succeed: forged responses and tokens, and a provider that fails.

use dray_jwt::fake_issuer::signing_input;
use serde_json::Value;

use super::provider::{CLIENT_SECRET, ProviderFault, seconds_from_now};
use super::*;

/// Checks that the login fails with a page that says why, without a secret and without a session.
fn assert_refused(name: &str, response: &TestResponse, status: u16, reason: &str) {
    assert_eq!(response.status, status, "{name}: {response:?}");
    assert!(response.body.contains(reason), "{name}: {response:?}");
    assert!(!begins_session(response), "{name}: {response:?}");
    for secret in [CLIENT_SECRET, "s3cret", "code-", "eyJ"] {
        assert!(!response.body.contains(secret), "{name}: {response:?}");
    }
}

#[tokio::test]
async fn tokens_with_wrong_claims_are_refused() {
    let fixture = OidcFixture::new().await;
    for (claims, reason) in [
        (json!({"iss": "https://evil.example"}), "another issuer"),
        (json!({"aud": "another"}), "another audience"),
        (json!({"aud": ["console", "another"]}), "another client"),
        (json!({"azp": "another"}), "another client"),
        (json!({"exp": seconds_from_now(-120)}), "has expired"),
        (json!({"exp": null}), "lacks a claim"),
        (
            json!({"iat": seconds_from_now(120)}),
            "issued in the future",
        ),
        (json!({"iat": seconds_from_now(-3600)}), "issued long ago"),
        (json!({"iat": null}), "lacks a claim: iat"),
        (json!({"nbf": seconds_from_now(300)}), "not valid yet"),
        (
            json!({"nonce": "of-another-login"}),
            "belongs to another login",
        ),
        (json!({"nonce": null}), "belongs to another login"),
        (json!({"nonce": ["a"]}), "is not a text"),
        (json!({"sub": null}), "lacks a claim"),
        (json!({"sub": ""}), "subject of the token"),
    ] {
        fixture.provider.state().claims = claims.clone();
        let refused = fixture.log_in().await;
        assert_refused(&claims.to_string(), &refused, 403, reason);
    }
    fixture.provider.state().claims = json!({});
    fixture.login_of(&fixture.log_in().await).await;
}

/// The claims of a signed token, for a token with another signature.
fn payload_of(token: &str) -> Value {
    use base64::Engine as _;
    let part = token.split('.').nth(1).unwrap();
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part);
    serde_json::from_slice(&bytes.unwrap()).unwrap()
}

#[tokio::test]
async fn tokens_that_the_provider_did_not_sign_are_refused() {
    let fixture = OidcFixture::new().await;
    let unsigned: fn(String) -> String = |token| {
        let header = json!({"alg": "none"});
        format!("{}.", signing_input(&header, &payload_of(&token)))
    };
    let shared_secret: fn(String) -> String = |token| {
        use base64::Engine as _;
        let header = json!({"alg": "HS256", "kid": "k1"});
        let message = signing_input(&header, &payload_of(&token));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, CLIENT_SECRET.as_bytes());
        let code = ring::hmac::sign(&key, message.as_bytes());
        let code = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(code);
        format!("{message}.{code}")
    };
    let raised: fn(String) -> String = |token| {
        let mut claims = payload_of(&token);
        claims["sub"] = json!("admin");
        let header = json!({"alg": "ES256", "kid": "k1"});
        let signature = token.rsplit('.').next().unwrap().to_owned();
        format!("{}.{signature}", signing_input(&header, &claims))
    };
    let stranger: fn(String) -> String = |token| {
        let header = json!({"alg": "ES256", "kid": "k1"});
        SigningKey::generate_curve().sign_token(&header, &payload_of(&token))
    };
    for (name, tamper, reason) in [
        ("none", unsigned, "not a JWT with a known algorithm"),
        (
            "HS256 with the client secret",
            shared_secret,
            "algorithm of the token",
        ),
        ("other claims", raised, "signature of the token"),
        ("another key", stranger, "signature of the token"),
        ("no token", |_| "x".repeat(30), "not a JWT"),
    ] {
        fixture.provider.state().tamper = tamper;
        assert_refused(name, &fixture.log_in().await, 403, reason);
    }
}

#[tokio::test]
async fn a_response_needs_its_browser_its_state_and_its_issuer() {
    let fixture = OidcFixture::new().await;
    let issuer = fixture.provider.issuer();
    let (one, two) = (fixture.begin("/").await, fixture.begin("/").await);
    let code = fixture.provider.issue_code(&one.parameters);
    let state = one.parameters["state"].as_str();
    let none = "was not begun in this browser";
    let without_cookie = BegunAttempt {
        parameters: HashMap::new(),
        cookie: "x=y".to_owned(),
    };
    let query = [("code", code.as_str()), ("state", state), ("iss", &issuer)];
    for (name, browser, query) in [
        ("another browser", &two, query.to_vec()),
        ("no cookie", &without_cookie, query.to_vec()),
        ("no state", &one, vec![query[0], query[2]]),
        (
            "another state",
            &one,
            vec![query[0], ("state", "x"), query[2]],
        ),
    ] {
        let refused = fixture.come_back(browser, &query).await;
        assert_refused(name, &refused, 400, none);
    }
    // A repeated parameter is refused before the attempt is checked.
    let repeated = [query[0], query[1], query[2], ("code", "other")];
    let refused = fixture.come_back(&one, &repeated).await;
    assert_refused("repeated", &refused, 400, "is repeated");
    assert_eq!(fixture.provider.requests(TOKEN_PATH), 0);
    // None of them ended the attempt of the person.
    let response = fixture.come_back(&one, &query).await;
    fixture.login_of(&response).await;
    let replayed = fixture.come_back(&one, &query).await;
    assert_refused("replayed", &replayed, 400, none);
    assert_eq!(fixture.provider.requests(TOKEN_PATH), 1);
}

#[tokio::test]
async fn a_response_of_another_issuer_or_with_an_error_gets_no_session() {
    let fixture = OidcFixture::new().await;
    for (name, further, status, reason) in [
        (
            "no issuer",
            vec![("code", "c")],
            400,
            "is of another issuer",
        ),
        (
            "another issuer",
            vec![("code", "c"), ("iss", "https://evil.example")],
            400,
            "is of another issuer",
        ),
    ] {
        let attempt = fixture.begin("/").await;
        let state = attempt.parameters["state"].clone();
        let query = [further, vec![("state", state.as_str())]].concat();
        let refused = fixture.come_back(&attempt, &query).await;
        assert_refused(name, &refused, status, reason);
    }
    let issuer = fixture.provider.issuer();
    for (error, shown) in [
        ("access_denied", "did not log you in: access_denied."),
        ("<script>alert(1)</script>", "did not log you in: error."),
    ] {
        let attempt = fixture.begin("/").await;
        let state = attempt.parameters["state"].clone();
        let query = [
            ("error", error),
            ("state", state.as_str()),
            ("iss", &issuer),
        ];
        let refused = fixture.come_back(&attempt, &query).await;
        assert_refused(error, &refused, 403, shown);
        assert!(!refused.body.contains("alert(1)"), "{refused:?}");
    }
    let attempt = fixture.begin("/").await;
    let state = attempt.parameters["state"].clone();
    let query = [("state", state.as_str()), ("iss", issuer.as_str())];
    let refused = fixture.come_back(&attempt, &query).await;
    assert_refused("no code", &refused, 400, "it has no code");
    assert_eq!(fixture.provider.requests(TOKEN_PATH), 0);
}

#[tokio::test]
async fn an_expired_code_and_a_stolen_one_get_no_session() {
    let fixture = OidcFixture::new().await;
    let attempt = fixture.begin("/").await;
    let (victim, issuer) = (fixture.begin("/").await, fixture.provider.issuer());
    // The victim's code in the attempt of an attacker: with PKCE, it is only valid in the attempt of the victim.
    let stolen = fixture.provider.issue_code(&victim.parameters);
    let state = attempt.parameters["state"].as_str();
    let query = [
        ("code", stolen.as_str()),
        ("state", state),
        ("iss", &issuer),
    ];
    let refused = fixture.come_back(&attempt, &query).await;
    assert_refused("stolen", &refused, 400, "does not accept the code");
    let attempt = fixture.begin("/").await;
    let code = fixture.provider.issue_code(&attempt.parameters);
    fixture.provider.expire_codes();
    let state = attempt.parameters["state"].as_str();
    let query = [("code", code.as_str()), ("state", state), ("iss", &issuer)];
    let refused = fixture.come_back(&attempt, &query).await;
    assert_refused("expired", &refused, 400, "does not accept the code");
}

#[tokio::test]
async fn a_failing_or_lying_provider_leads_to_a_clear_page_and_gets_no_request_for_a_while() {
    let cannot = "cannot be reached";
    for (fault, status, reason) in [
        (ProviderFault::Status(500), 502, "failed with status 500"),
        (ProviderFault::Redirect, 502, "failed with status 307"),
        (
            ProviderFault::Garbage,
            502,
            "discovery document is not valid",
        ),
        (ProviderFault::Huge, 502, "its response is too long"),
        (ProviderFault::Cut, 503, cannot),
        (ProviderFault::Stall, 503, "took too long"),
    ] {
        let fixture = fixture_for(fault).await;
        fixture
            .provider
            .state()
            .faults
            .insert(DISCOVERY_PATH, fault);
        let refused = fixture.console.get("/login/provider", None).await;
        assert_refused(&format!("{fault:?}"), &refused, status, reason);
        let repeated = fixture.console.get("/login/provider", None).await;
        assert_refused(&format!("{fault:?}"), &repeated, 503, "failed a moment ago");
        assert_eq!(fixture.provider.requests(DISCOVERY_PATH), 1);
        fixture.provider.state().faults.clear();
        // The delay counts also while the clock is set back.
        fixture.clock.set(fixture.clock.now_ms() - 60_000);
        fixture.clock.advance(Duration::from_secs(5));
        fixture.login_of(&fixture.log_in().await).await;
    }
    let fixture = OidcFixture::new().await;
    let other = json!({"issuer": format!("{}/", fixture.provider.issuer())});
    fixture.provider.state().discovery = other;
    let refused = fixture.console.get("/login/provider", None).await;
    assert_refused("another issuer", &refused, 502, "names another issuer");
}

/// A console whose requests to its provider end soon if this fault makes the provider silent.
async fn fixture_for(fault: ProviderFault) -> OidcFixture {
    OidcFixture::with(|settings| {
        if matches!(fault, ProviderFault::Stall) {
            // Long enough for the other requests of a login on a busy machine.
            settings.oidc.as_mut().unwrap().request_timeout = Duration::from_secs(3);
        }
    })
    .await
}

#[tokio::test]
async fn a_provider_that_fails_during_the_login_leads_to_a_clear_page() {
    let no_keys = "keys of the identity provider are not available";
    for (path, fault, status, reason) in [
        (
            TOKEN_PATH,
            ProviderFault::Status(500),
            502,
            "failed with status 500",
        ),
        // If the redirect were followed, the secret would be sent to another host.
        (
            TOKEN_PATH,
            ProviderFault::Redirect,
            502,
            "failed with status 307",
        ),
        (TOKEN_PATH, ProviderFault::Garbage, 502, "has no ID token"),
        (
            TOKEN_PATH,
            ProviderFault::Huge,
            502,
            "its response is too long",
        ),
        (TOKEN_PATH, ProviderFault::Cut, 503, "cannot be reached"),
        (TOKEN_PATH, ProviderFault::Stall, 503, "took too long"),
        (KEYS_PATH, ProviderFault::Status(500), 503, no_keys),
        (KEYS_PATH, ProviderFault::Garbage, 503, no_keys),
        (KEYS_PATH, ProviderFault::Huge, 503, no_keys),
        (KEYS_PATH, ProviderFault::Stall, 503, no_keys),
    ] {
        let fixture = fixture_for(fault).await;
        fixture.provider.state().faults.insert(path, fault);
        let refused = fixture.log_in().await;
        assert_refused(&format!("{path} {fault:?}"), &refused, status, reason);
    }
}

#[tokio::test]
async fn an_unreachable_provider_leads_to_a_clear_page() {
    let fixture = OidcFixture::with(|settings| {
        let issuer = format!("http://{}", dray_testkit::port::unassigned_address());
        settings.oidc.as_mut().unwrap().issuer = issuer;
    })
    .await;
    let refused = fixture.console.get("/login/provider", None).await;
    assert_refused("away", &refused, 503, "cannot be reached right now");
}
