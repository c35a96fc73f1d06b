//! The client of one engine: its version, its containers, and connections to it.

use std::sync::Arc;
use std::time::Duration;

use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum};
use bollard::query_parameters::InspectContainerOptions;
use bollard::{API_DEFAULT_VERSION, BollardRequest, ClientVersion, Docker};
use dray_sandbox::{Error, ErrorKind};
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::config::{Config, ConfigError};
use crate::fault;
use crate::wire::{Connection, Endpoint, EngineResponse, empty};

/// Oldest version of the API that has everything used here.
const MIN_API_VERSION: (usize, usize) = (1, 24);

/// Client of one engine. It sends nothing before the first call.
#[derive(Debug)]
pub(crate) struct Client {
    endpoint: Endpoint,
    connect_timeout: Duration,
    response_timeout: Duration,
    shell_timeout: Duration,
    negotiated: OnceCell<(Docker, String)>,
    /// Tasks that drive connections of the library and end abandoned commands.
    tasks: TaskTracker,
}

impl Client {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        Ok(Self {
            endpoint: config.endpoint()?,
            connect_timeout: config.connect_timeout.as_duration(),
            response_timeout: config.response_timeout.as_duration(),
            shell_timeout: config.shell_timeout.as_duration(),
            negotiated: OnceCell::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// The library's client, with a version of the API that the engine knows.
    pub(crate) async fn docker(&self) -> Result<&Docker, Error> {
        let (docker, _) = self.negotiated.get_or_try_init(|| self.negotiate()).await?;
        Ok(docker)
    }

    /// The version of the API that both sides know, as it is in paths.
    pub(crate) async fn version(&self) -> Result<&str, Error> {
        let (_, version) = self.negotiated.get_or_try_init(|| self.negotiate()).await?;
        Ok(version)
    }

    /// Tasks that continue after their caller has returned.
    pub(crate) const fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Time limit for a response of the engine.
    pub(crate) const fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Time limit for a short response of a shell in a container.
    pub(crate) const fn shell_timeout(&self) -> Duration {
        self.shell_timeout
    }

    /// Opens a connection that only the caller uses.
    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        Connection::open(&self.endpoint, self.connect_timeout).await
    }

    /// Waits for the head of a response, within the limit.
    pub(crate) async fn head<T>(
        &self,
        response: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match timeout(self.response_timeout, response).await {
            Ok(answered) => answered,
            // A hung engine accepts connections, so only this timeout notices it.
            Err(_) => Err(Error::new(
                ErrorKind::Timeout,
                "the engine does not respond",
            )),
        }
    }

    /// The versions of the engine and of its API, requested now.
    pub(crate) async fn describe_engine(&self) -> Result<(String, String), Error> {
        let docker = self.docker().await?;
        let description = async {
            let version = docker.version().await;
            version.map_err(|error| fault::failed("asking the engine for its version", error))
        };
        let version = self.head(description).await?;
        let text = |part: Option<String>| part.unwrap_or_else(|| "unknown".to_owned());
        Ok((text(version.version), text(version.api_version)))
    }

    /// Describes a container. The description takes several kilobytes, so it is boxed and does not enlarge the caller's
    /// future.
    pub(crate) async fn inspect(&self, name: &str) -> Result<Box<ContainerInspectResponse>, Error> {
        let docker = self.docker().await?;
        let inspection = docker.inspect_container(name, None::<InspectContainerOptions>);
        let description = self
            .head(async {
                inspection
                    .await
                    .map_err(|error| fault::failed("inspecting a container", error))
            })
            .await?;
        let state = description.state.as_ref().and_then(|state| state.status);
        match state {
            // The engine still knows it, but its file system may vanish at any moment.
            Some(ContainerStateStatusEnum::REMOVING | ContainerStateStatusEnum::DEAD) => Err(
                Error::new(ErrorKind::SandboxGone, "the container is being removed"),
            ),
            _ => Ok(Box::new(description)),
        }
    }

    /// Requests the engine's version, without a version in the path, and uses the older one of both sides.
    async fn negotiate(&self) -> Result<(Docker, String), Error> {
        const ACTIVITY_NAME: &str = "asking the engine for its version";
        // This is the only path without a version, so it works before the version is known.
        let request = Request::get("/_ping")
            .header(HOST, "docker")
            .body(empty())
            .map_err(|error| Error::new(ErrorKind::Protocol, ACTIVITY_NAME).caused_by(error))?;
        let mut connection = self.connect().await?;
        let response = self.head(connection.send(request)).await?;
        let reply = EngineResponse::new(connection, response);
        let reply = reply.require_success(ACTIVITY_NAME).await?;
        let api_version = reply.headers.get("api-version");
        let api_version = api_version.and_then(|version| version.to_str().ok());
        let version = api_version.and_then(parse).ok_or_else(|| {
            Error::new(
                ErrorKind::Protocol,
                "the engine does not report its version",
            )
        })?;
        // A version that the engine does not know gives 400 on every path (sandbox-transfer 4.1).
        let newest = (
            API_DEFAULT_VERSION.major_version,
            API_DEFAULT_VERSION.minor_version,
        );
        // The engine serves older versions of its API as well, so the lower one of both works.
        let (major_version, minor_version) = version.min(newest);
        if version < MIN_API_VERSION {
            return Err(Error::new(ErrorKind::Protocol, "the engine is too old"));
        }
        let text = format!("{major_version}.{minor_version}");
        let version = ClientVersion {
            major_version,
            minor_version,
        };
        Ok((self.library_client(&text, &version)?, text))
    }

    /// Makes the library's client over our connections, with the version in front of every path.
    fn library_client(&self, text: &str, version: &ClientVersion) -> Result<Docker, Error> {
        let transport = Arc::new(EngineTransport {
            endpoint: self.endpoint.clone(),
            connect_timeout: self.connect_timeout,
            prefix: format!("/v{text}"),
            tasks: self.tasks.clone(),
        });
        Docker::connect_with_custom_transport(
            move |request: BollardRequest| Arc::clone(&transport).send(request),
            Some("http://docker"),
            // The library counts whole seconds, and a timeout of zero would expire immediately.
            self.response_timeout.as_secs().max(1),
            version,
        )
        .map_err(|error| fault::failed("making a client of the engine", error))
    }
}

/// Transport of the library: connects to the engine.
#[derive(Debug)]
struct EngineTransport {
    endpoint: Endpoint,
    connect_timeout: Duration,
    prefix: String,
    tasks: TaskTracker,
}

impl EngineTransport {
    async fn send(
        self: Arc<Self>,
        mut request: BollardRequest,
    ) -> Result<Response<Incoming>, bollard::errors::Error> {
        // Each request has a new connection: the engine may close a pooled one just when it is used.
        let io = self.endpoint.connect(self.connect_timeout).await?;
        let (mut sender, connection) = http1::handshake(io).await?;
        // The connection ends with the response, or becomes the stream of a command. Both sides of the connection
        // report why it broke.
        drop(self.tasks.spawn(connection.with_upgrades()));
        let target = request.uri().path_and_query();
        let target = target.map_or("/", |target| target.as_str());
        *request.uri_mut() = Uri::try_from(format!("{}{target}", self.prefix))?;
        let host = HeaderValue::from_static("docker");
        request.headers_mut().insert(HOST, host);
        Ok(sender.send_request(request).await?)
    }
}

/// Parses the major and the minor number.
fn parse(version: &str) -> Option<(usize, usize)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(parse("1.41"), Some((1, 41)));
        assert!(parse("1.9").unwrap() < MIN_API_VERSION);
        for wrong in ["", "1", "1.x", "one.two"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
