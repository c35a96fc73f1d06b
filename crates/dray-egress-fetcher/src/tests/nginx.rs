//! The response cache and resumed bodies with a real server: nginx as Debian packages it.
//!
//! The fetcher dials addresses of the in-memory network; each connection is joined to a connection with nginx.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use dray_testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::cached::{CachedService, outcome};
use super::fake_network::*;
use super::test_service::*;

/// Bytes of the file whose transfer breaks off.
const LARGE_BYTES: usize = 300_000;
/// Bytes of a response after which its connection breaks, if it must.
const CUT_BYTES: usize = 100_000;

/// One location for each policy. nginx sends `ETag` and `Last-Modified`, and decides about conditions and ranges
/// itself.
const NGINX_LOCATIONS: &str = r#"
location /fresh/ { alias FILES/; add_header Cache-Control "max-age=60"; }
location /stale/ { alias FILES/; add_header Cache-Control "max-age=0, must-revalidate"; }
location /unnamed/ { alias FILES/; }
location /expires/ { alias FILES/; expires 1h; }
location /dated/ { alias FILES/; etag off; add_header Cache-Control "no-cache"; }
location /no-store/ { alias FILES/; add_header Cache-Control "no-store"; }
location /private/ { alias FILES/; add_header Cache-Control "private, max-age=60"; }
location /vary/ { alias FILES/; add_header Cache-Control "max-age=60"; add_header Vary "Accept-Language"; }
location /vary-all/ { alias FILES/; add_header Cache-Control "max-age=60"; add_header Vary "*"; }
location /cookie/ { alias FILES/; add_header Cache-Control "max-age=60"; add_header Set-Cookie "a=b"; }
location /packed/ { alias FILES/; gzip on; gzip_types *; gzip_min_length 1; gzip_vary on; add_header Cache-Control "max-age=60"; }
location /gone/ { return 404; }
location /moved/ { return 302 http://files.example.org/fresh/a; }
"#;

/// The server, whose files a test can change.
struct NginxServer {
    directory: tempfile::TempDir,
    process: Child,
}

impl NginxServer {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        std::fs::create_dir(home.join("files")).unwrap();
        let (files, shown) = (home.join("files"), home.display());
        let locations = NGINX_LOCATIONS.replace("FILES", files.to_str().unwrap());
        // The workers run as the user of the test, who owns the files.
        let configuration = format!(
            "daemon off;\nmaster_process off;\npid {shown}/pid;\nerror_log {shown}/error.log;\nevents {{}}\nhttp {{\n\
             log_format lines '$request_method $uri $status \
             $http_if_none_match|$http_if_modified_since|$http_range|$http_if_range|';\n\
             access_log {shown}/access.log lines;\n\
             client_body_temp_path {shown}/t1; proxy_temp_path {shown}/t2; fastcgi_temp_path {shown}/t3;\n\
             uwsgi_temp_path {shown}/t4; scgi_temp_path {shown}/t5;\n\
             server {{ listen unix:{shown}/socket; default_type text/csv;\n{locations}}}\n}}\n"
        );
        std::fs::write(home.join("nginx.conf"), configuration).unwrap();
        let process = Command::new("nginx")
            .args(["-p", &shown.to_string(), "-e", "stderr", "-c"])
            .arg(home.join("nginx.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let nginx = Self { directory, process };
        let socket = nginx.socket();
        eventually("nginx", async || UnixStream::connect(&socket).await.ok()).await;
        nginx
    }

    fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("socket")
    }

    /// Writes a file whose date is `age_s` seconds before now.
    fn write(&self, name: &str, content: &[u8], age_s: u64) {
        let path = self.directory.path().join("files").join(name);
        std::fs::write(&path, content).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let written = file.metadata().unwrap().modified().unwrap();
        let date = written - std::time::Duration::from_secs(age_s);
        file.set_modified(date).unwrap();
    }

    /// What nginx logged for each request, from the first one.
    fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.path().join("access.log"));
        text.unwrap().lines().map(str::to_owned).collect()
    }
}

impl Drop for NginxServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A service with a cache, whose `files.example.org` is nginx.
struct NginxFixture {
    nginx: NginxServer,
    cached: CachedService,
    /// Set before a fetch: its first connection breaks after [`CUT_BYTES`] bytes of the response.
    cut: std::sync::Arc<std::sync::atomic::AtomicBool>,
    _joining: JoinSet<()>,
}

impl NginxFixture {
    async fn start() -> Self {
        let nginx = NginxServer::start().await;
        let cached = CachedService::start(&[]).await;
        let (sender, mut accepted) = tokio::sync::mpsc::unbounded_channel();
        let peer = FakePeer::Handed(sender);
        cached.fake_network.peer(PUBLIC_ADDRESS, 80, peer);
        let cut = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (socket, is_cut) = (nginx.socket(), std::sync::Arc::clone(&cut));
        let mut joining = JoinSet::new();
        joining.spawn(async move {
            let mut connections = JoinSet::new();
            while let Some(near) = accepted.recv().await {
                let is_cut = is_cut.swap(false, std::sync::atomic::Ordering::Relaxed);
                let limit = if is_cut { CUT_BYTES } else { usize::MAX };
                connections.spawn(join(near, socket.clone(), limit));
            }
        });
        Self {
            nginx,
            cached,
            cut,
            _joining: joining,
        }
    }

    /// The body, or the detail of the fault, and how the cache was used.
    async fn fetch(&mut self, path: &str) -> (String, String) {
        let url = format!("http://files.example.org{path}");
        let request = fetch_request(&url);
        self.cached.fetch_as("acme", "reporter", request).await
    }

