//! State that an intercepted tunnel keeps between requests: the client always, the connection to the target sometimes.

use super::intercepted::{InterceptingProxy, POLICY_TEXT};
use super::persistent::{
    PersistentServer, ResponseOfPath, ask, field, path_table, rest_of, table_with,
};
use super::*;

#[tokio::test]
async fn a_request_body_that_the_target_does_not_read_is_never_read_as_a_request() {
    let fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, path_table);
    let mut client = fixture.client().await;
    let hidden = "DELETE /tables/secret HTTP/1.1\r\nHost: x\r\n\r\n";
    for (path, body) in [
        ("/tables/a", ""),
        ("/tables/unread", hidden),
        ("/tables/b", ""),
    ] {
        let (head, received) = ask(&mut client, &format!("GET {path}"), body).await;
        assert_eq!((status_of(&head), received.as_str()), (200, path), "{head}");
        assert_eq!(field(&head, "connection"), None);
    }
    let expected = [(1, "/tables/a"), (1, "/tables/unread"), (2, "/tables/b")];
    assert_eq!(
        server.paths(),
        expected.map(|(number, path)| (number, path.to_owned()))
    );
    let requests = server.requests.lock().unwrap();
    let connections: Vec<_> = requests
        .iter()
        .map(|(_, head)| field(head, "connection"))
        .collect();
    assert_eq!(connections, [None, Some("close"), None]);
}

#[tokio::test]
async fn a_tunnel_that_waits_without_a_target_holds_its_slots_until_it_ends() {
    let set = [("max_per_session", "1"), ("open_timeout", "3s")];
    let fixture = InterceptingProxy::start(&set).await;
    let _server =
        PersistentServer::start(&fixture, |path| table_with("Connection: close\r\n", path));
    let mut client = fixture.client().await;
    for path in ["/tables/a", "/tables/b"] {
        // The second one takes the slots of the first one.
        let (head, body) = ask(&mut client, &format!("GET {path}"), "").await;
        assert_eq!((status_of(&head), body.as_str()), (200, path), "{head}");
        let (_, head) = fixture.proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
        assert_eq!(status_of(&head), 504, "the session has one slot: {head}");
    }
    drop(client);
    let (_other, head) = fixture.proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    assert_eq!(status_of(&head), 200, "{head}");
}

#[tokio::test]
async fn a_request_of_a_tunnel_that_the_rules_refuse_is_not_charged_and_opens_no_connection() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let limits = "[role.limits]\nrequests_per_day = 2\n";
    std::fs::write(&path, format!("{POLICY_TEXT}{limits}")).unwrap();
    let set = [("/policy_path", path.to_str().unwrap())];
    let closing: ResponseOfPath = |path| table_with("Connection: close\r\n", path);
    // The request would use the connection of the one before, or needs a new one.
    for respond in [path_table, closing] {
        for refused in [
            "GET /other HTTP/1.1\r\n",
            "GET /tables/b HTTP/1.1\r\nX-HTTP-Method-Override: DELETE\r\n",
        ] {
            let mut fixture = InterceptingProxy::start(&set).await;
            let _server = PersistentServer::start(&fixture, respond);
            let mut client = fixture.client().await;
            let (head, _) = ask(&mut client, "GET /tables/a", "").await;
            assert_eq!(status_of(&head), 200, "{head}");
            let _ = fixture.events().await;
            let request = format!("{refused}Host: {TARGET_HOST}\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let response = rest_of(&mut client).await;
            assert_eq!(status_of(&response), 403, "{refused}");
            let event = fixture.proxy.event().await;
            let fields = (event.proxy_stage.as_str(), event.code.as_str());
            assert_eq!(fields, ("refused", "policy_denied"));
            assert_eq!(
                (event.url_host.as_str(), event.intercepted),
                (TARGET_HOST, true)
            );
            assert_eq!(fixture.proxy.fake_network.dialled().len(), 1, "{refused}");
            let mut client = fixture.client().await;
            let (head, _) = ask(&mut client, "GET /tables/c", "").await;
            assert_eq!(status_of(&head), 200, "{refused}: {head}");
        }
    }
}
