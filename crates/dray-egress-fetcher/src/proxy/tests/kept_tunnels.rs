//! What an intercepted tunnel keeps from one request to the next: its client, and the connection to its target or not.

use super::intercepted::InterceptingProxy;
use super::persistent::{PersistentServer, ask, field, own_path};
use super::*;

#[tokio::test]
async fn a_request_body_that_the_target_does_not_read_is_no_request() {
    let fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, own_path);
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
