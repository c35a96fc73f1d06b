//! A syslog server of the test, over each transport.

use std::io::BufReader;
use std::net::TcpListener;

use dray_service::telemetry::InstrumentCatalogue;
use serde_json::Value;

use super::*;
use crate::audit::line::event_text;
use crate::config::AuditFormat;

const TEST_TIMEOUT: Duration = Duration::from_secs(10);

fn queue(address: SyslogAddress) -> AuditQueue {
    let settings = AuditSyslogSettings {
        address,
        format: AuditFormat::Json,
        facility: 13,
        sample_percent: 100,
    };
    let metrics = EgressMetrics::new(&InstrumentCatalogue::new().meter());
    AuditQueue::to_syslog(&settings, metrics).unwrap()
}

fn event(operation: &str, verdict: &str) -> v1::EgressAudit {
    v1::EgressAudit {
        operation_id: operation.to_owned(),
        verdict: verdict.to_owned(),
        time_ms: 1_800_000_000_120,
        ..v1::EgressAudit::default()
    }
}

fn record(queue: &AuditQueue, event: &v1::EgressAudit) {
    queue.record(event, &event_text(event));
}

/// The head of a message, and its JSON.
fn parts(message: &[u8]) -> (String, Value) {
    let text = std::str::from_utf8(message).unwrap();
    let (head, json) = text.split_once(" - ").unwrap();
    (head.to_owned(), serde_json::from_str(json).unwrap())
}

fn check(message: &[u8], priority: u32, operation: &str) {
    let (head, json) = parts(message);
    let (host, process) = (host_name(), std::process::id());
    let expected = format!(
        "<{priority}>1 2027-01-15T08:00:00.120Z {host} egress-fetcher {process} EgressAudit"
    );
    assert_eq!(head, expected);
    assert_eq!(json["operation_id"], operation);
}

#[test]
fn datagrams_of_udp_and_unix_are_one_message_each() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let unix = UnixDatagram::bind(&path).unwrap();
    unix.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut buffer = vec![0; 64 * 1024];
    let server = SyslogAddress::Udp(udp.local_addr().unwrap().to_string());
    for address in [server, SyslogAddress::Unix(path)] {
        let queue = queue(address.clone());
        record(&queue, &event("one", "allow"));
        record(&queue, &event("two", "deny"));
        record(
            &queue,
            &v1::EgressAudit {
                code: "policy_denied".to_owned(),
                ..event("three", "allow")
            },
        );
        for (priority, operation) in [(110, "one"), (109, "two"), (109, "three")] {
            let length = match &address {
                SyslogAddress::Unix(_) => unix.recv(&mut buffer).unwrap(),
                _ => udp.recv(&mut buffer).unwrap(),
            };
            check(&buffer[..length], priority, operation);
        }
    }
}

/// The next message of a connection with octet counts.
fn read_counted(stream: &mut impl io::Read) -> Vec<u8> {
    let mut count = String::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        match byte {
            [b' '] => break,
            [digit] => count.push(char::from(digit)),
        }
    }
    let mut message = vec![0; count.parse().unwrap()];
    stream.read_exact(&mut message).unwrap();
    message
}

#[test]
fn a_tcp_connection_has_octet_counts_and_is_opened_again_after_it_broke() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let queue = queue(SyslogAddress::Tcp(
        listener.local_addr().unwrap().to_string(),
    ));
    record(&queue, &event("one", "allow"));
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream);
    check(&read_counted(&mut reader), 110, "one");
    record(&queue, &event("two", "deny"));
    check(&read_counted(&mut reader), 109, "two");
    // A close with unread bytes resets the connection, so that the next writes of the queue fail.
    drop(reader);
    listener.set_nonblocking(true).unwrap();
    let repeated = std::time::Instant::now() + TEST_TIMEOUT;
    let stream = loop {
        record(&queue, &event("three", "deny"));
        let _ = queue.flush().blocking_recv();
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) => assert!(std::time::Instant::now() < repeated, "{error}"),
        }
    };
    stream.set_nonblocking(false).unwrap();
    check(&read_counted(&mut BufReader::new(stream)), 109, "three");
}

#[test]
fn events_for_an_unreachable_server_are_dropped_and_delay_no_caller() {
    let address = dray_testkit::port::unassigned_address();
    let queue = queue(SyslogAddress::Tcp(address.to_string()));
    for _ in 0..1000 {
        record(&queue, &event("one", "deny"));
    }
    let _ = queue.flush().blocking_recv();
    let queued = queue
        .queued_bytes
        .load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(queued, 0);
    let missing = SyslogAddress::Unix("/nonexistent/log".into());
    let queue = self::queue(missing);
    record(&queue, &event("one", "deny"));
    let _ = queue.flush().blocking_recv();
}

#[test]
fn an_event_that_is_too_large_for_a_datagram_is_dropped_alone() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let queue = queue(SyslogAddress::Udp(udp.local_addr().unwrap().to_string()));
    record(&queue, &event("one", "deny"));
    record(&queue, &event(&"x".repeat(70_000), "deny"));
    record(&queue, &event("three", "deny"));
    let mut buffer = vec![0; 64 * 1024];
    for operation in ["one", "three"] {
        let length = udp.recv(&mut buffer).unwrap();
        check(&buffer[..length], 109, operation);
    }
}
