//! Tests with clients of others: curl over HTTP, TLS and SOCKS5, and two HTTP libraries of Python.

use std::io::Write as _;

use dray_testkit::http::{ResponseScript, ScriptedResponder};
use dray_testkit::tls::Authority;
use tokio::process::Command;

use super::*;

/// A proxy with `hello` on port 80 and, over TLS, on port 443; and the trust anchor of its certificate.
struct ServedFixture {
    proxy: ProxyFixture,
    bundle: tempfile::NamedTempFile,
}

impl ServedFixture {
    async fn start() -> Self {
        let set = [("connect_ports", "80,443"), ("plain_ports", "80")];
        let proxy = ProxyFixture::start(&set).await;
        let authority = Authority::new().unwrap();
        let responder = ScriptedResponder::always(ResponseScript::ok("hello"));
        let acceptor = authority.acceptor(TARGET_HOST).unwrap();
        proxy
            .fake_network
            .peer(PUBLIC_ADDRESS, 443, FakePeer::Tls(acceptor, responder));
        let mut bundle = tempfile::NamedTempFile::new().unwrap();
        bundle.write_all(authority.pem().as_bytes()).unwrap();
        Self { proxy, bundle }
    }

    fn proxy_url(&self, scheme: &str, token: &str) -> String {
        format!("{scheme}://sandbox:{token}@{}", self.proxy.address)
    }

    /// Exit code, body and what curl says of errors.
    async fn curl(
        &self,
        proxy_url: &str,
        url: &str,
        more: &[&str],
    ) -> (Option<i32>, String, String) {
        let output = Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--max-time",
                "60",
                "--noproxy",
                "",
            ])
            .args(["--proxy", proxy_url, "--cacert"])
            .arg(self.bundle.path())
            .args(more)
            .arg(url)
            .env_clear()
            .output()
            .await
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_reaches_allowed_hosts_over_http_tls_and_socks() {
    let served = ServedFixture::start().await;
    let token = served.proxy.token();
    for (scheme, url) in [
        ("http", "http://files.example.org/"),
        ("http", "https://files.example.org/"),
        ("socks5h", "http://files.example.org/"),
        ("socks5h", "https://files.example.org/"),
    ] {
        let proxy_url = served.proxy_url(scheme, &token);
        let (code, body, error) = served.curl(&proxy_url, url, &[]).await;
        assert_eq!(
            (code, body.as_str()),
            (Some(0), "hello"),
            "{scheme} {url}: {error}"
        );
    }
    let bearer = format!("Proxy-Authorization: Bearer {token}");
    let bare = format!("http://{}", served.proxy.address);
    let (code, body, error) = served
        .curl(
            &bare,
            "https://files.example.org/",
            &["--proxy-header", &bearer],
        )
        .await;
    assert_eq!((code, body.as_str()), (Some(0), "hello"), "{error}");
    assert_eq!(served.proxy.fake_network.queried_names(), [TARGET_HOST; 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_reaches_nothing_else() {
    let served = ServedFixture::start().await;
    let token = served.proxy.token();
    let inside = [
        "http://169.254.169.254/latest/",
        "https://127.0.0.1/",
        "https://[::1]/",
    ];
    for scheme in ["http", "socks5h"] {
        for url in inside {
            let proxy_url = served.proxy_url(scheme, &token);
            let (code, body, _) = served.curl(&proxy_url, url, &["--fail"]).await;
            assert_ne!(code, Some(0), "{scheme} {url}");
            assert_eq!(body, "");
        }
        let proxy_url = served.proxy_url(scheme, "wrong");
        let (code, _, _) = served
            .curl(&proxy_url, "https://files.example.org/", &[])
            .await;
        assert_ne!(code, Some(0), "{scheme}");
    }
    // A handshake for another host than that of the tunnel.
    let proxy_url = served.proxy_url("http", &token);
    let connect_to = [
        "--connect-to",
        "other.example.org:443:files.example.org:443",
    ];
    let (code, _, error) = served
        .curl(&proxy_url, "https://other.example.org/", &connect_to)
        .await;
    assert_eq!(code, Some(35), "{error}");
    assert!(error.contains("access denied"), "{error}");
    assert_eq!(
        served.proxy.fake_network.dialled(),
        [format!("{PUBLIC_ADDRESS}:443")]
    );
}

const PYTHON_CLIENT: &str = "
import json, sys
proxy, bundle = sys.argv[1:]
import requests, httpx
urls = ['http://files.example.org/', 'https://files.example.org/']
proxies = {'http': proxy, 'https': proxy}
session = requests.Session()
session.trust_env = False
by_requests = [session.get(url, proxies=proxies, verify=bundle, timeout=60).text for url in urls]
import ssl
context = ssl.create_default_context(cafile=bundle)
# The certificates of the tests have no key identifier, which Python 3.13 asks for.
context.verify_flags &= ~ssl.VERIFY_X509_STRICT
with httpx.Client(proxy=proxy, verify=context, trust_env=False, timeout=60) as client:
    by_httpx = [client.get(url).text for url in urls]
    blocked = client.get('http://127.0.0.1/').status_code
print(json.dumps({'requests': by_requests, 'httpx': by_httpx, 'blocked': blocked}))
";

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_httpx_of_python_work_through_the_proxy() {
    let served = ServedFixture::start().await;
    let proxy_url = served.proxy_url("http", &served.proxy.token());
    let mut command = Command::new(dray_testkit::python::interpreter("httpx"));
    command
        .args(["-c", PYTHON_CLIENT, &proxy_url])
        .arg(served.bundle.path())
        .kill_on_drop(true);
    let report = dray_testkit::python::run_json(&mut command).await;
    let both = serde_json::json!(["hello", "hello"]);
    assert_eq!(report["requests"], both);
    assert_eq!(report["httpx"], both);
    assert_eq!(report["blocked"], 403);
}
