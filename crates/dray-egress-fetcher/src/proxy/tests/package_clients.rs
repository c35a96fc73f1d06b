//! Tests with the clients that code in sandboxes uses to get code: git, pip and npm, over HTTPS through tunnels.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dray_testkit::http::{ReceivedRequest, ResponseScript, ScriptedResponder};
use dray_testkit::tls::Authority;
use tokio::process::Command;

use super::*;

/// Makes a repository that is served as files, a wheel with its index, and an npm package with its document.
const CONTENT_SCRIPT: &str = r#"
import base64, hashlib, io, json, pathlib, subprocess, sys, tarfile, zipfile
root = pathlib.Path(sys.argv[1])
def git(*arguments):
    subprocess.run(['git', *arguments], check=True, capture_output=True)
work, bare = root / 'work', root / 'demo.git'
git('init', '--quiet', str(work))
(work / 'README').write_text('hello\n')
git('-C', str(work), 'add', 'README')
git('-C', str(work), '-c', 'user.name=a', '-c', 'user.email=a@example.org', 'commit', '--quiet', '-m', 'one')
git('clone', '--quiet', '--bare', str(work), str(bare))
git('-C', str(bare), 'update-server-info')
name = 'demo-1.0-py3-none-any.whl'
index = root / 'simple' / 'demo'
index.mkdir(parents=True)
with zipfile.ZipFile(index / name, 'w') as wheel:
    wheel.writestr('demo.py', 'value = 1\n')
    wheel.writestr('demo-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n')
    wheel.writestr('demo-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    wheel.writestr('demo-1.0.dist-info/RECORD', '')
(index / 'index.html').write_text(f'<a href="{name}">{name}</a>')
package = {'name': 'demo-npm', 'version': '1.0.0'}
with tarfile.open(root / 'demo-npm.tgz', 'w:gz') as archive:
    text = json.dumps(package).encode()
    entry = tarfile.TarInfo('package/package.json')
    entry.size = len(text)
    archive.addfile(entry, io.BytesIO(text))
digest = base64.b64encode(hashlib.sha512((root / 'demo-npm.tgz').read_bytes()).digest()).decode()
package['dist'] = {'tarball': 'https://files.example.org/demo-npm.tgz', 'integrity': 'sha512-' + digest}
document = {'name': 'demo-npm', 'dist-tags': {'latest': '1.0.0'}, 'versions': {'1.0.0': package}}
(root / 'demo-npm').write_text(json.dumps(document))
"#;

/// The file of a request, with its type. Every connection carries one request.
fn file_of(root: &Path, request: &ReceivedRequest) -> ResponseScript {
    let path = request.target().split('?').next().unwrap_or_default();
    let mut file = root.join(path.trim_start_matches('/'));
    if file.is_dir() {
        file = file.join("index.html");
    }
    let media_type = match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html",
        Some("whl") => "application/zip",
        Some("tgz") => "application/gzip",
        _ => "text/plain",
    };
    let Ok(content) = std::fs::read(file) else {
        return ResponseScript::status(404);
    };
    ResponseScript::with_fields(
        &[("Content-Type", media_type), ("Connection", "close")],
        content,
    )
}

/// A proxy, and behind it a host with the content.
struct PackageFixture {
    proxy: ProxyFixture,
    directory: tempfile::TempDir,
    /// The certificates that clients trust.
    bundle: PathBuf,
    /// The heads that the host received.
    targets: Arc<Mutex<Vec<String>>>,
}

