//! Logins by a browser with a fake identity provider.

mod provider;
mod refusals;

use std::collections::HashMap;

use dray_jwt::fake_issuer::SigningKey;
use dray_proto::v1::{ConsoleAction, ConsoleAudit, ConsoleStage};
use serde_json::json;
use url::Url;

use self::provider::ProviderFault;
use self::provider::{DISCOVERY_PATH, FakeProvider, KEYS_PATH, TOKEN_PATH, USERINFO_PATH};
use super::*;

/// A console with a provider, and the audit events of the console.
struct OidcFixture {
    provider: FakeProvider,
    console: ConsoleFixture,
    clock: Clock,
}

/// The attempt of a browser that was redirected to the provider.
struct BegunAttempt {
    /// Parameters of the authorization request.
    parameters: HashMap<String, String>,
    /// Cookie of the attempt.
    cookie: String,
}

impl OidcFixture {
    async fn new() -> Self {
        Self::with(|_| ()).await
    }

    /// A console with changed settings.
    async fn with(change: impl FnOnce(&mut ConsoleSettings)) -> Self {
        let provider = FakeProvider::start().await;
        let mut settings = ConsoleSettings {
            oidc: Some(provider.settings()),
            ..ConsoleFixture::acting()
        };
        change(&mut settings);
        let clock = Clock::manual(Clock::system().now_ms());
        let bus = empty_bus().await;
        let console = ConsoleFixture::start_with_clock(bus, settings, None, clock.clone()).await;
        Self {
            provider,
            console,
            clock,
        }
    }

    /// Follows the link of the login page.
    async fn begin(&self, next: &str) -> BegunAttempt {
        let path = format!("/login/provider?next={next}");
        let response = self.console.get(&path, None).await;
        assert_eq!(response.status, 303, "{response:?}");
        let location = Url::parse(response.header("location").unwrap()).unwrap();
        assert!(location.as_str().starts_with(&self.provider.issuer()));
        let cookie = response.header("set-cookie").unwrap();
        assert!(
            cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Max-Age=600"),
            "{cookie}"
        );
        BegunAttempt {
            parameters: location.query_pairs().into_owned().collect(),
            cookie: cookie.split(';').next().unwrap().to_owned(),
        }
    }

    /// Follows the redirect of the provider with this query.
    async fn come_back(&self, attempt: &BegunAttempt, query: &[(&str, &str)]) -> TestResponse {
        let query: String = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(query)
            .finish();
        let login = Login {
            cookie: attempt.cookie.clone(),
            form_token: String::new(),
        };
        let path = format!("/login/return?{query}");
        self.console.get(&path, Some(&login)).await
    }

    /// Logs in at the provider and follows its redirect.
    async fn complete(&self, attempt: &BegunAttempt) -> TestResponse {
        let code = self.provider.issue_code(&attempt.parameters);
        let (state, issuer) = (&attempt.parameters["state"], self.provider.issuer());
        let query = [("code", code.as_str()), ("state", state), ("iss", &issuer)];
        self.come_back(attempt, &query).await
    }

    /// A complete login.
    async fn log_in(&self) -> TestResponse {
        let attempt = self.begin("/").await;
        self.complete(&attempt).await
    }

    /// The login of a response that began a session.
    async fn login_of(&self, response: &TestResponse) -> Login {
        assert_eq!(response.status, 200, "{response:?}");
        let port = self.console.address.port();
        let name = format!("dray-console-{port}=");
        let mut cookies = response.head.lines().filter_map(|line| {
            let cookie = line.strip_prefix("set-cookie: ")?;
            cookie.starts_with(&name).then_some(cookie)
        });
        let cookie = cookies.next().unwrap();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"));
        let mut login = Login {
            cookie: cookie.split(';').next().unwrap().to_owned(),
            form_token: String::new(),
        };
        login.form_token = self.console.get("/policy", Some(&login)).await.form_token();
        login
    }
}

