//! `dray egress token`: tokens that the forward proxy accepts, and refusals that name the setting.

use dray_guard::proxy_token::TokenKeys;
use dray_types::{Clock, Secret};

use super::{CliHome, line};

const TOKEN_KEY: &str = "a key of at least thirty-two bytes";
const KEY_VARIABLE: &str = "DRAY_EGRESS_FETCHER__PROXY__TOKEN_KEY";

#[test]
fn the_proxy_accepts_a_token_with_the_claims_of_the_command_line() {
    let home = CliHome::new();
    let mut command = home.dray(&[
        "egress",
        "token",
        "--json",
        "--tenant",
        "acme",
        "--session",
        "chat-1",
        "--app",
        "notes",
        "--ttl",
        "10m",
        "--allow",
        "*.example.org",
    ]);
    let output = command.env(KEY_VARIABLE, TOKEN_KEY).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = line(&output);
    let token = printed["token"].as_str().unwrap();
    let expires_ms = printed["expires_ms"].as_u64().unwrap();

    let keys = TokenKeys::new(&Secret::new(TOKEN_KEY), None).unwrap();
    let now_ms = Clock::system().now_ms();
    let identity = keys.verify(token.as_bytes(), now_ms).unwrap();
    assert_eq!(identity.tenant.as_str(), "acme");
    assert_eq!(identity.session.as_str(), "chat-1");
    assert_eq!(identity.app.unwrap().as_str(), "notes");
    assert_eq!(identity.allow.unwrap(), ["*.example.org"]);
    assert!(keys.verify(token.as_bytes(), expires_ms).is_err());
    let other = TokenKeys::new(&Secret::new("another key of thirty-two bytes.."), None).unwrap();
    assert!(other.verify(token.as_bytes(), now_ms).is_err());
}

#[test]
fn a_token_that_the_proxy_could_not_use_is_not_made() {
    let home = CliHome::new();
    let without_key = home.run(&["egress", "token", "--session", "chat-1"]);
    assert!(!without_key.status.success(), "{without_key:?}");
    let message = String::from_utf8_lossy(&without_key.stderr).into_owned();
    assert!(
        message.contains("egress-fetcher.proxy.token_key"),
        "{message}"
    );
    for (key, option, value, named) in [
        ("short", "--ttl", "1h", "token_key"),
        (TOKEN_KEY, "--ttl", "0s", "--ttl"),
        (TOKEN_KEY, "--ttl", "31d", "--ttl"),
        (TOKEN_KEY, "--allow", "https://example.org/", "--allow"),
    ] {
        let mut command = home.dray(&["egress", "token", "--session", "chat-1", option, value]);
        let refused = command.env(KEY_VARIABLE, key).output().unwrap();
        assert!(!refused.status.success(), "{option} {value}: {refused:?}");
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(message.contains(named), "{option} {value}: {message}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
}
