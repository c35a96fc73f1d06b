//! A mailbox with mails that its server cannot return.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_platform::InboundSource as _;
use dray_platform::conformance::RecordingSink;
use dray_types::Period;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::inbox::with_short_delays;
use crate::{ConnectionSecurity, EmailOptions, InboxOptions, SenderVerification};

/// Mails whose requests always fail.
const UNREADABLE_UIDS: [u64; 2] = [1, 2];
/// A later mail with an empty head, which is read, not accepted, and marked.
const READABLE_UID: u64 = 3;

type MarkedUids = Arc<Mutex<BTreeSet<u64>>>;

/// Serves one client until it disconnects.
async fn serve(socket: TcpStream, marked: MarkedUids) {
    let mut socket = BufReader::new(socket);
    let mut response = "* OK hello\r\n".to_owned();
    loop {
        if socket.write_all(response.as_bytes()).await.is_err() {
            return;
        }
        let mut line = String::new();
        if socket.read_line(&mut line).await.unwrap_or_default() == 0 {
            return;
        }
        let mut words = line.split_whitespace();
        let (tag, command) = (words.next().unwrap(), words.next().unwrap());
        let (verb, uid) = (words.next().unwrap_or_default(), words.next());
        let uid = uid.and_then(|uid| uid.parse().ok()).unwrap_or_default();
        let mut outcome = "OK done";
        let untagged = match (command, verb) {
            ("CAPABILITY", _) => "* CAPABILITY IMAP4rev1\r\n".to_owned(),
            ("SELECT", _) => "* OK [UIDVALIDITY 7] valid\r\n".to_owned(),
            ("UID", "SEARCH") => {
                let marked = marked.lock().unwrap();
                let unseen = (1..=READABLE_UID).filter(|uid| !marked.contains(uid));
                let unseen: Vec<String> = unseen.map(|uid| uid.to_string()).collect();
                format!("* SEARCH {}\r\n", unseen.join(" "))
            }
            ("UID", "FETCH") if UNREADABLE_UIDS.contains(&uid) => {
                outcome = "NO the mail is damaged";
                String::new()
            }
            ("UID", "FETCH") => {
                format!("* {uid} FETCH (UID {uid} RFC822.SIZE 2 BODY[HEADER]<0> {{2}}\r\n\r\n)\r\n")
            }
            ("UID", "STORE") => {
                marked.lock().unwrap().insert(uid);
                String::new()
            }
            _ => String::new(),
        };
        response = format!("{untagged}{tag} {outcome}\r\n");
    }
}

#[tokio::test]
async fn several_unreadable_mails_are_given_up_and_delay_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let marked = MarkedUids::default();
    let mut tasks = JoinSet::new();
    let server_marked = Arc::clone(&marked);
    tasks.spawn(async move {
        let mut clients = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            clients.spawn(serve(socket, Arc::clone(&server_marked)));
        }
    });
    let email = with_short_delays(EmailOptions {
        host: "127.0.0.1".to_owned(),
        from: "bot@our.example".to_owned(),
        inbox: Some(InboxOptions {
            host: "127.0.0.1".to_owned(),
            port,
            security: ConnectionSecurity::None,
            username: "bot".to_owned(),
            verify: SenderVerification::None,
            poll_wait: Period::millis(10),
            ..InboxOptions::default()
        }),
        ..EmailOptions::default()
    });
    let (sink, _received) = RecordingSink::new(0);
    let stop = CancellationToken::new();
    let all_are_marked = async {
        while marked.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let receiving = async { tokio::join!(email.poll(&sink, stop.clone()), all_are_marked) };
    let received = tokio::time::timeout(Duration::from_secs(15), receiving).await;
    let (polled, ()) = received.unwrap_or_else(|_| panic!("only {marked:?} were marked"));
    polled.unwrap();
}
