//! State that an intercepted tunnel keeps between requests: the client always, the connection to the target sometimes.

use super::intercepted::InterceptingProxy;
use super::persistent::{PersistentServer, ask, field, path_table, table_with};
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
