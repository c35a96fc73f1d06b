//! A scripted engine.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tokio_util::task::TaskTracker;

/// The container that it knows.
pub(crate) const CONTAINER_ID: &str =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Responds by the first rule whose text is in the first line of a request; never responds if the response of the rule
/// is empty.
pub(crate) struct ScriptedEngine {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    _serving: AbortOnDropHandle<()>,
}

impl ScriptedEngine {
    pub(crate) async fn start(version: &str, rules: Vec<(&'static str, Vec<u8>)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let ping = answer("200 OK", &format!("Api-Version: {version}\r\n"), b"OK");
        let known =
            format!(r#"{{"Id":"{CONTAINER_ID}","State":{{"Status":"running"}},"Config":{{}}}}"#);
        let inspect = answer(
            "200 OK",
            "Content-Type: application/json\r\n",
            known.as_bytes(),
        );
        let mut all = rules;
        all.push(("/_ping", ping));
        all.push(("/json ", inspect));
        all.push(("", answer("404 Not Found", "", b"")));
        let all = Arc::new(all);
        let tasks = TaskTracker::new();
        let kept = Arc::clone(&seen);
        let serving = tasks.clone().spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (all, seen) = (Arc::clone(&all), Arc::clone(&kept));
                tasks.spawn(async move {
                    let mut head = Vec::new();
                    loop {
                        let mut byte = [0];
                        if !matches!(stream.read(&mut byte).await, Ok(1)) {
                            return;
                        }
                        head.push(byte[0]);
                        if !head.ends_with(b"\r\n\r\n") {
                            continue;
                        }
                        let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
                        let line = text.lines().next().unwrap().to_owned();
                        seen.lock().unwrap().push(text);
                        let rule = all.iter().find(|(with, _)| line.contains(with));
                        let (_, response) = rule.unwrap();
                        if !response.is_empty() && stream.write_all(response).await.is_err() {
                            return;
                        }
                        if response.windows(7).any(|window| window == b": close") {
                            return;
                        }
                    }
                });
            }
        });
        Self {
            address,
            seen,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    /// Heads of all requests so far.
    pub(crate) fn received_requests(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// A response with its length.
pub(crate) fn answer(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut response =
        format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n").into_bytes();
    response.extend_from_slice(body);
    response
}

/// A response that ends with the connection.
pub(crate) fn closing(fields: &str, body: &[u8]) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 200 OK\r\n{fields}Connection: close\r\n\r\n").into_bytes();
    response.extend_from_slice(body);
    response
}

/// The header that describes a path.
pub(crate) fn described(size: u64, mode: u32) -> String {
    use base64::Engine as _;
    let json = format!(
        r#"{{"name":"file","size":{size},"mode":{mode},"mtime":"2026-01-02T03:04:05Z","linkTarget":""}}"#
    );
    let text = base64::engine::general_purpose::STANDARD.encode(json);
    format!("X-Docker-Container-Path-Stat: {text}\r\n")
}

/// The tar of one file as the engine sends it.
pub(crate) fn packed(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut tar = vec![0; 512];
    tar[..name.len()].copy_from_slice(name.as_bytes());
    tar[100..108].copy_from_slice(b"0000644\0");
    tar[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    tar[136..148].copy_from_slice(b"14000000000\0");
    tar[148..156].fill(b' ');
    tar[156] = kind;
    tar[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = tar.iter().copied().map(u32::from).sum();
    tar[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(data);
    tar.resize(tar.len().next_multiple_of(512), 0);
    tar.resize(tar.len() + 1024, 0);
    tar
}
