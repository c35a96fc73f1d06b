//! Tests a preview from the console's button to a page in Chromium, and that the page cannot attack the console.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

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

fn create_site(root: &Path, console: &str) {
    for directory in ["css", "js"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    let module = format!("const CONSOLE = \"{console}\";\n{SITE_MODULE}");
    for (name, content) in [
        ("index.html", SITE_PAGE),
        ("css/site.css", "h1 { color: rgb(1, 2, 3); }"),
        ("js/plain.js", "window.plain = true"),
        ("js/module.js", &module),
        ("data.json", "{\"value\": 42}"),
        (
            "pic.svg",
            "<svg xmlns='http://www.w3.org/2000/svg' width='7' height='7'></svg>",
        ),
        ("notes.txt", "plain words"),
        ("report.md", SITE_REPORT),
        ("table.csv", "name,amount\nada,0012\n"),
    ] {
        std::fs::write(root.join(name), content).unwrap();
    }
    std::fs::write(root.join("sound.wav"), silent_wav()).unwrap();
}

/// Runs `walk.cjs`, which opens the preview in Chromium, and returns its report. Changes the site when the walk
/// requests it.
fn walk(directory: &Path, site: &Path, settings: &Value) -> Value {
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
                std::fs::write(
                    site.join("index.html"),
                    SITE_PAGE.replace("first", "second"),
                )
                .unwrap();
                writeln!(stdin, "done").unwrap();
            }
            message => browser_messages = format!("{browser_messages}{message}\n"),
        }
    }
    let output = walk.wait_with_output().unwrap();
    assert!(output.status.success(), "{browser_messages}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_previewed_page_works_and_reaches_nothing_of_the_console() {
    let directory = tempfile::tempdir().unwrap();
    let site = directory.path().join("site");
    std::fs::create_dir_all(&site).unwrap();
    let roots = format!("sandbox-transfer.local.roots=[\"{}\"]", site.display());
    let options = ["--console", "127.0.0.1:0", "--set", roots.as_str()];
    let server = UpServer::start(directory.path(), &options, "console: ");
    let console = server.url.split("/login").next().unwrap();
    create_site(&site, console);
    let settings = json!({
        "login": server.url,
        "sandbox": format!("local:{}", site.display()),
    });
    let browser_report = walk(directory.path(), &site, &settings);
    for list in ["findings", "failures"] {
        assert_eq!(browser_report[list], json!([]), "{list}: {browser_report}");
    }
    assert_eq!(browser_report["color"], "rgb(1, 2, 3)");
    assert_eq!(browser_report["tried"]["data"], "42", "{browser_report}");
    for refused in [
        "storage", "cookie", "parent", "top", "console", "outside", "window",
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
