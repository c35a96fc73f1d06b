//! Servers that send malformed responses.

use dray_platform::ErrorKind;
use dray_types::Period;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::task::JoinSet;

use super::sender;
use crate::imap::ImapConnection;
use crate::{ConnectionSecurity, EmailOptions, InboxOptions, SenderVerification};

/// A server that sends a greeting and then this response to every command.
async fn serve_once(tasks: &mut JoinSet<()>, response: &'static [u8]) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut socket = BufReader::new(socket);
        let _ = socket.write_all(b"* OK hello\r\n").await;
        let mut line = String::new();
        while socket
            .read_line(&mut line)
            .await
            .is_ok_and(|count| count > 0)
        {
            if socket.write_all(response).await.is_err() {
                return;
            }
        }
    });
    port
}

#[tokio::test]
async fn malformed_responses_are_reported() {
    let mut tasks = JoinSet::new();
    let long: &'static [u8] = vec![b'x'; 3 << 20].leak();
    for (response, kind) in [
        (
            &b"* 1 FETCH (BODY[] {4294967295}\r\n"[..],
            ErrorKind::Unknown,
        ),
        (long, ErrorKind::Unknown),
        (b"other OK done\r\n", ErrorKind::Unknown),
        (b"* ((((\r\n", ErrorKind::Unknown),
        (b"+ go on\r\n", ErrorKind::Unknown),
    ] {
        let options = EmailOptions {
            idle_timeout: Period::secs(10),
            inbox: Some(InboxOptions {
                host: "127.0.0.1".to_owned(),
                port: serve_once(&mut tasks, response).await,
                security: ConnectionSecurity::None,
                username: "bot".to_owned(),
                verify: SenderVerification::None,
                ..InboxOptions::default()
            }),
            host: "127.0.0.1".to_owned(),
            from: "bot@our.example".to_owned(),
            ..EmailOptions::default()
        };
        let email = sender(options.clone());
        let inbox = options.inbox.clone().unwrap();
        let opened = ImapConnection::open(&options, &inbox, &email.tls).await;
        assert_eq!(opened.unwrap_err().kind(), kind);
    }
}
