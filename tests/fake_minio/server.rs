//! The fake of `minio server /data`: S3 on port 9000, with users and policies that `mc` changes, both stored in the
//! volume.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use dray_store::embedded::EmbeddedS3;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::state::{AdminOperation, AdminRequest, AdminResponse, MinioState};
use crate::{ADMIN_PORT, Failure, variable};

const S3_PORT: u16 = 9000;

/// Runs until the container is stopped.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let ["server", directory] = arguments else {
        return Err(format!("this fake does not know: minio {}", arguments.join(" ")).into());
    };
    let credentials = (
        variable("MINIO_ROOT_USER")?,
        variable("MINIO_ROOT_PASSWORD")?,
    );
    tokio::runtime::Runtime::new()?.block_on(async {
        // The kernel drops signals that the first process of a container does not handle.
        let mut terminate = signal(SignalKind::terminate())?;
        let server = Arc::new(MinioServer::open(Path::new(directory), credentials).await?);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(S3_PORT, Arc::clone(&server), forward));
        tasks.spawn(serve(ADMIN_PORT, Arc::clone(&server), administer));
        tokio::select! {
            _ = terminate.recv() => {}
            result = tasks.join_next() => result.ok_or("no listener")???,
        }
        server.storage.lock().await.stop(&server.endpoint).await;
        Ok(())
    })
}

struct MinioServer {
    /// User and password of the administrator.
    credentials: (String, String),
    storage: Mutex<MinioStorage>,
    /// The address of the endpoint; `None` while there is no bucket and while it starts again.
    endpoint: watch::Sender<Option<SocketAddr>>,
}

struct MinioStorage {
    directory: PathBuf,
    state: MinioState,
    running: Option<EmbeddedS3>,
}

impl MinioServer {
    async fn open(directory: &Path, credentials: (String, String)) -> Result<Self, Failure> {
        let mut storage = MinioStorage::read(directory)?;
        let endpoint = watch::Sender::new(None);
        storage.start(&endpoint).await?;
        Ok(Self {
            credentials,
            storage: Mutex::new(storage),
            endpoint,
        })
    }

    async fn execute(&self, request: AdminRequest) -> AdminResponse {
        let needs_no_login = matches!(
            request.operation,
            AdminOperation::Ready | AdminOperation::Refused
        );
        if !needs_no_login && self.credentials != (request.user, request.password) {
            return AdminResponse::Failed("the credentials are wrong".to_owned());
        }
        let mut storage = self.storage.lock().await;
        storage.collect_refused();
        let is_read_only = needs_no_login
            || matches!(
                request.operation,
                AdminOperation::Login | AdminOperation::ShowUser { .. }
            );
        let result = storage.state.apply(request.operation);
        match result {
            Err(error) => AdminResponse::Failed(error),
            Ok(output) if is_read_only => AdminResponse::Done(output),
            Ok(output) => match storage.restart(&self.endpoint).await {
                Ok(()) => AdminResponse::Done(output),
                Err(error) => AdminResponse::Failed(error.to_string()),
            },
        }
    }
}

impl MinioStorage {
    fn read(directory: &Path) -> Result<Self, Failure> {
        let state = match fs::read(state_file(directory)) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => MinioState::default(),
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            directory: directory.to_owned(),
            state,
            running: None,
        })
    }

    /// Serves with the access keys of the state, once there is a bucket.
    async fn start(&mut self, endpoint: &watch::Sender<Option<SocketAddr>>) -> io::Result<()> {
        if self.state.has_bucket {
            let objects = self.directory.join("objects");
            let (running, _) = EmbeddedS3::with_keys(&objects, &self.state.access_keys()).await?;
            endpoint.send_replace(Some(running.address()));
            self.running = Some(running);
        }
        Ok(())
    }

    async fn stop(&mut self, endpoint: &watch::Sender<Option<SocketAddr>>) {
        endpoint.send_replace(None);
        self.collect_refused();
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }

    /// Stores the state, and serves with its access keys from now on.
    async fn restart(
        &mut self,
        endpoint: &watch::Sender<Option<SocketAddr>>,
    ) -> Result<(), Failure> {
        self.stop(endpoint).await;
        fs::write(
            state_file(&self.directory),
            serde_json::to_vec(&self.state)?,
        )?;
        Ok(self.start(endpoint).await?)
    }

    /// Adds the requests that the endpoint has refused since it started.
    fn collect_refused(&mut self) {
        let refused = self.running.as_ref().map(EmbeddedS3::refused);
        for refused in refused.unwrap_or_default() {
            if !self.state.refused.contains(&refused) {
                self.state.refused.push(refused);
            }
        }
    }
}

fn state_file(directory: &Path) -> PathBuf {
    directory.join("state.json")
}

/// Accepts connections on a port and handles each in a task.
async fn serve<F>(
    port: u16,
    server: Arc<MinioServer>,
    handle: fn(Arc<MinioServer>, TcpStream) -> F,
) -> io::Result<()>
where
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        while connections.try_join_next().is_some() {}
        let handling = handle(Arc::clone(&server), stream);
        connections.spawn(async move {
            if let Err(error) = handling.await {
                eprintln!("port {port}: {error}");
            }
        });
    }
}

/// Forwards a connection to the endpoint, which listens on loopback alone.
async fn forward(server: Arc<MinioServer>, mut client: TcpStream) -> Result<(), Failure> {
    let mut endpoint = server.endpoint.subscribe();
    let address = *endpoint.wait_for(Option::is_some).await?;
    let address = address.ok_or("no endpoint")?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the address is that of an endpoint of this process"
    )]
    let mut upstream = TcpStream::connect(address).await?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut upstream).await?;
    Ok(())
}

/// Executes one operation of the administration API.
async fn administer(server: Arc<MinioServer>, mut stream: TcpStream) -> Result<(), Failure> {
    let mut line = String::new();
    BufReader::new(&mut stream).read_line(&mut line).await?;
    let response = server.execute(serde_json::from_str(&line)?).await;
    let mut line = serde_json::to_vec(&response)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    Ok(stream.shutdown().await?)
}