/// Whether a response begins a session.
fn begins_session(response: &TestResponse) -> bool {
    response.head.lines().any(|line| {
        let is_session = line.starts_with("set-cookie: dray-console-");
        is_session && !line.starts_with("set-cookie: dray-console-login-")
    })
}

/// The next audit event of the console, logins included.
async fn next_audit(trail: &mut dray_bus::EventStream) -> ConsoleAudit {
    let reading = async { trail.next().await.unwrap().decode().unwrap() };
    tokio::time::timeout(TEST_TIMEOUT, reading).await.unwrap()
}

async fn audit_trail(console: &ConsoleFixture) -> dray_bus::EventStream {
    let filter = dray_bus::EventFilter::new("dray.audit.console.>").from_start();
    console.bus.events(filter).await.unwrap()
}

#[tokio::test]
async fn a_person_logs_in_acts_and_logs_out_and_is_named_in_every_audit_event() {
    let mut fixture = OidcFixture::new().await;
    let mut trail = audit_trail(&fixture.console).await;
    fixture
        .console
        .respond::<dray_proto::v1::ResendRequest>(|_| Err(Fault::internal()))
        .await;
    let login = fixture.login_of(&fixture.log_in().await).await;
    let page = fixture.console.get("/live", Some(&login)).await;
    // The name is escaped, because people can choose their names.
    assert!(page.body.contains("Ada &lt;Lovelace&gt;"), "{page:?}");
    assert!(page.body.contains("may act"), "{page:?}");
    fixture
        .console
        .post("/deliveries/resend", &login, "delivery=d-1")
        .await;
    let logout_response = fixture.console.post("/logout", &login, "").await;
    assert_eq!(logout_response.status, 303);
    assert_eq!(fixture.console.get("/live", Some(&login)).await.status, 401);
    for (action, stage) in [
        (ConsoleAction::Login, ConsoleStage::Done),
        (ConsoleAction::Resend, ConsoleStage::Begun),
        (ConsoleAction::Resend, ConsoleStage::Failed),
        (ConsoleAction::Logout, ConsoleStage::Done),
    ] {
        let audit = next_audit(&mut trail).await;
        assert_eq!((audit.action(), audit.stage()), (action, stage));
        assert_eq!(audit.person, "u-1");
        assert_eq!(audit.person_name, "Ada <Lovelace>");
        assert_eq!((audit.role.as_str(), audit.login.len()), ("act", 16));
    }
}

#[tokio::test]
async fn a_login_by_an_rsa_key_and_without_an_announced_issuer_works() {
    let fixture = OidcFixture::new().await;
    let name = "authorization_response_iss_parameter_supported";
    {
        let mut state = fixture.provider.state();
        state.keys = vec![("r".to_owned(), SigningKey::test_rsa())];
        state.discovery = json!({ name: null });
    }
    let attempt = fixture.begin("/").await;
    let code = fixture.provider.issue_code(&attempt.parameters);
    let state = &attempt.parameters["state"];
    let query = [("code", code.as_str()), ("state", state)];
    let response = fixture.come_back(&attempt, &query).await;
    fixture.login_of(&response).await;
}

#[tokio::test]
async fn a_login_begins_a_new_session_and_redirects_to_the_requested_page() {
    let fixture = OidcFixture::new().await;
    let refused = fixture
        .console
        .get("/sandboxes?session=s&path=a", None)
        .await;
    assert_eq!(refused.status, 401);
    let link = "/login/provider?next=%2Fsandboxes%3Fsession%3Ds%26path%3Da";
    assert!(
        refused.body.contains(&format!("href=\"{link}\"")),
        "{refused:?}"
    );
    assert!(
        refused.body.contains("Log in with 127.0.0.1"),
        "{refused:?}"
    );
    for (next, opened) in [
        (
            "%2Fsandboxes%3Fsession%3Ds%26path%3Da",
            "/sandboxes?session=s&path=a",
        ),
        ("%2F%2Fevil.example", "/"),
        ("%2F%5Cevil.example", "/"),
        ("https%3A%2F%2Fevil.example", "/"),
    ] {
        let attempt = fixture.begin(next).await;
        let response = fixture.complete(&attempt).await;
        let refresh = response.header("refresh").unwrap();
        assert_eq!(refresh, format!("0;url={opened}"));
        let port = fixture.console.address.port();
        let planted = Login {
            cookie: format!("dray-console-{port}=planted"),
            form_token: String::new(),
        };
        fixture.login_of(&response).await;
        assert_eq!(
            fixture.console.get("/live", Some(&planted)).await.status,
            401
        );
        // The response removes the cookie of the attempt.
        let cleared = format!("set-cookie: dray-console-login-{port}=; ");
        assert!(response.head.contains(&cleared), "{response:?}");
    }
}

