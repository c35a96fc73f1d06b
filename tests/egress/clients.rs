//! Clients of other vendors in the network of a container that has no way out. Through the proxy, each one gets the
//! content of the allowed host and shows the refusal of every other host. No packet goes elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;
use crate::support::node;

/// Hosts that the policy refuses, inside and outside.
const REFUSED_URLS: [&str; 4] = [
    "http://other.example.org/",
    "http://169.254.169.254/latest/",
    "http://10.0.0.1/",
    "http://[fd00::1]/",
];

/// Codes of these refusals.
const REFUSAL_CODES: [&str; 2] = ["host_not_in_admin_allowlist", "ssrf_blocked"];

/// The network without a way out, a client's directory, and the files of the allowed host.
struct ClientFixture {
    egress: EgressFixture,
    /// Address of the proxy with a token.
    proxy_url: String,
    directory: TempDir,
}

impl ClientFixture {
    /// `make_files` fills the directory whose files are below `http://files.example.org/files/`.
    async fn start(make_files: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = directory.path().join("files");
        fs::create_dir(&files).unwrap();
        make_files(&files);
        // Undici asks for a tunnel to plain http too.
        let fields = "connect_ports = \"80\"\nplain_ports = \"80\"";
        let egress = EgressFixture::start_with(fields, Some(&files)).await;
        let mut token = dray(&egress.engine, egress.home.path());
        token.args(["egress", "token", "--tenant", "acme", "--session", "chat-1"]);
        let token = support::stdout(token.args(["--ttl", "1h"]));
        let proxy_url = format!("http://sandbox:{}@{PROXY_ADDRESS}:3128", token.trim());
        Self {
            egress,
            proxy_url,
            directory,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// A program in the container's network, with the variables of a sandbox.
    fn command(&self, program: &str) -> Command {
        let pid = self.egress.container.pid().try_into().unwrap();
        let mut command = command_in_network_of(pid, program);
        command
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.directory.path())
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null());
        for variable in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            command.env(variable, &self.proxy_url);
        }
        command
    }

    /// Checks that only connections of the proxy to the allowed host arrived outside.
    fn assert_no_other_packet(&self) {
        let (allowed, other) = self.egress.arrived();
        assert!(allowed > 0);
        assert_eq!((self.egress.forwarded(), other), (0, 0));
    }
}

/// Whether a program succeeded, and everything that it printed.
fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[tokio::test]
async fn wget_downloads_from_the_allowed_host_and_shows_refusals() {
    let fixture = ClientFixture::start(|_| {}).await;
    let wget = |url: &str| {
        let mut command = fixture.command("wget");
        run(command.args(["--tries=1", "--timeout=30", "-O", "-", url]))
    };
    let (is_done, text) = wget("http://files.example.org/allowed");
    assert!(is_done && text.contains("This is /allowed."), "{text}");
    for url in REFUSED_URLS {
        let (is_done, text) = wget(url);
        assert!(!is_done && text.contains("403"), "{url}: {text}");
    }
    fixture.assert_no_other_packet();
}

/// A repository of Debian with one package.
fn make_debian_repository(files: &Path) {
    let root = files.join("debian");
    let control = files.join("demo/DEBIAN");
    fs::create_dir_all(&control).unwrap();
    fs::create_dir(&root).unwrap();
    let fields = "Package: demo\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.org>\n";
    let description = "Description: demo\n";
    fs::write(control.join("control"), [fields, description].concat()).unwrap();
    let package = root.join("demo.deb");
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "--build"]);
    support::stdout(build.arg(files.join("demo")).arg(&package));
    let content = fs::read(&package).unwrap();
    let digest = dray_types::Sha256Digest::of(&content).to_hex();
    let length = content.len();
    let index =
        format!("{fields}Filename: ./demo.deb\nSize: {length}\nSHA256: {digest}\n{description}");
    fs::write(root.join("Packages"), index).unwrap();
}

