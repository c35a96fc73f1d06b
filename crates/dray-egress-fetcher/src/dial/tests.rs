//! Tests with kernel sockets on loopback. The judge pins no loopback address, so the socket is tested below it; the
//! in-memory network tests the race.

use std::net::Ipv4Addr;

use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

#[tokio::test]
async fn t_7_sockets_have_a_user_timeout_and_neither_reuse_nor_keepalive_nor_linger() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let to = listener.local_addr().unwrap();
    let stream = new_socket(to).unwrap().connect(to).await.unwrap();
    let options = SockRef::from(&stream);
    assert_eq!(
        options.tcp_user_timeout().unwrap(),
        Some(Duration::from_secs(30))
    );
    assert!(!options.reuse_address().unwrap());
    assert!(!options.reuse_port().unwrap());
    assert!(!options.keepalive().unwrap());
    assert_eq!(options.linger().unwrap(), None, "T-6");
    assert!(is_close_on_exec(&stream), "T-7");
}

/// The kernel shows the flags of a descriptor as octal text.
fn is_close_on_exec(stream: &tokio::net::TcpStream) -> bool {
    use std::os::fd::AsRawFd as _;
    const O_CLOEXEC: u32 = 0o2_000_000;
    let text =
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", stream.as_raw_fd())).unwrap();
    let flags = text
        .lines()
        .find_map(|line| line.strip_prefix("flags:"))
        .unwrap();
    u32::from_str_radix(flags.trim(), 8).unwrap() & O_CLOEXEC != 0
}

#[tokio::test]
async fn t_6_dropping_early_resets_instead_of_reading_on() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let to = listener.local_addr().unwrap();
    let mut near = new_socket(to).unwrap().connect(to).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    far.write_all(&[b'x'; 4096]).await.unwrap();
    near.readable().await.unwrap();
    let _one = near.read_u8().await.unwrap();
    drop(near);
    let ended = far.read(&mut [0; 16]).await;
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_does_not_answer_holds_up_neither_the_next_one_nor_its_failure() {
    let attempts = [None, Some(false), None, Some(true), None];
    let attempts = attempts.map(|outcome| async move {
        match outcome {
            Some(true) => Ok("connected"),
            Some(false) => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
            None => std::future::pending().await,
        }
    });
    let began = Instant::now();
    let winner = race_attempts(Vec::from(attempts)).await;
    assert_eq!(winner.unwrap(), "connected");
    assert_eq!(began.elapsed(), 2 * CONNECTION_ATTEMPT_DELAY);
    let none = Vec::<std::future::Ready<io::Result<()>>>::new();
    let failure = race_attempts(none).await.unwrap_err();
    assert_eq!(failure.kind(), io::ErrorKind::AddrNotAvailable);
}

#[tokio::test]
async fn t_1_neither_the_first_attempt_nor_the_one_after_a_failure_waits_for_a_timer() {
    let failed = || Err(io::Error::from(io::ErrorKind::ConnectionRefused));
    for outcomes in [vec![Ok("connected")], vec![failed(), Ok("connected")]] {
        let attempts = outcomes.into_iter().map(std::future::ready).collect();
        let winner = race_attempts(attempts).now_or_never();
        let winner = winner.expect("a connection in the first poll");
        assert_eq!(winner.unwrap(), "connected");
    }
}

#[test]
fn t_3_only_the_upstream_proxy_of_the_configuration_is_known() {
    // The crate reads no environment variables. On the path of a fetch only one dialer knows a proxy, and its file
    // requests only judged addresses.
    let sources = [
        include_str!("../dial.rs"),
        include_str!("../hop.rs"),
        include_str!("../tls.rs"),
        include_str!("../fetch.rs"),
        include_str!("../resolve/hickory.rs"),
    ];
    for source in sources {
        for word in ["std::env", "proxy(", "CONNECT "] {
            assert!(!source.contains(word), "{word}");
        }
    }
}