#[tokio::test]
async fn the_claim_gives_the_role_and_a_person_without_one_is_refused_and_recorded() {
    let fixture = OidcFixture::new().await;
    let mut trail = audit_trail(&fixture.console).await;
    fixture.provider.state().claims = json!({"groups": ["staff", "other"]});
    let login = fixture.login_of(&fixture.log_in().await).await;
    let page = fixture.console.get("/live", Some(&login)).await;
    assert!(page.body.contains("may look"), "{page:?}");
    let acted = fixture
        .console
        .post("/deliveries/resend", &login, "delivery=d");
    assert_eq!(acted.await.status, 403);
    assert_eq!(next_audit(&mut trail).await.role, "look");
    fixture.provider.state().claims = json!({"groups": ["other"]});
    let refused = fixture.log_in().await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(
        refused.body.contains("has no role in this console"),
        "{refused:?}"
    );
    assert!(!begins_session(&refused), "{refused:?}");
    let audit = next_audit(&mut trail).await;
    assert_eq!(audit.stage(), ConsoleStage::Failed);
    assert_eq!(audit.failure, "denied/no_role");
    assert_eq!((audit.person.as_str(), audit.role.as_str()), ("u-1", ""));
}

#[tokio::test]
async fn roles_that_the_token_lacks_come_from_the_userinfo_of_the_same_person() {
    let fixture = OidcFixture::new().await;
    // With the claim in the token, the endpoint is not asked.
    fixture.login_of(&fixture.log_in().await).await;
    assert_eq!(fixture.provider.requests(USERINFO_PATH), 0);
    // A name alone is worth a request, and no failed login.
    fixture.provider.state().claims = json!({"name": null});
    for (fault, name) in [
        (None, "Ada of the userinfo"),
        (Some(ProviderFault::Garbage), "u-1</span>"),
    ] {
        let faults = fault.map(|fault| (USERINFO_PATH, fault));
        fixture.provider.state().faults = faults.into_iter().collect();
        let login = fixture.login_of(&fixture.log_in().await).await;
        let page = fixture.console.get("/live", Some(&login)).await;
        assert!(page.body.contains(name), "{page:?}");
        assert!(page.body.contains("may act"), "{page:?}");
    }
    fixture.provider.state().faults.clear();
    fixture.provider.state().requests.clear();
    fixture.provider.state().claims = json!({"groups": null, "name": null});
    let login = fixture.login_of(&fixture.log_in().await).await;
    let page = fixture.console.get("/live", Some(&login)).await;
    assert!(page.body.contains("Ada of the userinfo"), "{page:?}");
    assert!(page.body.contains("may look"), "{page:?}");
    assert_eq!(fixture.provider.requests(USERINFO_PATH), 1);
    for (userinfo, status, reason) in [
        (
            json!({"sub": "u-2", "groups": ["ops"]}),
            403,
            "about another person",
        ),
        (json!({"groups": ["ops"]}), 403, "about another person"),
        (json!(["ops"]), 502, "not a JSON object"),
        (json!({"sub": "u-1"}), 403, "no role in this console"),
    ] {
        fixture.provider.state().userinfo = userinfo.clone();
        let refused = fixture.log_in().await;
        assert_eq!(refused.status, status, "{userinfo}: {refused:?}");
        assert!(refused.body.contains(reason), "{userinfo}: {refused:?}");
        assert!(!begins_session(&refused), "{userinfo}");
    }
    fixture.provider.state().faults = HashMap::from([(USERINFO_PATH, ProviderFault::Status(500))]);
    assert_eq!(fixture.log_in().await.status, 502);
    // A provider without the endpoint gives no roles.
    fixture.provider.state().faults.clear();
    let fixture = OidcFixture::new().await;
    {
        let mut state = fixture.provider.state();
        state.discovery = json!({"userinfo_endpoint": null});
        state.claims = json!({"groups": null});
    }
    assert_eq!(fixture.log_in().await.status, 403);
}