    /// Fetches a path and returns how the cache was used.
    async fn use_of(&mut self, path: &str) -> String {
        let (body, used) = self.fetch(path).await;
        assert_eq!(body, "1;2", "{path}");
        used
    }
}

/// Joins a connection to nginx, until either side ends or `limit` bytes of the response have passed.
async fn join(near: DuplexStream, socket: impl AsRef<Path>, limit: usize) {
    let far = UnixStream::connect(socket).await.unwrap();
    let (mut near_read, mut near_write) = tokio::io::split(near);
    let (mut far_read, mut far_write) = far.into_split();
    let up = async {
        let _ = tokio::io::copy(&mut near_read, &mut far_write).await;
        let _ = far_write.shutdown().await;
    };
    let down = async {
        let mut limited = (&mut far_read).take(limit as u64);
        let _ = tokio::io::copy(&mut limited, &mut near_write).await;
        let _ = near_write.shutdown().await;
    };
    // A client that has sent its request still reads.
    tokio::select! {
        () = async {
            up.await;
            std::future::pending::<()>().await;
        } => {}
        () = down => {}
    }
}

#[tokio::test]
async fn responses_of_nginx_are_reused_as_long_as_their_fields_say() {
    let mut fixture = NginxFixture::start().await;
    fixture.nginx.write("a", b"1;2", 3600);
    for (path, second) in [
        ("/fresh/a", "hit"),
        ("/expires/a", "hit"),
        ("/vary/a", "hit"),
        ("/packed/a", "hit"),
        ("/moved/a", "hit"),
        ("/stale/a", "revalidated"),
        ("/dated/a", "revalidated"),
        // Without a lifetime nothing is fresh, regardless of its date.
        ("/unnamed/a", "revalidated"),
        ("/no-store/a", "miss"),
        ("/private/a", "miss"),
        ("/vary-all/a", "miss"),
        ("/cookie/a", "miss"),
    ] {
        let first = fixture.use_of(path).await;
        // A redirect leads to a file that is stored already.
        let expected = if path == "/moved/a" { "hit" } else { "miss" };
        assert_eq!(first, expected, "{path}");
        assert_eq!(fixture.use_of(path).await, second, "{path}");
    }
    for _ in 0..2 {
        let refused = fixture.fetch("/gone/a").await;
        assert_eq!(refused, outcome("http_status", "miss"));
    }
    let log = fixture.nginx.log();
    let count = |start: &str| log.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!(count("GET /fresh/a 200"), 1, "{log:?}");
    for (path, conditions) in [("/stale/a", 1), ("/dated/a", 1), ("/unnamed/a", 1)] {
        assert_eq!(count(&format!("GET {path} 200")), 1, "{log:?}");
        assert_eq!(count(&format!("GET {path} 304")), conditions, "{log:?}");
    }
    // Without a tag the date is the condition.
    let dated = log
        .iter()
        .find(|line| line.starts_with("GET /dated/a 304"))
        .unwrap();
    assert!(dated.contains(" -|") && dated.contains(" GMT|"), "{dated}");
}

#[tokio::test]
async fn a_file_that_changed_at_nginx_replaces_the_stored_one() {
    let mut fixture = NginxFixture::start().await;
    for path in ["/stale/a", "/dated/a"] {
        fixture.nginx.write("a", b"1;2", 3600);
        assert_eq!(fixture.use_of(path).await, "miss");
        assert_eq!(fixture.use_of(path).await, "revalidated");
        fixture.nginx.write("a", b"3;4", 60);
        assert_eq!(fixture.fetch(path).await, outcome("3;4", "miss"), "{path}");
        let used = fixture.fetch(path).await;
        assert_eq!(used, outcome("3;4", "revalidated"), "{path}");
    }
    // While it is fresh, nginx is not asked.
    fixture.nginx.write("a", b"1;2", 3600);
    assert_eq!(fixture.use_of("/fresh/a").await, "miss");
    fixture.nginx.write("a", b"3;4", 60);
    assert_eq!(fixture.use_of("/fresh/a").await, "hit");
    assert!(
        fixture
            .cached
            .purge("acme", "http://files.example.org/fresh/a")
            .await
            .unwrap()
    );
    let used = fixture.fetch("/fresh/a").await;
    assert_eq!(used, outcome("3;4", "miss"));
}

#[tokio::test]
async fn a_body_of_nginx_that_breaks_off_is_resumed_by_a_range_of_the_same_file() {
    let mut fixture = NginxFixture::start().await;
    let content: Vec<u8> = (0..LARGE_BYTES)
        .map(|index| u8::try_from(index % 251).unwrap())
        .collect();
    fixture.nginx.write("large", &content, 3600);
    fixture
        .cut
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let reply = fixture
        .cached
        .service
        .call(&fetch_request("http://files.example.org/fresh/large"))
        .await
        .unwrap();
    let digest = dray_types::Sha256Digest::of(&content);
    assert_eq!(reply.size, LARGE_BYTES as u64);
    assert_eq!(&reply.sha256[..], &digest.as_bytes()[..]);
    let log = fixture.nginx.log();
    let resumed = log
        .iter()
        .find(|line| line.starts_with("GET /fresh/large 206"))
        .unwrap_or_else(|| panic!("{log:?}"));
    let fields: Vec<_> = resumed.split('|').collect();
    assert!(fields[2].starts_with("bytes="), "{resumed}");
    // nginx writes quotation marks of the tag in this form.
    assert!(
        fields[3].contains("\\x22"),
        "the range is of this file alone: {resumed}"
    );
    // A file that came in two parts is not stored for others; a whole one is.
    fixture.cached.service.event().await;
    for used in ["miss", "hit"] {
        assert_eq!(fixture.fetch("/fresh/large").await.1, used);
    }
}
