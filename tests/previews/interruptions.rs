//! Tests that a transfer breaks when its sandbox ends in the middle of a response, so that no client mistakes a part of
//! the file for the whole file.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use dray_testkit::docker::{ContainerOptions, DockerEngine};

use super::PreviewProcess;

/// Size of the file: far more than the queues, sockets and pipes between the sandbox and the client can buffer.
const FILE_BYTES: usize = 96 << 20;
/// Number of bytes that are read before the sandbox ends.
const BYTES_BEFORE_SANDBOX_END: usize = 64 << 10;
/// Longest wait for the next bytes of a response.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Begins to read a response.
fn begin(preview: &PreviewProcess, area: &str, rest: &str) -> (TcpStream, Vec<u8>) {
    let host = preview.origin.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    let target = format!("/{area}/{}/{rest}", preview.token);
    write!(
        stream,
        "GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut received = vec![0; BYTES_BEFORE_SANDBOX_END];
    stream.read_exact(&mut received).unwrap();
    assert!(received.starts_with(b"HTTP/1.1 200 "), "{area}");
    (stream, received)
}

/// Reads the rest, until the connection ends or breaks.
fn finish(mut stream: TcpStream, mut received: Vec<u8>) -> (String, Vec<u8>) {
    let _ = stream.read_to_end(&mut received);
    let head = received
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    let body = received.split_off(head + 4);
    (
        String::from_utf8(received).unwrap().to_ascii_lowercase(),
        body,
    )
}

#[test]
fn a_container_that_ends_breaks_the_file_and_the_archive_that_it_was_sending() {
    let engine = DockerEngine::shared();
    let endpoint = format!(
        "sandbox-transfer.docker.endpoint=unix://{}",
        engine.socket().display()
    );
    for (area, rest) in [("p", "large.bin"), ("z", "")] {
        let container = engine.container(ContainerOptions::default());
        // Random bytes, which an archive cannot compress.
        container.sh(&format!(
            "mkdir /workspace/www; head -c {FILE_BYTES} /dev/urandom > /workspace/www/large.bin"
        ));
        let directory = format!("docker:{}:/workspace/www", container.name());
        let preview = PreviewProcess::start(&directory, &[&endpoint]);
        let (stream, received) = begin(&preview, area, rest);
        container.remove();
        let (head, body) = finish(stream, received);
        if area == "p" {
            assert!(
                head.contains(&format!("content-length: {FILE_BYTES}")),
                "{head}"
            );
            assert!(
                body.len() < FILE_BYTES,
                "a file of an ended sandbox looks complete"
            );
        } else {
            assert!(head.contains("transfer-encoding: chunked"), "{head}");
            // The engine may have read the whole file ahead of the client; then the archive is complete.
            let is_complete = body.ends_with(b"\r\n0\r\n\r\n");
            assert!(
                !is_complete || body.len() > FILE_BYTES,
                "an archive of an ended sandbox looks complete with {} bytes",
                body.len()
            );
        }
        // The link reports that the sandbox has ended, and shows nothing of another container.
        let after_removal = preview.get("p", "large.bin");
        assert!(
            [410, 503].contains(&after_removal.status),
            "{after_removal:?}"
        );
    }
}