#[tokio::test]
async fn a_logout_links_to_the_logout_of_the_provider_if_it_has_one() {
    let fixture = OidcFixture::new().await;
    fixture.provider.state().discovery =
        json!({"end_session_endpoint": "https://login.example.org/logout?realm=team"});
    let login = fixture.login_of(&fixture.log_in().await).await;
    let logout_response = fixture.console.post("/logout", &login, "").await;
    assert_eq!(logout_response.status, 200, "{logout_response:?}");
    let link =
        "https://login.example.org/logout?realm=team&amp;client_id=console&amp;id_token_hint=eyJ";
    assert!(logout_response.body.contains(link), "{logout_response:?}");
    let cookie = logout_response.header("set-cookie").unwrap();
    assert!(cookie.contains("Max-Age=0"), "{cookie}");
    assert_eq!(fixture.console.get("/live", Some(&login)).await.status, 401);
    // A link of the console ends only the session of the console.
    let linked = fixture.console.log_in(ConsoleRole::Act).await;
    assert_eq!(
        fixture.console.post("/logout", &linked, "").await.status,
        303
    );
    // A token that no server would take in a URL is left out.
    fixture.provider.state().claims = json!({"groups": vec!["ops"; 2_000]});
    let login = fixture.login_of(&fixture.log_in().await).await;
    let logout_response = fixture.console.post("/logout", &login, "").await;
    assert!(
        logout_response.body.contains("client_id=console"),
        "{logout_response:?}"
    );
    assert!(
        !logout_response.body.contains("id_token_hint"),
        "{logout_response:?}"
    );
}

#[tokio::test]
async fn a_registered_return_address_is_part_of_the_logout_and_leads_to_a_page_without_a_login() {
    let fixture = OidcFixture::with(|settings| {
        settings.oidc.as_mut().unwrap().logout_return = true;
    })
    .await;
    fixture.provider.state().discovery =
        json!({"end_session_endpoint": "https://login.example.org/logout"});
    let login = fixture.login_of(&fixture.log_in().await).await;
    let logout_response = fixture.console.post("/logout", &login, "").await;
    let (_, link) = logout_response
        .body
        .split_once("href=\"https://login.example.org/logout?")
        .unwrap();
    let query = link.split('"').next().unwrap().replace("&amp;", "&");
    let parameters: HashMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).collect();
    // RP-Initiated Logout 1.0 section 2: recommended together with the address.
    assert!(parameters["id_token_hint"].starts_with("eyJ"), "{query}");
    let way_back = parameters["post_logout_redirect_uri"].as_ref();
    assert_eq!(
        way_back,
        format!("{}/login/ended", fixture.console.base_url)
    );
    let page = fixture.console.get("/login/ended", None).await;
    assert_eq!(page.status, 200, "{page:?}");
    assert!(
        page.body.contains("href=\"/login/provider?next=%2F\""),
        "{page:?}"
    );
    // Other sites can lead here, too: the page ends no session.
    let login = fixture.login_of(&fixture.log_in().await).await;
    fixture.console.get("/login/ended", Some(&login)).await;
    assert_eq!(fixture.console.get("/live", Some(&login)).await.status, 200);
    let console = ConsoleFixture::new().await;
    assert_eq!(console.get("/login/ended", None).await.status, 404);
}

