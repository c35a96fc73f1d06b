//! Requests of intercepted tunnels that are repeated because their target closed, and repeated lengths of responses.

use super::intercepted::InterceptingProxy;
use super::persistent::{PersistentServer, ask, path_table, rest_of, table_with};
use super::*;

#[tokio::test]
async fn a_request_whose_kept_connection_ends_is_repeated_on_a_new_one_if_its_method_is_idempotent()
{
    for (line, status, numbers, codes) in [
        (
            "GET /tables/once",
            200,
            vec![1, 2],
            vec!["connection_closed", ""],
        ),
        // The request may have been processed, so it is not sent twice.
        ("POST /tables/once", 502, vec![1], vec!["connection_closed"]),
        // A new connection proves that the target does not want the request.
        (
            "GET /tables/gone",
            502,
            vec![1, 2],
            vec!["connection_closed", "connection_closed"],
        ),
    ] {
        let mut fixture = InterceptingProxy::start(&[]).await;
        let server = PersistentServer::start(&fixture, path_table);
        let mut client = fixture.client().await;
        let _ = ask(&mut client, "GET /tables/first", "").await;
        let _ = fixture.events().await;
        let (head, body) = ask(&mut client, line, "").await;
        assert_eq!(status_of(&head), status, "{line}: {head}");
        if status == 200 {
            assert_eq!(body, "/tables/once");
            // The tunnel lives on.
            let (head, _) = ask(&mut client, "GET /tables/next", "").await;
            assert_eq!(status_of(&head), 200);
        } else {
            assert_eq!(body, "connection_closed\n");
            assert_eq!(rest_of(&mut client).await, "");
        }
        let mut operations = Vec::new();
        for code in codes {
            let (opened, closed) = fixture.events().await;
            let stages = (opened.proxy_stage.as_str(), closed.proxy_stage.as_str());
            assert_eq!(
                (stages, closed.code.as_str()),
                (("opened", "closed"), code),
                "{line}"
            );
            operations.push(opened.operation_id);
        }
        operations.dedup();
        assert_eq!(
            operations.len(),
            numbers.len(),
            "each connection has events of its own"
        );
        let path = line.split(' ').nth(1).unwrap();
        let asked: Vec<_> = server
            .paths()
            .into_iter()
            .filter(|(_, asked)| asked == path)
            .map(|(number, _)| number)
            .collect();
        assert_eq!(asked, numbers, "{line}");
    }
}

#[tokio::test]
async fn equal_lengths_of_a_response_reach_the_client_as_one_field() {
    let fixture = InterceptingProxy::start(&[]).await;
    let _server = PersistentServer::start(&fixture, |path| {
        table_with(&format!("Content-Length: {}\r\n", path.len()), path)
    });
    let mut client = fixture.client().await;
    let (head, body) = ask(&mut client, "GET /tables/twice", "").await;
    assert_eq!(
        (status_of(&head), body.as_str()),
        (200, "/tables/twice"),
        "{head}"
    );
    let lower = head.to_ascii_lowercase();
    assert_eq!(lower.matches("content-length").count(), 1, "{head}");
}

#[tokio::test]
async fn a_request_is_not_repeated_after_a_part_of_a_response_or_when_it_names_another_method() {
    for (path, field) in [
        ("/tables/part", ""),
        ("/tables/once", "X-HTTP-Method-Override: POST\r\n"),
        ("/tables/once", "x-http-method: post\r\n"),
        ("/tables/once", "X-Method-Override: POST\r\n"),
        ("/tables/x?_method=POST&then=/once", ""),
    ] {
        let fixture = InterceptingProxy::start(&[]).await;
        let server = PersistentServer::start(&fixture, |path| match path {
            "/tables/part" => "HTTP/1.1 200 OK\r\nContent-Ty".to_owned(),
            _ => path_table(path),
        });
        let mut client = fixture.client().await;
        let _ = ask(&mut client, "GET /tables/first", "").await;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{field}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let response = rest_of(&mut client).await;
        assert_eq!(status_of(&response), 502, "{field}: {response}");
        let paths = server.paths();
        let times = paths.iter().filter(|(_, asked)| asked == path).count();
        assert_eq!(times, 1, "{path} {field}");
    }
}