#[tokio::test]
async fn apt_gets_a_package_of_an_allowed_repository_and_shows_refusals() {
    let fixture = ClientFixture::start(make_debian_repository).await;
    for name in ["state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(fixture.path(name)).unwrap();
    }
    let apt = |host: &str, arguments: &[&str]| {
        let line = format!("deb [trusted=yes] http://{host}/files/debian ./\n");
        let list = fixture.write("sources.list", &line);
        let mut command = fixture.command("apt-get");
        for (name, value) in [
            ("Dir::State", fixture.path("state")),
            ("Dir::State::status", fixture.write("status", "")),
            ("Dir::Cache", fixture.path("cache")),
            ("Dir::Etc::sourcelist", list),
            ("Dir::Etc::sourceparts", "/dev/null".into()),
            ("APT::Sandbox::User", "root".into()),
            ("APT::Update::Error-Mode", "any".into()),
            ("Acquire::Retries", "0".into()),
        ] {
            command.arg("-o").arg(format!("{name}={}", value.display()));
        }
        run(command.args(arguments))
    };
    let (is_updated, text) = apt(ALLOWED_NAME, &["update"]);
    assert!(is_updated, "{text}");
    let (is_downloaded, text) = apt(ALLOWED_NAME, &["download", "demo"]);
    assert!(is_downloaded, "{text}");
    let package = fs::read(fixture.path("demo_1.0_all.deb")).unwrap();
    assert_eq!(
        package,
        fs::read(fixture.path("files/debian/demo.deb")).unwrap()
    );
    for host in [REFUSED_NAME, "169.254.169.254", "10.0.0.1"] {
        let (is_updated, text) = apt(host, &["update"]);
        assert!(!is_updated && text.contains("403"), "{host}: {text}");
    }
    fixture.assert_no_other_packet();
}

const UNDICI_SCRIPT: &str = "
const { ProxyAgent, fetch } = require('undici');
const { username, password, host } = new URL(process.env.http_proxy);
const login = Buffer.from(username + ':' + password).toString('base64');
const dispatcher = new ProxyAgent({ uri: 'http://' + host, token: 'Basic ' + login });
fetch(process.argv[2], { dispatcher }).then(async (response) => {
  console.log(response.status, await response.text());
}, (error) => {
  for (let cause = error; cause; cause = cause.cause) console.error(String(cause));
  process.exit(1);
});
";

#[tokio::test]
async fn undici_of_node_fetches_from_the_allowed_host_and_shows_refusals() {
    let modules = node::packages("node-undici", &["undici@7.30.2"]);
    let fixture = ClientFixture::start(|_| {}).await;
    let script = fixture.write("client.js", UNDICI_SCRIPT);
    let fetch = |url: &str| {
        let mut command = fixture.command("node");
        command.env("NODE_PATH", modules.join("node_modules"));
        run(command.arg(&script).arg(url))
    };
    let (is_done, text) = fetch("http://files.example.org/allowed");
    assert!(is_done, "{text}");
    assert_eq!(text.trim(), "200 This is /allowed.");
    for url in REFUSED_URLS {
        let (is_done, text) = fetch(url);
        assert!(!is_done && text.contains("403"), "{url}: {text}");
    }
    fixture.assert_no_other_packet();
}

/// Manifest of an extension that signs in to the proxy: Chromium takes no password from its command line.
const EXTENSION_MANIFEST: &str = r#"{
  "manifest_version": 3, "name": "login", "version": "1",
  "permissions": ["webRequest", "webRequestAuthProvider"], "host_permissions": ["<all_urls>"],
  "background": {"service_worker": "login.js"}
}"#;
/// Background script of the extension.
const EXTENSION_SCRIPT: &str = "
const { username, password } = new URL('PROXY');
chrome.webRequest.onAuthRequired.addListener(
  () => ({ authCredentials: { username, password } }), { urls: ['<all_urls>'] }, ['blocking']);
";

