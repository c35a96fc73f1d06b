//! A proxy in front of an HTTP server that shifts the `date` field of the responses, as a server with another clock
//! would.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use dray_types::Clock;

/// The field with its separator, as hyper writes it.
const DATE_FIELD: &[u8] = b"\r\ndate: ";
/// Length of a date (RFC 9110, section 5.6.7), so that a replacement moves no byte.
const DATE_BYTES: usize = 29;

/// Starts the proxy on a free port, for as long as the test runs. Its server's clock is behind by `behind`.
pub(crate) fn start(server: SocketAddr, behind: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let upstream = TcpStream::connect(server).unwrap();
            let (requests, replies) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
            thread::spawn(move || forward(requests, upstream, |_| ()));
            thread::spawn(move || forward(replies, client, |bytes| shift(bytes, behind)));
        }
    });
    address
}

/// Copies all bytes of a direction, and then its end.
fn forward(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut [u8])) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        change(&mut buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Replaces each date. The server writes the head of a response in one write, so no date is divided.
fn shift(bytes: &mut [u8], behind: Duration) {
    let now = UNIX_EPOCH + Duration::from_millis(Clock::system().now_ms());
    let date = httpdate::fmt_http_date(now - behind);
    let mut start = 0;
    while let Some(position) = position_of(&bytes[start..]) {
        start += position;
        let Some(field) = bytes.get_mut(start..start + DATE_BYTES) else {
            return;
        };
        field.copy_from_slice(date.as_bytes());
    }
}

/// The position after the next name of the field.
fn position_of(bytes: &[u8]) -> Option<usize> {
    let found = bytes
        .windows(DATE_FIELD.len())
        .position(|window| window == DATE_FIELD)?;
    Some(found + DATE_FIELD.len())
}