#[tokio::test]
async fn a_console_for_looking_lets_no_person_act() {
    let fixture = OidcFixture::with(|settings| settings.highest_role = ConsoleRole::Look).await;
    let login = fixture.login_of(&fixture.log_in().await).await;
    let page = fixture.console.get("/live", Some(&login)).await;
    assert!(page.body.contains("may look"), "{page:?}");
}

#[tokio::test]
async fn login_links_work_beside_the_provider() {
    let fixture = OidcFixture::new().await;
    let login = fixture.console.log_in(ConsoleRole::Act).await;
    assert_eq!(fixture.console.get("/live", Some(&login)).await.status, 200);
    assert_eq!(fixture.provider.requests(DISCOVERY_PATH), 0);
}

#[tokio::test]
async fn new_keys_of_the_provider_are_loaded_once_when_a_token_names_one() {
    let fixture = OidcFixture::new().await;
    fixture.login_of(&fixture.log_in().await).await;
    assert_eq!(fixture.provider.requests(KEYS_PATH), 1);
    fixture.provider.state().keys = vec![("k2".to_owned(), SigningKey::generate_curve())];
    let early = fixture.log_in().await;
    assert_eq!(early.status, 403, "{early:?}");
    assert!(
        early.body.contains("key of the token is not known"),
        "{early:?}"
    );
    assert_eq!(fixture.provider.requests(KEYS_PATH), 1);
    fixture.clock.advance(Duration::from_secs(30));
    fixture.login_of(&fixture.log_in().await).await;
    assert_eq!(fixture.provider.requests(KEYS_PATH), 2);
    // The document is younger than an hour.
    assert_eq!(fixture.provider.requests(DISCOVERY_PATH), 1);
}

#[tokio::test]
async fn the_secret_is_sent_as_the_provider_accepts_it_and_a_public_client_sends_none() {
    let fixture = OidcFixture::new().await;
    fixture.login_of(&fixture.log_in().await).await;
    {
        let state = fixture.provider.state();
        let (authorization, form) = &state.last_token_request;
        assert!(authorization.starts_with("Basic "));
        assert!(!form.iter().any(|(name, _)| name == "client_secret"));
    }
    let posting = OidcFixture::new().await;
    posting.provider.state().discovery =
        json!({"token_endpoint_auth_methods_supported": ["client_secret_post"]});
    posting.login_of(&posting.log_in().await).await;
    assert_eq!(posting.provider.state().last_token_request.0, "");
    let public = OidcFixture::with(|settings| {
        settings.oidc.as_mut().unwrap().client_secret = None;
    })
    .await;
    let refused = public.log_in().await;
    assert_eq!(refused.status, 502, "{refused:?}");
    let state = public.provider.state();
    let (authorization, form) = &state.last_token_request;
    assert_eq!(authorization, "");
    assert!(form.contains(&("client_id".to_owned(), "console".to_owned())));
}

#[tokio::test]
async fn a_browser_at_localhost_is_redirected_to_the_host_of_the_redirect_uri() {
    let fixture = OidcFixture::new().await;
    let port = fixture.console.address.port();
    let request = format!(
        "GET /login/provider?next=/live HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n"
    );
    let response = fixture.console.send(request).await;
    let location = format!("http://127.0.0.1:{port}/login/provider?next=%2Flive");
    assert_eq!(response.header("location"), Some(location.as_str()));
    assert_eq!(response.header("set-cookie"), None);
}

#[tokio::test]
async fn a_head_request_begins_no_login_and_a_console_without_a_provider_has_none() {
    let fixture = OidcFixture::new().await;
    for path in ["/login/provider", "/login/return?code=a&state=b"] {
        let host = fixture.console.address;
        let head = format!("HEAD {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let response = fixture.console.send(head).await;
        assert_eq!(
            (response.status, response.header("set-cookie")),
            (200, None)
        );
        let plain = ConsoleFixture::new().await;
        assert_eq!(plain.get(path, None).await.status, 404);
    }
    assert_eq!(fixture.provider.requests(DISCOVERY_PATH), 0);
    assert_eq!(fixture.provider.requests(TOKEN_PATH), 0);
}