impl PackageFixture {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let mut script = Command::new(dray_testkit::python::interpreter("pip"));
        script.args(["-c", CONTENT_SCRIPT]).arg(&root);
        let made = script.env("HOME", directory.path()).output().await.unwrap();
        assert!(made.status.success(), "{made:?}");
        let proxy = ProxyFixture::start(&[]).await;
        let authority = Authority::new().unwrap();
        let acceptor = authority.acceptor(TARGET_HOST).unwrap();
        let targets = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&targets);
        let responder = ScriptedResponder::new(move |request| {
            noted.lock().unwrap().push(request.target().to_owned());
            file_of(&root, request)
        });
        let peer = FakePeer::Tls(acceptor, responder);
        proxy.fake_network.peer(PUBLIC_ADDRESS, 443, peer);
        let bundle = directory.path().join("bundle.pem");
        std::fs::write(&bundle, authority.pem()).unwrap();
        Self {
            proxy,
            directory,
            bundle,
            targets,
        }
    }

    /// Runs a program as a sandbox does, with the variables of the proxy; its output, and whether it succeeded.
    #[expect(
        clippy::disallowed_methods,
        reason = "git finds its own programs by the path of this machine"
    )]
    async fn run(&self, program: &Path, arguments: &[&str]) -> (bool, String) {
        let proxy = format!(
            "http://sandbox:{}@{}",
            self.proxy.token(),
            self.proxy.address
        );
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.directory.path())
            .env("GIT_TERMINAL_PROMPT", "0")
            .kill_on_drop(true);
        for variable in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            command.env(variable, &proxy);
        }
        for variable in ["GIT_SSL_CAINFO", "PIP_CERT", "NPM_CONFIG_CAFILE"] {
            command.env(variable, &self.bundle);
        }
        let output = command.output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    fn requested(&self, target: &str) -> bool {
        let targets = self.targets.lock().unwrap();
        targets.iter().any(|requested| requested == target)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn git_clones_an_allowed_repository_and_no_other() {
    let fixture = PackageFixture::start().await;
    let git = Path::new("git");
    let url = "https://files.example.org/demo.git";
    let (is_cloned, text) = fixture.run(git, &["clone", "--quiet", url, "copy"]).await;
    assert!(is_cloned, "{text}");
    let copy = fixture.directory.path().join("copy/README");
    assert_eq!(std::fs::read_to_string(copy).unwrap(), "hello\n");
    assert!(fixture.requested("/demo.git/HEAD"));
    for inside in [
        "https://127.0.0.1/demo.git",
        "https://169.254.169.254/demo.git",
    ] {
        let (is_cloned, text) = fixture
            .run(git, &["clone", "--quiet", inside, "other"])
            .await;
        assert!(!is_cloned, "{text}");
        assert!(text.contains("403"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pip_gets_a_package_of_an_allowed_index_and_of_no_other() {
    let fixture = PackageFixture::start().await;
    let python = dray_testkit::python::interpreter("pip");
    let arguments = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-cache-dir",
        "--index-url",
        "https://files.example.org/simple/",
        "demo",
    ];
    let (is_downloaded, text) = fixture.run(&python, &arguments).await;
    assert!(is_downloaded, "{text}");
    let wheel = "demo-1.0-py3-none-any.whl";
    assert!(fixture.directory.path().join(wheel).exists(), "{text}");
    assert!(fixture.requested(&format!("/simple/demo/{wheel}")));
    // What is not allowed is refused by the proxy, and nothing is dialled for it.
    let before = fixture.proxy.fake_network.dialled().len();
    let mut refused = arguments.to_vec();
    refused.extend(["--retries", "0", "--index-url", "https://10.0.0.1/simple/"]);
    let (is_downloaded, text) = fixture.run(&python, &refused).await;
    assert!(!is_downloaded, "{text}");
    assert_eq!(fixture.proxy.fake_network.dialled().len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_installs_a_package_of_an_allowed_registry_and_of_no_other() {
    let fixture = PackageFixture::start().await;
    let project = fixture.directory.path();
    std::fs::write(project.join("package.json"), r#"{"name": "app"}"#).unwrap();
    let install = ["install", "--no-audit", "--no-fund", "--fetch-retries=0"];
    let from = |registry, package| [&install[..], &["--registry", registry, package]].concat();
    let allowed = from("https://files.example.org/", "demo-npm");
    let (is_installed, text) = fixture.run(Path::new("npm"), &allowed).await;
    assert!(is_installed, "{text}");
    assert!(project.join("node_modules/demo-npm/package.json").is_file());
    assert!(fixture.requested("/demo-npm.tgz"));
    let before = fixture.proxy.fake_network.dialled().len();
    let refused = from("https://10.0.0.1/", "other-npm");
    let (is_installed, text) = fixture.run(Path::new("npm"), &refused).await;
    assert!(!is_installed, "{text}");
    assert_eq!(fixture.proxy.fake_network.dialled().len(), before);
}
