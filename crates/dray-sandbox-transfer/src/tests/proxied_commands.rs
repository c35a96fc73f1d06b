//! Programs that get the forward proxy.

use dray_bus::events::EventFilter;
use dray_guard::proxy_token::TokenKeys;
use dray_types::Secret;
use prost::Message as _;

use super::*;

const TOKEN_KEY: &str = "a key of at least thirty-two bytes";

#[tokio::test]
async fn a_program_gets_a_token_of_its_session_that_no_audit_event_holds() {
    let settings = [
        (
            "sandbox-transfer.commands.allow",
            r#"[{"tenants": ["*"], "sandboxes": ["local:*"]}]"#,
        ),
        ("sandbox-transfer.egress_proxy.token_key", TOKEN_KEY),
        (
            "sandbox-transfer.egress_proxy.rules",
            r#"[{"tenants": ["acme"], "sandboxes": ["local:*/boxes/open*"], "address": "proxy:3128"}]"#,
        ),
    ];
    let fixture = TransferFixture::with(&settings).await;
    let (_, open) = fixture.sandbox("open");
    let (_, closed) = fixture.sandbox("closed");
    fixture.bind("chat-1", &open, None).await;
    let filter = EventFilter::new("dray.audit.sandbox.v1.executed.acme");
    let mut events = fixture.bus.events(filter).await.unwrap();
    let print = |sandbox| v1::ExecSandboxRequest {
        sandbox: Some(sandbox),
        argv: [
            "sh",
            "-c",
            r#"printf %s "$https_proxy"; printf %s "$no_proxy" >&2"#,
        ]
        .map(|word| word.as_bytes().to_vec())
        .into(),
        ..v1::ExecSandboxRequest::default()
    };

    let reply = fixture.ask(&print(session("chat-1"))).await.unwrap();
    let url = String::from_utf8(reply.stdout.unwrap().head).unwrap();
    let (token, address) = url
        .strip_prefix("http://sandbox:")
        .unwrap()
        .split_once('@')
        .unwrap();
    assert_eq!(address, "proxy:3128");
    assert_eq!(reply.stderr.unwrap().head, b"localhost,127.0.0.1,::1");
    let keys = TokenKeys::new(&Secret::new(TOKEN_KEY), None).unwrap();
    let now_ms = fixture.clock.now_ms();
    let identity = keys.verify(token.as_bytes(), now_ms).unwrap();
    assert_eq!(identity.tenant.as_str(), "acme");
    assert_eq!(identity.session.as_str(), "chat-1");
    // The call has twenty seconds, so the program has no more.
    assert!(
        identity.expires_s <= now_ms / 1000 + 20 + 31,
        "{identity:?}"
    );

    for _ in ["started", "ended"] {
        let event = events.next().await.unwrap();
        let event: v1::SandboxCommandAudit = event.decode().unwrap();
        assert_eq!(event.environment_names.len(), 8, "{event:?}");
        let bytes = event.encode_to_vec();
        let mut windows = bytes.windows(token.len());
        assert!(!windows.any(|window| window == token.as_bytes()));
    }

    let other_sandbox = fixture.ask(&print(super::address(&closed))).await.unwrap();
    assert_eq!(other_sandbox.stdout.unwrap().head, b"");
    let other_tenant = fixture.ask_as("beta", &print(super::address(&open))).await;
    assert_eq!(other_tenant.unwrap().stdout.unwrap().head, b"");
    fixture.end().await;
}
