//! Tests of a shared connection in memory: when it counts as stalled.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::sleep;

use super::*;

/// A query whose response comes after those of four others.
const SLOW_QUERY: &[u8] = b"\0\x01slow";
/// A query with a response.
const QUICK_QUERY: &[u8] = b"\0\x02quick";

/// Responds to a query with its own bytes.
async fn serve(mut far: DuplexStream) -> io::Result<()> {
    let (mut slow, mut quick_queries) = (Vec::new(), 0);
    loop {
        let length = far.read_u16().await?;
        let mut packet = vec![0; usize::from(length)];
        far.read_exact(&mut packet).await?;
        let message = [&length.to_be_bytes(), packet.as_slice()].concat();
        if packet.ends_with(b"slow") {
            slow = message;
            continue;
        }
        far.write_all(&message).await?;
        quick_queries += 1;
        if quick_queries == 4 {
            far.write_all(&slow).await?;
        }
    }
}

/// A connection to such a server, which runs in `server`.
fn connect(server: &mut JoinSet<io::Result<()>>) -> Connection {
    let (near, far) = tokio::io::duplex(1 << 16);
    server.spawn(serve(far));
    let last_arrival = LastArrival::now();
    let io = last_arrival.watch(Box::new(near));
    let mut tasks = JoinSet::new();
    Connection {
        protocol: ConnectionProtocol::Stream(StreamConnection::start(io, &mut tasks)),
        last_arrival,
        _tasks: tasks,
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_that_alone_gets_no_response_does_not_end_the_connection() {
    let mut server = JoinSet::new();
    let connection = connect(&mut server);
    let others = async {
        for _ in 0..4 {
            // paused clock: longer than a stall, all together
            sleep(STALL_TIMEOUT / 2).await;
            let response = connection.exchange(QUICK_QUERY).await;
            assert_eq!(response.unwrap(), QUICK_QUERY);
        }
    };
    let (slow, ()) = tokio::join!(connection.exchange_unless_stalled(SLOW_QUERY), others);
    assert_eq!(slow.unwrap().unwrap(), SLOW_QUERY);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_stalled_when_nothing_arrives() {
    let mut server = JoinSet::new();
    let connection = connect(&mut server);
    let sent = Instant::now();
    let slow = connection.exchange_unless_stalled(SLOW_QUERY).await;
    assert!(slow.is_none());
    assert_eq!(sent.elapsed(), STALL_TIMEOUT);
}
