//! Opens the resources that a host needs before any service starts: sections, listeners, bus and store.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use dray_bus::{Bus, ConnectError, NatsOptions, Topology};
use dray_http_server::ConnectionLimits;
use dray_store::embedded::{self, EmbeddedS3};
use dray_store::{OpenError, Store};
use dray_types::Clock;
use opentelemetry::metrics::Meter;
use tokio::net::TcpListener;

use super::HostError;
use super::running::{BoundAddresses, HealthServer};
use super::wait;
use crate::config::{ConfigError, LoadedConfig};
use crate::grpc::GrpcSecurity;
use crate::health::{HealthPages, ProcessHealth, health_routes};
use crate::provision;
use crate::settings::{
    BusMode, BusSection, GrpcSection, HttpSection, LimitsSection, Settings, ShutdownSection,
    StateSection, StoreMode, StoreSection, TelemetrySection,
};
use crate::telemetry::Telemetry;

/// Directory of the embedded store within the state directory.
const STORE_DIRECTORY: &str = "store";
/// Directory of the records of tickets within the state directory (`dray up --tickets`).
const TICKET_DIRECTORY: &str = "tickets";

/// The sections that every process has, typed.
#[derive(Clone, Debug)]
pub(super) struct CommonSections {
    pub(super) bus: BusSection,
    pub(super) store: StoreSection,
    pub(super) telemetry: TelemetrySection,
    pub(super) http: HttpSection,
    pub(super) grpc: GrpcSection,
    pub(super) limits: LimitsSection,
    pub(super) state: StateSection,
    pub(super) shutdown: ShutdownSection,
}

impl CommonSections {
    pub(super) fn read(loaded: &LoadedConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            bus: loaded.section("bus")?,
            store: loaded.section("store")?,
            telemetry: loaded.section("telemetry")?,
            http: loaded.section("http")?,
            grpc: loaded.section("grpc")?,
            limits: loaded.section("limits")?,
            state: loaded.section("state")?,
            shutdown: loaded.section("shutdown")?,
        })
    }

    /// Returns the configured instance name, or a new one for this start.
    pub(super) fn instance(&self) -> String {
        match &self.state.instance {
            Some(instance) => instance.clone(),
            None => format!("i-{}", uuid::Uuid::new_v4().simple()),
        }
    }

    /// Returns the endpoints that this process is configured to talk to.
    pub(super) fn peers(&self) -> Vec<String> {
        let mut peers = Vec::new();
        if self.bus.mode == BusMode::Nats {
            peers.extend(self.bus.nats.servers.iter().cloned());
        }
        if self.store.mode == StoreMode::S3 && !self.store.s3.endpoint.is_empty() {
            peers.push(self.store.s3.endpoint.clone());
        }
        peers.extend(self.telemetry.otlp_endpoint.clone());
        peers
    }

    /// Whether this process stores files on disk.
    pub(super) fn uses_disk(&self) -> bool {
        self.store.mode == StoreMode::Embedded
    }
}

/// The listener of the gRPC endpoint with its certificates and identities.
#[derive(Debug)]
pub(super) struct GrpcListener {
    pub(super) listener: TcpListener,
    pub(super) security: Arc<GrpcSecurity>,
}

/// Listeners that are bound but not served yet.
#[derive(Debug)]
pub(super) struct BoundListeners {
    http: Option<TcpListener>,
    pub(super) grpc: Option<GrpcListener>,
    pub(super) addresses: BoundAddresses,
}

impl BoundListeners {
    /// Binds before anything is connected, so that a port in use fails the start early.
    pub(super) async fn bind(sections: &CommonSections) -> Result<Self, HostError> {
        let (http, http_address) = bind_listener("http", sections.http.listen).await?;
        let (grpc, grpc_address) = bind_listener("grpc", sections.grpc.listen).await?;
        let grpc = match grpc {
            Some(listener) => Some(GrpcListener {
                listener,
                security: GrpcSecurity::load(&sections.grpc).await?,
            }),
            None => None,
        };
        Ok(Self {
            http,
            grpc,
            addresses: BoundAddresses {
                http: http_address,
                grpc: grpc_address,
            },
        })
    }

    /// Serves health and metrics until the returned server is dropped or closed.
    pub(super) fn serve_health(
        &mut self,
        health: &ProcessHealth,
        telemetry: &Telemetry,
    ) -> HealthServer {
        let mut http = HealthServer::default();
        if let Some(listener) = self.http.take() {
            let pages = health_routes(HealthPages {
                health: health.clone(),
                registry: telemetry.registry(),
            });
            // The drop cancels it as well, so that connections end with the server.
            let stop = http.stop.clone();
            http.tasks.spawn(async move {
                let limits = ConnectionLimits::default();
                // Without a drain timeout it always completes.
                let _ = dray_http_server::serve(listener, pages, limits, stop).await;
            });
        }
        http
    }
}

