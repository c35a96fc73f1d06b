//! Tests a preview from the console's button to a page in Chromium, and that the page cannot attack the console.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};

use dray_testkit::docker::{Container, ContainerOptions, DockerEngine};
use dray_testkit::sshd::{Sshd, SshdOptions};
use serde_json::{Value, json};

use super::backends::BackendSandbox;
use super::ssh_settings;
use crate::support::{self, node, up::UpServer};

/// A page that loads all resources by relative addresses, and attempts actions that it may not perform.
const SITE_PAGE: &str = r#"<!doctype html><html lang="en"><title>Site</title>
<link rel="stylesheet" href="css/site.css"><h1 id="version">first</h1><img src="pic.svg" alt="" id="pic">
<script>window.inline = true</script><script src="js/plain.js"></script>
<script type="module" src="js/module.js"></script>"#;

const SITE_MODULE: &str = r#"
const tried = {};
const attempt = async (name, what) => { try { tried[name] = String(await what()); } catch (error) { tried[name] = "refused"; } };
await attempt("data", async () => (await (await fetch("data.json")).json()).value);
await attempt("storage", () => localStorage.length);
await attempt("cookie", () => document.cookie);
await attempt("parent", () => parent.document.title);
await attempt("top", () => top.location.href);
await attempt("console", async () => (await fetch(CONSOLE + "/deliveries", { credentials: "include" })).status);
await attempt("outside", async () => (await fetch("http://127.0.0.1:9/", { mode: "no-cors" })).type);
await attempt("window", () => { const opened = window.open("about:blank"); if (!opened) throw new Error(); return "opened"; });
await attempt("worker", async () => { await navigator.serviceWorker.register("js/plain.js"); return "registered"; });
await attempt("webrtc", async () => {
  const peer = new RTCPeerConnection({ iceServers: [{ urls: STUN }] });
  peer.createDataChannel("x");
  await peer.setLocalDescription(await peer.createOffer());
  return "begun";
});
const frame = document.createElement("iframe");
frame.src = CONSOLE + "/deliveries";
document.body.append(frame);
window.tried = tried;
document.body.dataset.done = "yes";
"#;

/// A document with content that a page may show, and with scripts that it must not run.
const SITE_REPORT: &str = "# Report\n\n![A chart](pic.svg)\n\n<script>top.ran = 1</script>\n\n\
    [run](javascript:top.ran=1) [table](table.csv) [notes](notes.txt)\n";

/// A sound without compression, in which browsers seek by byte ranges: ten minutes of silence.
fn silent_wav() -> Vec<u8> {
    let samples: u32 = 600 * 8000;
    let mut wav = Vec::new();
    wav.extend_from_slice(b"RIFF");
    wav.extend_from_slice(&(36 + samples).to_le_bytes());
    wav.extend_from_slice(b"WAVEfmt ");
    // PCM, one channel, 8000 samples a second of one byte.
    for (value, bytes) in [
        (16_u32, 4),
        (1, 2),
        (1, 2),
        (8000, 4),
        (8000, 4),
        (1, 2),
        (8, 2),
    ] {
        wav.extend_from_slice(&value.to_le_bytes()[..bytes]);
    }
    wav.extend_from_slice(b"data");
    wav.extend_from_slice(&samples.to_le_bytes());
    wav.resize(wav.len() + samples as usize, 0x80);
    wav
}

/// A server for WebRTC, to which a page without a network would carry text out.
struct StunServer(UdpSocket);

impl StunServer {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        Self(socket)
    }

    fn url(&self) -> String {
        format!("stun:{}", self.0.local_addr().unwrap())
    }

    /// Checks that nothing arrived until now.
    fn check_silence(&self) {
        let received = self.0.recv_from(&mut [0; 1500]);
        assert!(received.is_err(), "a page sent {received:?} outside");
    }
}

/// The files of the site by name. Its page names this console, and this server for WebRTC.
fn site_files(console: &str, stun: &StunServer) -> Vec<(&'static str, Vec<u8>)> {
    let stun = stun.url();
    let module = format!("const CONSOLE = \"{console}\";\nconst STUN = \"{stun}\";\n{SITE_MODULE}");
    let picture = "<svg xmlns='http://www.w3.org/2000/svg' width='7' height='7'></svg>";
    let texts = [
        ("index.html", SITE_PAGE),
        ("css/site.css", "h1 { color: rgb(1, 2, 3); }"),
        ("js/plain.js", "window.plain = true"),
        ("js/module.js", &module),
        ("data.json", "{\"value\": 42}"),
        ("pic.svg", picture),
        ("notes.txt", "plain words"),
        ("report.md", SITE_REPORT),
        ("table.csv", "name,amount\nada,0012\n"),
    ];
    let texts = texts.map(|(name, text)| (name, text.as_bytes().to_vec()));
    let mut files = Vec::from(texts);
    files.push(("sound.wav", silent_wav()));
    files
}

