//! Fetches over HTTP/2 from the server of Node.js, over TLS on a socket.

use std::process::Stdio;

use dray_testkit::tls::Authority;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::fake_network::*;

/// Responds by path. `allowHTTP1` lets a client choose the version, as on servers of the internet.
const NODE_SERVER: &str = r#"
const fs = require('node:fs'), http2 = require('node:http2'), zlib = require('node:zlib');
const [directory] = process.argv.slice(2);
const large = Buffer.alloc(3 << 20, 'drayage');
const server = http2.createSecureServer({
  key: fs.readFileSync(directory + '/key.pem'),
  cert: fs.readFileSync(directory + '/certificate.pem'),
  allowHTTP1: true,
}, (request, response) => {
  response.setHeader('x-version', request.httpVersion);
  switch (request.url) {
    case '/large': response.setHeader('content-length', large.length); return response.end(large);
    case '/pieces': for (let i = 0; i < 3000; i++) response.write('piece\n'); return response.end();
    case '/gzip': response.setHeader('content-encoding', 'gzip'); return response.end(zlib.gzipSync(large));
    case '/moved': response.writeHead(302, { location: '/large' }); return response.end();
    case '/hints': response.stream.additionalHeaders({ ':status': 103, link: '</x>' }); return response.end('hints');
    case '/gone': response.writeHead(404); return response.end('not this');
    case '/cancelled':
      response.write('part');
      return setImmediate(() => response.stream.close(http2.constants.NGHTTP2_CANCEL));
    case '/ranges': {
      response.setHeader('etag', '"v1"');
      const range = /bytes=(\d+)-/.exec(request.headers.range ?? '');
      if (!range) {
        response.write(large.subarray(0, 100_000));
        return setImmediate(() => response.stream.session.destroy());
      }
      const from = Number(range[1]);
      response.writeHead(206, { 'content-range': `bytes ${from}-${large.length - 1}/${large.length}` });
      return response.end(large.subarray(from));
    }
  }
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
"#;

#[expect(
    clippy::disallowed_methods,
    reason = "connects to the server of this test"
)]
async fn connect_to_node(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).await.unwrap()
}

struct NodeServer {
    fixture: FetcherFixture,
    _child: Child,
    _links: JoinSet<()>,
    _directory: tempfile::TempDir,
}

impl NodeServer {
    async fn start() -> Self {
        let authority = Authority::new().unwrap();
        let issued = authority.issue(&["files.example.org"], false).unwrap();
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("key.pem", &issued.private_key),
            ("certificate.pem", &issued.certificate),
            ("server.js", &NODE_SERVER.to_owned()),
        ] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let mut child = Command::new("node")
            .arg(directory.path().join("server.js"))
            .arg(directory.path())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port: u16 = lines.next_line().await.unwrap().unwrap().parse().unwrap();
        let fixture = FetcherFixture {
            bundle: Some(authority.pem()),
            ..FetcherFixture::default()
        };
        let (ends, mut connections) = tokio::sync::mpsc::unbounded_channel();
        fixture
            .fake_network
            .peer(PUBLIC_ADDRESS, 443, FakePeer::Handed(ends));
        let mut links = JoinSet::new();
        links.spawn(async move {
            let mut copying = JoinSet::new();
            while let Some(mut end) = connections.recv().await {
                let mut stream = connect_to_node(port).await;
                copying.spawn(
                    async move { tokio::io::copy_bidirectional(&mut end, &mut stream).await },
                );
            }
        });
        Self {
            fixture,
            _child: child,
            _links: links,
            _directory: directory,
        }
    }

    async fn fetch(&self, path: &str) -> FetchResult {
        let url = format!("https://files.example.org{path}");
        self.fixture.fetch(&url).await
    }
}

#[tokio::test]
async fn fetches_from_the_http_2_server_of_node() {
    let server = NodeServer::start().await;
    let large = "drayage".as_bytes().repeat((3 << 20) / 7 + 1)[..3 << 20].to_vec();
    for (path, expected) in [
        ("/large", &large),
        ("/gzip", &large),
        ("/moved", &large),
        ("/ranges", &large),
        ("/pieces", &b"piece\n".repeat(3000)),
        ("/hints", &b"hints".to_vec()),
    ] {
        let outcome = server.fetch(path).await;
        assert_eq!(outcome.code(), "ok", "{path} {}", outcome.message());
        assert!(outcome.body == *expected, "{path}: {}", outcome.body.len());
        let version = outcome.record.hops.last().unwrap().http_version;
        assert_eq!(version, Some(http::Version::HTTP_2), "{path}");
    }
    assert_eq!(server.fetch("/gone").await.end(), ("http_status", "head"));
    assert_eq!(
        server.fetch("/cancelled").await.end(),
        ("truncated", "body")
    );
}
