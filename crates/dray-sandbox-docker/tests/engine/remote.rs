//! Tests with a real engine behind TLS with certificates of both sides, and behind a program that replaces `ssh`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use dray_sandbox::{Backend as _, ErrorKind, Follow, Sandbox};
use dray_sandbox_docker::{Config, DockerBackend};
use dray_testkit::docker::{ContainerOptions, DockerEngine};
use dray_types::Clock;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::fixture::{address, path};

/// Makes `ca.pem`, and `cert.pem` with `key.pem` for an address or a client, as the Docker documentation does.
fn certificates(directory: &Path, authority: &Path) {
    let script = r#"set -e
cd "$1"
if [ ! -e "$2/ca-key.pem" ]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
    -addext basicConstraints=critical,CA:TRUE -keyout "$2/ca-key.pem" -out "$2/ca.pem"
fi
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=side -keyout key.pem -out side.csr
printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' >side.ext
openssl x509 -req -in side.csr -CA "$2/ca.pem" -CAkey "$2/ca-key.pem" -CAcreateserial -days 2 -extfile side.ext -out cert.pem
[ "$1" = "$2" ] || cp "$2/ca.pem" .
"#;
    let exit_status = Command::new("sh")
        .args(["-c", script, "sh"])
        .args([directory, authority])
        .output()
        .unwrap();
    assert!(exit_status.status.success(), "{exit_status:?}");
}

fn pem(file: &Path) -> Vec<CertificateDer<'static>> {
    let found = CertificateDer::pem_file_iter(file).unwrap();
    found.collect::<Result<_, _>>().unwrap()
}

/// The engine's socket behind TLS that asks for a certificate of the authority, as `dockerd --tlsverify` does.
async fn serve(engine: &DockerEngine, directory: &Path) -> (String, JoinSet<()>) {
    let mut roots = RootCertStore::empty();
    for certificate in pem(&directory.join("ca.pem")) {
        roots.add(certificate).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            pem(&directory.join("cert.pem")),
            PrivateKeyDer::from_pem_file(directory.join("key.pem")).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let socket = engine.socket();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, socket) = (acceptor.clone(), socket.clone());
            connections.spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut engine = UnixStream::connect(socket).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut engine).await;
            });
        }
    });
    (address, serving)
}

async fn open(config: &Config, name: &str) -> Result<Arc<dyn Sandbox>, dray_sandbox::Error> {
    let backend = DockerBackend::new(config, Clock::system()).unwrap();
    let handle = backend.resolve(&address(name)).await?;
    backend.open(&handle).await
}

/// Looks at a file, which goes through the library, our own connections and a command.
async fn check(sandbox: &dyn Sandbox) {
    let metadata = sandbox.stat(&path("/tmp/a"), Follow::No).await.unwrap();
    assert_eq!(metadata.size, 5);
    assert!(sandbox.probe().await.is_ok());
    assert!(sandbox.fingerprint(&path("/tmp/a")).await.is_ok());
}

#[tokio::test]
async fn an_engine_behind_tls_is_reached_with_certificates_of_both_sides_only() {
    let engine = DockerEngine::shared();
    let container = engine.container(ContainerOptions::default());
    container.sh("printf hello > /tmp/a");
    let directory = tempfile::tempdir().unwrap();
    let side = |name: &str| -> PathBuf {
        let side = directory.path().join(name);
        std::fs::create_dir(&side).unwrap();
        side
    };
    let (server, client, stranger, nobody) = (
        side("server"),
        side("client"),
        side("stranger"),
        side("nobody"),
    );
    certificates(&server, &server);
    certificates(&client, &server);
    certificates(&stranger, &stranger);
    std::fs::copy(server.join("ca.pem"), nobody.join("ca.pem")).unwrap();
    let (address, _serving) = serve(&engine, &server).await;
    let config = |certificates: &Path| Config {
        endpoint: format!("tcp://{address}"),
        tls_verify: true,
        cert_path: Some(certificates.to_owned()),
        ..Config::default()
    };
    let sandbox = open(&config(&client), container.name()).await.unwrap();
    check(&*sandbox).await;
    // Another authority signed the first certificate, and the engine accepts no client without one.
    for certificates in [&stranger, &nobody] {
        let error = open(&config(certificates), container.name())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    let plain = Config {
        tls_verify: false,
        ..config(&client)
    };
    assert!(open(&plain, container.name()).await.is_err());
}

#[tokio::test]
async fn an_engine_behind_ssh_is_reached_through_dial_stdio() {
    let engine = DockerEngine::shared();
    let container = engine.container(ContainerOptions::default());
    container.sh("printf hello > /tmp/a");
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("ssh");
    // Runs the command that the host would run, and records the arguments of `ssh`.
    let script = format!(
        "#!/bin/sh\necho \"$*\" >>'{}'\nwhile [ \"$1\" != docker ]; do shift; done\nshift\nexec docker -H 'unix://{}' \"$@\"\n",
        directory.path().join("arguments").display(),
        engine.socket().display(),
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let config = Config {
        endpoint: "ssh://me@engine:2222".to_owned(),
        ssh_program: program,
        ..Config::default()
    };
    let sandbox = open(&config, container.name()).await.unwrap();
    check(&*sandbox).await;
    let given = std::fs::read_to_string(directory.path().join("arguments")).unwrap();
    let first = given.lines().next().unwrap();
    assert!(first.contains("-o BatchMode=yes"), "{first}");
    assert!(
        first.ends_with("-p 2222 -- me@engine docker system dial-stdio"),
        "{first}"
    );
}