/// The page of the site after its change.
fn changed_page() -> String {
    SITE_PAGE.replace("first", "second")
}

fn write_site(root: &Path, files: &[(&str, Vec<u8>)]) {
    for (name, content) in files {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Writes a file into the working directory of a container, whose only programs are those of `BusyBox`.
fn write_in_container(container: &Container, name: &str, content: &[u8]) {
    // A command line holds a few thousand bytes; all further bytes of the file are equal to its last one.
    let last = content.last().copied().unwrap_or_default();
    let end = content.iter().rposition(|byte| *byte != last);
    let (head, rest) = content.split_at(end.map_or(0, |end| end + 1));
    let escapes: Vec<String> = head.iter().map(|byte| format!("\\{byte:03o}")).collect();
    let escapes = escapes.concat();
    let directory = Path::new(name).parent().unwrap().display().to_string();
    container.sh(&format!(
        "cd /workspace; mkdir -p './{directory}'; printf '{escapes}' > {name}; \
         head -c {} /dev/zero | tr '\\000' '\\{last:03o}' >> {name}",
        rest.len()
    ));
}

/// Runs `walk.cjs`, which opens the preview in Chromium, and returns its report. `change` changes the page of the site
/// when the walk requests it.
fn walk(directory: &Path, settings: &Value, mut change: impl FnMut()) -> Value {
    let file = directory.join("walk.json");
    std::fs::write(&file, settings.to_string()).unwrap();
    let mut walk = Command::new("node")
        .arg(support::root().join("tests/previews/walk.cjs"))
        .arg(&file)
        .current_dir(node::packages("node-console", &node::BROWSER_PACKAGES))
        .env("HOME", directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = walk.stdin.take().unwrap();
    let mut browser_messages = String::new();
    for line in BufReader::new(walk.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok)
    {
        match line.as_str() {
            "change" => {
                change();
                writeln!(stdin, "done").unwrap();
            }
            message => browser_messages = format!("{browser_messages}{message}\n"),
        }
    }
    let output = walk.wait_with_output().unwrap();
    assert!(output.status.success(), "{browser_messages}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks what the walk saw: the page works, and reaches nothing of the console.
fn check_report(browser_report: &Value) {
    for list in ["findings", "failures", "problems"] {
        assert_eq!(browser_report[list], json!([]), "{list}: {browser_report}");
    }
    assert_eq!(browser_report["color"], "rgb(1, 2, 3)");
    assert_eq!(browser_report["tried"]["data"], "42", "{browser_report}");
    for refused in [
        "storage", "cookie", "parent", "top", "console", "outside", "window", "worker",
    ] {
        assert_eq!(
            browser_report["tried"][refused], "refused",
            "{refused}: {browser_report}"
        );
    }
    assert_eq!(browser_report["origin"], "null", "{browser_report}");
    assert_eq!(
        browser_report["framed"], false,
        "the page framed the console: {browser_report}"
    );
    assert_eq!(browser_report["version"], "second", "{browser_report}");
    assert!(
        browser_report["rangeStart"].as_u64().unwrap() > 1_000_000,
        "{browser_report}"
    );
    let table = browser_report["table"].as_str().unwrap();
    assert!(table.contains("<td>0012</td>"), "{table}");
    assert_eq!(browser_report["ended"], 404, "{browser_report}");
    let secret = browser_report["token"].as_str().unwrap();
    assert_eq!(
        browser_report["referrers"],
        json!([]),
        "the link is in a referrer: {browser_report}"
    );
    assert_eq!(secret.len(), 64, "{browser_report}");
}

/// Starts `dray up` with a console and these settings.
fn start_console(home: &Path, settings: &[String]) -> (UpServer, String) {
    let options: Vec<&str> = settings
        .iter()
        .flat_map(|setting| ["--set", setting])
        .collect();
    start_console_with(home, &options)
}

/// Like [`start_console`], with any options.
fn start_console_with(home: &Path, options: &[&str]) -> (UpServer, String) {
    let options = [&["--console", "127.0.0.1:0"], options].concat();
    let server = UpServer::start(home, &options, "console: ");
    let origin = server.url.split("/login").next().unwrap().to_owned();
    (server, origin)
}

#[test]
fn a_previewed_page_works_and_reaches_nothing_of_the_console() {
    let directory = tempfile::tempdir().unwrap();
    let site = directory.path().join("site");
    let roots = format!("sandbox-transfer.local.roots=[\"{}\"]", site.display());
    std::fs::create_dir_all(&site).unwrap();
    let stun = StunServer::start();
    let (server, origin) = start_console(directory.path(), &[roots]);
    write_site(&site, &site_files(&origin, &stun));
    let settings = json!({
        "login": server.url,
        "sandbox": format!("local:{}", site.display()),
    });
    check_report(&walk(directory.path(), &settings, || {
        std::fs::write(site.join("index.html"), changed_page()).unwrap();
    }));
    stun.check_silence();
}

/// Walks through the site in a container of an engine.
fn check_container(engine: &DockerEngine) {
    let container = engine.container(ContainerOptions::default());
    let directory = tempfile::tempdir().unwrap();
    let endpoint = format!(
        "sandbox-transfer.docker.endpoint=unix://{}",
        engine.socket().display()
    );
    let stun = StunServer::start();
    let (server, origin) = start_console(directory.path(), &[endpoint]);
    for (name, content) in site_files(&origin, &stun) {
        write_in_container(&container, name, &content);
    }
    let settings = json!({
        "login": server.url,
        "sandbox": format!("docker:{}", container.name()),
        "path": "/workspace",
    });
    check_report(&walk(directory.path(), &settings, || {
        write_in_container(&container, "index.html", changed_page().as_bytes());
    }));
    stun.check_silence();
}

#[test]
fn a_page_of_a_container_works_and_reaches_nothing_of_the_console() {
    check_container(&DockerEngine::shared());
}

#[test]
fn a_page_of_a_podman_container_works_and_reaches_nothing_of_the_console() {
    check_container(&DockerEngine::shared_podman());
}

#[test]
fn a_page_over_ssh_works_and_reaches_nothing_of_the_console() {
    let host = Sshd::start(&SshdOptions::default());
    let directory = tempfile::tempdir().unwrap();
    // Paths of control sockets are limited to about 100 bytes.
    let control = tempfile::tempdir_in("/tmp").unwrap();
    let site = directory.path().canonicalize().unwrap().join("site");
    std::fs::create_dir_all(&site).unwrap();
    let stun = StunServer::start();
    let (server, origin) = start_console(directory.path(), &ssh_settings(&host, control.path()));
    write_site(&site, &site_files(&origin, &stun));
    let settings = json!({
        "login": server.url,
        "sandbox": format!("ssh:{}@127.0.0.1:{}{}", host.user(), host.port(), site.display()),
    });
    check_report(&walk(directory.path(), &settings, || {
        std::fs::write(site.join("index.html"), changed_page()).unwrap();
    }));
    stun.check_silence();
}

/// Checks the page of a site in this sandbox.
fn check_site(sandbox: &BackendSandbox) {
    let home = tempfile::tempdir().unwrap();
    let config = sandbox.config.display().to_string();
    let stun = StunServer::start();
    let (server, origin) = start_console_with(home.path(), &["--config", &config]);
    let site = sandbox.root.join("site");
    write_site(&site, &site_files(&origin, &stun));
    let settings = json!({
        "login": server.url,
        "sandbox": sandbox.address,
        "path": site,
    });
    check_report(&walk(home.path(), &settings, || {
        std::fs::write(site.join("index.html"), changed_page()).unwrap();
    }));
    stun.check_silence();
}

#[test]
fn a_page_behind_a_command_works_and_reaches_nothing_of_the_console() {
    check_site(&BackendSandbox::exec());
}

#[test]
fn a_page_of_an_apptainer_instance_works_and_reaches_nothing_of_the_console() {
    check_site(&BackendSandbox::apptainer());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_kubernetes_pod_works_and_reaches_nothing_of_the_console() {
    check_site(&BackendSandbox::kubernetes().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_modal_sandbox_works_and_reaches_nothing_of_the_console() {
    check_site(&BackendSandbox::modal().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_an_e2b_sandbox_works_and_reaches_nothing_of_the_console() {
    check_site(&BackendSandbox::e2b().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_daytona_sandbox_works_and_reaches_nothing_of_the_console() {
    check_site(&BackendSandbox::daytona().await);
}
