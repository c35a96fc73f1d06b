//! Users of one client, whose sign-ins at MCP servers are their own.

use dray_orchestrator::config::permissions::CallerPermissions;
use dray_testkit::dial::DialCore;
use serde_json::json;

use crate::sign_in::SignInFixture;

/// Lifetime of tokens in these tests, in seconds.
const TOKEN_SECONDS: u64 = 3600;

/// One user signs in; the other one, and a request without a user, get neither the code nor the tokens.
async fn check_users(world: &SignInFixture, [ann, ben, unnamed]: [&str; 3]) {
    let returned = world.follow(&world.page(ann).await).await;
    let code = world.code(&returned).await;
    // The code of one user does not work for another user of the same key in the same conversation.
    let answer = world.reply(ben, &code).await;
    assert!(
        answer.text().contains("requires sign-in: open"),
        "{}",
        answer.text()
    );
    assert_eq!(world.exchanges(), 0);
    assert_eq!(world.reply(ann, &code).await.text(), "Done.");
    assert_eq!(world.last_result(), "token-1");
    let repeated = json!([{"role": "user", "content": "again - please"}]);
    assert_eq!(world.ask(ann, repeated.clone()).await.text(), "Done.");
    for user in [ben, unnamed] {
        let answer = world.ask(user, repeated.clone()).await;
        let model_requests = world.fixture.asked();
        let model_requests = model_requests.last().unwrap();
        assert!(
            !model_requests["tools"].to_string().contains("files_whoami"),
            "{user}: {model_requests}"
        );
        assert!(
            !model_requests.to_string().contains("token-1"),
            "{user}: {model_requests}"
        );
        // A user can sign in; a request without a user is not asked to.
        let is_asked = answer.text().contains("requires sign-in: open");
        assert_eq!(is_asked, user == ben, "{user}: {}", answer.text());
    }
    assert_eq!(world.exchanges(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn users_behind_one_key_have_sign_ins_of_their_own() {
    let sign_in = SignInFixture::with(TOKEN_SECONDS, |config| {
        let portal = CallerPermissions {
            user_header: Some("X-Portal-User".to_owned()),
            ..CallerPermissions::default()
        };
        let clients = &mut config.permissions.clients;
        clients.insert("portal".to_owned(), portal);
    });
    let users = [
        "portal/x-portal-user=ann",
        "portal/x-portal-user=ben",
        "portal",
    ];
    check_users(&sign_in.await, users).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_behind_a_client_of_dial_have_sign_ins_of_their_own() {
    let core = DialCore::start().await.unwrap();
    core.add_key("key-ann", "bucket-ann");
    core.add_key("key-ben", "bucket-ben");
    let url = core.url();
    let sign_in = SignInFixture::with(TOKEN_SECONDS, |config| config.dial_url = Some(url));
    // DIAL Core does not know the last key, so it names no user.
    let users = [
        "portal/api-key=key-ann",
        "portal/api-key=key-ben",
        "portal/api-key=unknown",
    ];
    check_users(&sign_in.await, users).await;
}
