//! Changes of the configuration while tunnels are open and fetches are made.

use std::fmt::Write as _;
use std::path::PathBuf;

use dray_service::Settings;
use dray_testkit::eventually;
use dray_testkit::http::ResponseScript;
use dray_types::Secret;

use super::intercepted::InterceptionFiles;
use super::persistent::{ask, field, path_table, read_head_of};
use super::*;
use crate::tests::test_service::{fetch_request, start_service_from};

const LATER_KEY: &str = "another key of these tests, 32 bytes or more";

/// A service whose section is in a file.
struct ReloadedService {
    proxy: ProxyFixture,
    file: PathBuf,
    _directory: tempfile::TempDir,
}

impl ReloadedService {
    /// `text` follows the first fields of the section `egress-fetcher`.
    async fn start(text: &str) -> Self {
        let fake_network = FetcherFixture::default().fake_network;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("dray.toml");
        write_section(&file, text);
        let mut settings = Settings::embedded(directory.path().join("state"));
        settings.sources = settings.sources.file(&file);
        let service = start_service_from(&fake_network, settings).await;
        let addresses = &service.running.context().listen_addresses;
        let address = addresses.find(PROXY_ADDRESS_NAME).unwrap();
        Self {
            proxy: ProxyFixture {
                fake_network,
                service,
                address,
            },
            file,
            _directory: directory,
        }
    }

    fn configure(&self, text: &str) {
        write_section(&self.file, text);
    }

    /// Waits until a line of the metrics begins with `name` and ends with `value`.
    async fn wait_for(&self, name: &str, value: u64) {
        eventually(name, async || {
            let metrics = self.proxy.service.running.metrics().unwrap();
            let mut lines = metrics.lines();
            lines
                .any(|line| line.starts_with(name) && line.ends_with(&format!(" {value}")))
                .then_some(())
        })
        .await;
    }

    async fn wait_for_changes(&self, count: u64) {
        self.wait_for("dray_egress_config_reloads_total{", count)
            .await;
    }