async fn bind_listener(
    section: &'static str,
    address: Option<SocketAddr>,
) -> Result<(Option<TcpListener>, Option<SocketAddr>), HostError> {
    let Some(address) = address else {
        return Ok((None, None));
    };
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        // The real port, when 0 was configured.
        let address = listener.local_addr()?;
        Ok((Some(listener), Some(address)))
    };
    bound.await.map_err(|source| HostError::Bind {
        section,
        address,
        source,
    })
}

/// An open bus and an open store, and which of them to close.
#[derive(Debug)]
pub(super) struct OpenConnections {
    pub(super) bus: Bus,
    pub(super) owns_bus: bool,
    pub(super) store: Store,
    pub(super) owns_store: bool,
    pub(super) embedded: Option<EmbeddedS3>,
    pub(super) clock: Clock,
}

impl OpenConnections {
    pub(super) async fn open(
        settings: Settings,
        sections: &CommonSections,
        name: &str,
        meter: &Meter,
    ) -> Result<Self, HostError> {
        let clock = settings.clock;
        // An injected bus belongs to its owner, who drains it.
        let owns_bus = settings.bus.is_none();
        let owns_store = settings.store.is_none();
        let bus = match (settings.bus, sections.bus.mode) {
            (Some(bus), _) => bus,
            (None, BusMode::Embedded) => Bus::in_process(clock.clone(), meter),
            (None, BusMode::Nats) => {
                let options = nats_options(sections, name);
                let limit = sections.bus.wait_for_server.as_duration();
                let connect = || Bus::connect(&options, clock.clone(), meter);
                wait::retry_while_temporary("the bus", limit, ConnectError::is_temporary, connect)
                    .await?
            }
        };
        match open_store(settings.store, sections, &clock).await {
            Ok((store, embedded)) => Ok(Self {
                bus,
                owns_bus,
                store,
                owns_store,
                embedded,
                clock,
            }),
            Err(error) => {
                // The bus is open already; an injected one stays open for its owner.
                if owns_bus {
                    bus.drain().await;
                }
                Err(error)
            }
        }
    }

    /// Closes what was opened here, after a start that failed.
    pub(super) async fn close(self) {
        if self.owns_bus {
            self.bus.drain().await;
        }
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
    }

    /// Creates or checks the topology. The embedded bus starts empty and is provisioned here; any other is only
    /// compared.
    pub(super) async fn verify_topology(
        &self,
        topology: &Topology,
        sections: &CommonSections,
    ) -> Result<(), HostError> {
        if self.owns_bus && sections.bus.mode == BusMode::Embedded {
            // The complete topology, not only the part of these services, because an embedded bus has no other
            // provisioner.
            return Ok(provision::apply_topology(&self.bus, &Topology::default()).await?);
        }
        let timeout = sections.bus.wait_for_topology.as_duration();
        Ok(provision::wait_until_verified(&self.bus, topology, timeout).await?)
    }
}

/// Options of the NATS connection. The connection has the service's name unless a name is configured. The reply inbox
/// has the same name, and the server's permissions bind it to the service's identity.
fn nats_options(sections: &CommonSections, name: &str) -> NatsOptions {
    let options = sections.bus.nats.clone();
    if options.name == NatsOptions::default().name {
        return options.named(name);
    }
    options
}

async fn open_store(
    configured: Option<Store>,
    sections: &CommonSections,
    clock: &Clock,
) -> Result<(Store, Option<EmbeddedS3>), HostError> {
    if let Some(store) = configured {
        return Ok((store, None));
    }
    if sections.store.mode == StoreMode::S3 {
        let options = &sections.store.s3;
        if !options.session_token.is_empty() && options.derivation_key.is_empty() {
            tracing::warn!(
                "`store.s3.session_token` is set without `store.s3.derivation_key`: replicas with other credentials do not \
                 accept each other's derived keys"
            );
        }
        let limit = sections.store.wait_for_server.as_duration();
        let open = || Store::open(&sections.store.s3, clock.clone());
        let store =
            wait::retry_while_temporary("the object store", limit, OpenError::is_temporary, open)
                .await?;
        return Ok((store, None));
    }
    let (server, options) = embedded_store(sections).await?;
    match Store::open_in_process(&server, &options, clock.clone()).await {
        Ok(store) => Ok((store, Some(server))),
        Err(error) => {
            // The server stops here, since only a store that opened is returned with its server.
            server.stop().await;
            Err(error.into())
        }
    }
}

async fn embedded_store(
    sections: &CommonSections,
) -> Result<(EmbeddedS3, dray_store::StoreOptions), HostError> {
    let unusable = |directory: &Path, source| HostError::State {
        directory: directory.display().to_string(),
        source,
    };
    let state = sections.state.directory.as_path();
    embedded::prepare_parent(state, &[STORE_DIRECTORY, TICKET_DIRECTORY])
        .map_err(|error| unusable(state, error))?;
    let directory = state.join(STORE_DIRECTORY);
    let started = EmbeddedS3::start(&directory).await;
    started.map_err(|error| unusable(&directory, error))
}