#[tokio::test]
async fn chromium_shows_a_page_of_the_allowed_host_and_refusals() {
    let fixture = ClientFixture::start(|_| {}).await;
    fixture.write("extension/manifest.json", EXTENSION_MANIFEST);
    let script = EXTENSION_SCRIPT.replace("PROXY", &fixture.proxy_url);
    fixture.write("extension/login.js", &script);
    let page = |url: &str| {
        let mut command = fixture.command("chromium");
        command
            .args(["--headless=new", "--no-sandbox", "--disable-gpu"])
            .args(["--no-first-run", "--virtual-time-budget=10000"])
            // Without this switch, Chromium asks for https first.
            .arg("--disable-features=HttpsUpgrades,HttpsFirstBalancedModeAutoEnable")
            .arg(format!("--proxy-server=http://{PROXY_ADDRESS}:3128"))
            // Without this switch, Chromium tries link-local addresses, such as 169.254.169.254, without the proxy.
            .arg("--proxy-bypass-list=<-loopback>")
            .arg(format!(
                "--load-extension={}",
                fixture.path("extension").display()
            ))
            .arg(format!(
                "--user-data-dir={}",
                fixture.path("profile").display()
            ))
            .args(["--dump-dom", url]);
        run(&mut command).1
    };
    // The first request may come before the extension has started.
    eventually("the page", async || {
        let text = page("http://files.example.org/allowed");
        text.contains("This is /allowed.").then_some(())
    })
    .await;
    for url in REFUSED_URLS {
        eventually("the refusal", async || {
            let text = page(url);
            REFUSAL_CODES
                .iter()
                .any(|code| text.contains(code))
                .then_some(())
        })
        .await;
    }
    fixture.assert_no_other_packet();
}

/// A sparse index of cargo with one crate.
fn make_cargo_registry(files: &Path) {
    let source = files.join("demo-1.0.0");
    fs::create_dir_all(source.join("src")).unwrap();
    let manifest = "[package]\nname = \"demo\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    fs::write(source.join("Cargo.toml"), manifest).unwrap();
    fs::write(source.join("src/lib.rs"), "").unwrap();
    let index = files.join("index");
    fs::create_dir_all(index.join("de/mo")).unwrap();
    let mut pack = Command::new("tar");
    pack.arg("-C")
        .arg(files)
        .args(["-czf"])
        .arg(files.join("demo.crate"));
    support::stdout(pack.arg("demo-1.0.0"));
    let digest =
        dray_types::Sha256Digest::of(&fs::read(files.join("demo.crate")).unwrap()).to_hex();
    let entry = serde_json::json!({
        "name": "demo", "vers": "1.0.0", "deps": [], "features": {}, "yanked": false, "cksum": digest,
    });
    fs::write(index.join("de/mo/demo"), format!("{entry}\n")).unwrap();
    let download = serde_json::json!({"dl": "http://files.example.org/files/{crate}.crate"});
    fs::write(index.join("config.json"), download.to_string()).unwrap();
}

#[tokio::test]
async fn cargo_fetches_a_crate_of_an_allowed_registry_and_shows_refusals() {
    let fixture = ClientFixture::start(make_cargo_registry).await;
    let manifest = "[package]\nname = \"app\"\nversion = \"1.0.0\"\nedition = \"2021\"\n\
        [dependencies]\ndemo = { version = \"1\", registry = \"local\" }\n";
    fixture.write("app/Cargo.toml", manifest);
    fixture.write("app/src/lib.rs", "");
    let cargo = env!("CARGO");
    let fetch = |host: &str| {
        let index = format!("sparse+http://{host}/files/index/");
        let settings = format!("[registries.local]\nindex = \"{index}\"\n[net]\nretry = 0\n");
        fixture.write("app/.cargo/config.toml", &settings);
        let mut command = fixture.command(cargo);
        let toolchain = Path::new(cargo).parent().unwrap().display().to_string();
        command
            .current_dir(fixture.path("app"))
            .env("PATH", format!("{toolchain}:/usr/bin:/bin"))
            .env("CARGO_HOME", fixture.path("cargo"));
        run(command.arg("fetch"))
    };
    let (is_fetched, text) = fetch(ALLOWED_NAME);
    assert!(is_fetched && text.contains("demo v1.0.0"), "{text}");
    for host in [REFUSED_NAME, "169.254.169.254", "10.0.0.1"] {
        fs::remove_file(fixture.path("app/Cargo.lock")).unwrap_or_default();
        let (is_fetched, text) = fetch(host);
        assert!(!is_fetched && text.contains("403"), "{host}: {text}");
    }
    fixture.assert_no_other_packet();
}