    /// The status of a new tunnel with a token of this key.
    async fn status(&self, key: &str) -> String {
        let (_, head) = self.tunnel(key).await;
        head.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    async fn tunnel(&self, key: &str) -> (TcpStream, String) {
        let now_s = self.proxy.service.running.context().clock.now_ms() / 1000;
        let token = mint_with(key, "chat-1", now_s + 3600, None);
        let auth = format!("Proxy-Authorization: Bearer {token}\r\n");
        self.proxy
            .tunnel_with(&format!("{TARGET_HOST}:443"), &auth)
            .await
    }

    /// The credential that the server gets with a fetch; empty for none.
    async fn fetched_with(&self) -> String {
        let server = self
            .proxy
            .fake_network
            .serve_with(PUBLIC_ADDRESS, |_| ResponseScript::ok("hello"));
        let request = fetch_request(&format!("http://{TARGET_HOST}/a"));
        self.proxy.service.call(&request).await.unwrap();
        let requests = server.received_requests();
        requests[0]
            .field("authorization")
            .unwrap_or_default()
            .to_owned()
    }
}

fn write_section(file: &std::path::Path, text: &str) {
    let first = "[egress-fetcher]\nenabled = true\nreload_interval = '1s'\n";
    std::fs::write(file, format!("{first}{text}")).unwrap();
}

fn proxy_section(key: &str, previous: Option<&str>) -> String {
    let previous = previous.map(|key| format!("previous_token_key = '{key}'\n"));
    let listen = "[egress-fetcher.proxy]\nlisten = '127.0.0.1:0'\n";
    format!(
        "{listen}token_key = '{key}'\n{}",
        previous.unwrap_or_default()
    )
}

#[tokio::test]
async fn keys_of_tokens_change_with_an_overlap_while_a_tunnel_stays_open() {
    let service = ReloadedService::start(&proxy_section(TOKEN_KEY, None)).await;
    let mut ends = service.proxy.be_server(PUBLIC_ADDRESS, 443);
    let (mut client, head) = service.tunnel(TOKEN_KEY).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    client.write_all(&client_flight(TARGET_HOST)).await.unwrap();
    let mut server = ends.recv().await.unwrap();
    server.write_all(b"before").await.unwrap();
    let mut relayed = [0; 6];
    client.read_exact(&mut relayed).await.unwrap();
    assert_eq!(service.status(LATER_KEY).await, "407");

    // Both keys count while the tokens of the one before expire.
    service.configure(&proxy_section(LATER_KEY, Some(TOKEN_KEY)));
    service.wait_for_changes(1).await;
    for key in [TOKEN_KEY, LATER_KEY] {
        assert_eq!(service.status(key).await, "200", "{key}");
    }
    service.configure(&proxy_section(LATER_KEY, None));
    service.wait_for_changes(2).await;
    assert_eq!(service.status(TOKEN_KEY).await, "407");
    assert_eq!(service.status(LATER_KEY).await, "200");

    // A key that cannot be used changes nothing, and is reported.
    service.configure(&proxy_section("short", None));
    service.wait_for("dray_egress_config_stale", 1).await;
    assert_eq!(service.status(LATER_KEY).await, "200");
    server.write_all(b"afters").await.unwrap();
    client.read_exact(&mut relayed).await.unwrap();
    assert_eq!(&relayed, b"afters");
}

#[tokio::test]
async fn credentials_and_limits_change_for_later_fetches() {
    let credential = |secret: &str| {
        let fields = "name = 'files'\nport = 80\nheader = 'authorization'\nallow_plain_http = true";
        format!(
            "[[egress-fetcher.credentials]]\nhost = '{TARGET_HOST}'\nsecret = '{secret}'\n\
             tenants = ['acme']\n{fields}\n"
        )
    };
    let proxy = proxy_section(TOKEN_KEY, None);
    let service = ReloadedService::start(&(credential("one") + &proxy)).await;
    assert_eq!(service.fetched_with().await, "one");
    service.configure(&(credential("two") + &proxy));
    service.wait_for_changes(1).await;
    assert_eq!(service.fetched_with().await, "two");
    service.configure(&proxy);
    service.wait_for_changes(2).await;
    assert_eq!(service.fetched_with().await, "");

    service.configure(&("max_bytes = 4\n".to_owned() + &proxy));
    service.wait_for_changes(3).await;
    let request = fetch_request(&format!("http://{TARGET_HOST}/a"));
    let refused = service.proxy.service.call(&request).await.unwrap_err();
    assert_eq!(refused.detail, "too_large");
}

#[tokio::test]
async fn a_repeated_request_of_a_tunnel_has_the_credential_that_its_event_names() {
    let files = InterceptionFiles::create();
    let settings = files.settings(&[]);
    let (mut of_service, mut of_proxy) = (String::new(), String::new());
    for (name, path) in settings {
        match name.strip_prefix('/') {
            Some(name) => writeln!(of_service, "{name} = '{path}'").unwrap(),
            None => writeln!(of_proxy, "{name} = '{path}'").unwrap(),
        }
    }
    let section = |name: &str, secret: &str| {
        format!(
            "{of_service}[[egress-fetcher.credentials]]\nname = '{name}'\nhost = '{TARGET_HOST}'\n\
             header = 'authorization'\nsecret = '{secret}'\ntenants = ['acme']\n{}{of_proxy}",
            proxy_section(TOKEN_KEY, None)
        )
    };
    let mut service = ReloadedService::start(&section("first", "one")).await;
    let mut ends = service.proxy.be_server(PUBLIC_ADDRESS, 443);
    let acceptor = files.origin.acceptor(TARGET_HOST).unwrap();
    let (client, _) = service.proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    let connector = tokio_rustls::TlsConnector::from(tls_config(Some(files.anchor.clone())));
    let name = TARGET_HOST.to_owned().try_into().unwrap();
    let mut client = connector.connect(name, client).await.unwrap();
    let asking = async {
        for path in ["/tables/first", "/tables/repeated"] {
            let (head, _) = ask(&mut client, &format!("GET {path}"), "").await;
            assert_eq!(status_of(&head), 200, "{head}");
        }
    };
    let serving = async {
        let mut kept = acceptor.accept(ends.recv().await.unwrap()).await.unwrap();
        let head = read_head_of(&mut kept).await.unwrap();
        assert_eq!(field(&head, "authorization"), Some("one"));
        kept.write_all(path_table("/tables/first").as_bytes())
            .await
            .unwrap();
        read_head_of(&mut kept).await.unwrap();
        // The settings change while the request is on its way, and the target closes in place of a response.
        service.configure(&section("later", "two"));
        service.wait_for_changes(1).await;
        drop(kept);
        let mut new = acceptor.accept(ends.recv().await.unwrap()).await.unwrap();
        let head = read_head_of(&mut new).await.unwrap();
        new.write_all(path_table("/tables/repeated").as_bytes())
            .await
            .unwrap();
        (head, new)
    };
    let ((), (head, _new)) = tokio::join!(asking, serving);
    assert_eq!(field(&head, "authorization"), Some("two"));
    let mut names = Vec::new();
    for _ in 0..6 {
        names.push(service.proxy.event().await.credentials.concat());
    }
    assert_eq!(
        names,
        ["first", "first", "first", "first", "later", "later"]
    );
}

/// Like [`mint`], with another key.
fn mint_with(key: &str, session: &str, expires_s: u64, allow: Option<Vec<String>>) -> String {
    let keys = TokenKeys::new(&Secret::new(key), None).unwrap();
    keys.mint(&identity(session, expires_s, allow)).unwrap()
}
