//! The endpoint of tickets: in `dray up` and `dray mcp`, and separately as `dray ticket serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use dray_bus::Bus;
use dray_mcp::TicketAccess;
use dray_service::RunningHost;
use dray_service::config::{ConfigSources, LoadedConfig};
use dray_service::host::ErrorChain;
use dray_service::settings::{BusMode, BusSection, StateSection};
use dray_store::Store;
use dray_ticket::{
    TicketConfig, TicketEndpoint, TicketLimits, TicketRecords, TicketService, is_base_url,
};
use dray_types::Clock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::{GlobalOptions, TicketServe};
use crate::commands::mcp::termination;
use crate::context::{self, SystemConnection};
use crate::outcome::{CommandFailure, print_note};

/// Purpose of the key that the endpoint and `dray ticket` derive from the credentials of the store.
pub(super) const KEY_PURPOSE: &str = "make tickets";
/// Directory of the records in the state directory, where the bus is inside the process.
const TICKET_DIRECTORY: &str = "tickets";
/// Services that send or receive the files of tickets.
const TICKET_SERVICES: [&str; 2] = ["sandbox-transfer", "platform-delivery"];

/// Serves tickets until a signal ends the command.
pub(super) async fn run(global: &GlobalOptions, serve: &TicketServe) -> Result<(), CommandFailure> {
    let endpoint = bind_endpoint(serve.listen, serve.url.clone(), "--listen").await?;
    print_note(&format!("tickets: {}", endpoint.base_url()));
    let system = SystemConnection::open(global, &TICKET_SERVICES).await?;
    let (_, serving) = attach_endpoint(endpoint, &system, global)?;
    let ended = termination().await;
    serving.close().await;
    system.close().await;
    ended
}

/// Binds the address of an endpoint. `flag` is the option for the address, which the advice of a failure names.
pub(crate) async fn bind_endpoint(
    address: SocketAddr,
    public_url: Option<String>,
    flag: &str,
) -> Result<TicketEndpoint, CommandFailure> {
    if public_url.as_deref().is_some_and(|url| !is_base_url(url)) {
        return Err(CommandFailure::Usage(
            "the base of ticket URLs is not an http or https URL without user, query and fragment"
                .to_owned(),
        ));
    }
    let bound = TicketEndpoint::bind(address, public_url).await;
    bound.map_err(|error| CommandFailure::Unreachable {
        description: format!("{}", ErrorChain(&error)),
        advice: format!(
            "End the program that uses the address, or name another one: {flag} ADDRESS."
        ),
    })
}

/// Like [`bind_endpoint`]; `None` without an address.
pub(crate) async fn bind_wanted(
    address: Option<SocketAddr>,
    public_url: Option<String>,
) -> Result<Option<TicketEndpoint>, CommandFailure> {
    match address {
        Some(address) => bind_endpoint(address, public_url, "--tickets")
            .await
            .map(Some),
        None => Ok(None),
    }
}

/// Makes the ticket calls use the URL and the records of this endpoint.
pub(crate) fn configure_calls(
    mut sources: ConfigSources,
    endpoint: Option<&TicketEndpoint>,
) -> Result<ConfigSources, CommandFailure> {
    if let Some(endpoint) = endpoint {
        sources = sources.set_by("--tickets-url", "tickets.url", endpoint.base_url());
    }
    let loaded = context::load_config(&sources)?;
    if let Some(directory) = record_directory(&loaded)? {
        sources = sources.set("tickets.records", directory.to_string_lossy());
    }
    Ok(sources)
}

/// The directory of records where the bus ends with the process, unless the configuration names one.
fn record_directory(loaded: &LoadedConfig) -> Result<Option<PathBuf>, CommandFailure> {
    let bus: BusSection = context::config_section(loaded, "bus")?;
    if bus.mode != BusMode::Embedded || !loaded.is_default("tickets.records") {
        return Ok(None);
    }
    let state: StateSection = context::config_section(loaded, "state")?;
    Ok(Some(state.directory.join(TICKET_DIRECTORY)))
}

/// Opens the records once, before the services start: an endpoint without records would end as soon as it is announced.
pub(crate) fn check_records(config: &LoadedConfig) -> Result<(), CommandFailure> {
    let tickets: TicketConfig = context::config_section(config, "tickets")?;
    // An empty path is the bucket that all replicas share.
    if tickets.records.as_os_str().is_empty() {
        return Ok(());
    }
    let opened = TicketRecords::directory(&tickets.records);
    let failed = CommandFailure::local("cannot open the records of tickets");
    opened.map(drop).map_err(failed)
}

/// Serves tickets for as long as the host runs; `None` if the records cannot be opened.
pub(crate) fn serve_endpoint(
    endpoint: TicketEndpoint,
    running: &RunningHost,
) -> Option<TicketAccess> {
    let context = running.context();
    let config = running.config();
    let service = config
        .section::<TicketConfig>("tickets")
        .map_err(std::io::Error::other)
        .and_then(|tickets| {
            let (bus, store) = (&context.bus, &context.store);
            ticket_service(bus, store, &context.clock, Some(config), tickets)
        });
    let service = match service {
        Ok(service) => service,
        Err(error) => {
            print_note(&format!("tickets are not served: {error}"));
            return None;
        }
    };
    let access = TicketAccess {
        service: service.clone(),
        base_url: endpoint.base_url().to_owned(),
    };
    let keys = context.store.derive_keys(KEY_PURPOSE);
    let listeners = &context.listeners;
    let serving = endpoint.serve(service, Some(keys), listeners.stop.clone());
    listeners.spawn(serving);
    Some(access)
}

/// An endpoint that serves until it is closed.
pub(crate) struct ServingTickets {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl ServingTickets {
    /// Ends the endpoint and waits until received bytes are recorded.
    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Serves tickets beside a command.
pub(crate) fn attach_endpoint(
    endpoint: TicketEndpoint,
    system: &SystemConnection,
    global: &GlobalOptions,
) -> Result<(TicketAccess, ServingTickets), CommandFailure> {
    let store = system.store()?;
    // The section is read here and not from the services, which are not in this process on a running system. The rules
    // of the endpoint hold in both cases.
    let loaded = context::load_config(&context::config_sources(global)?)?;
    let tickets = context::config_section(&loaded, "tickets")?;
    let service = ticket_service(&system.bus, store, &system.clock, system.config(), tickets);
    let service = service.map_err(CommandFailure::local("cannot open the records of tickets"))?;
    let access = TicketAccess {
        service: service.clone(),
        base_url: endpoint.base_url().to_owned(),
    };
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let keys = store.derive_keys(KEY_PURPOSE);
    tasks.spawn(endpoint.serve(service, Some(keys), stop.clone()));
    Ok((access, ServingTickets { stop, tasks }))
}

/// The tickets of a system. `config` is the configuration of the services in this process; `None` without services.
fn ticket_service(
    bus: &Bus,
    store: &Store,
    clock: &Clock,
    config: Option<&LoadedConfig>,
    tickets: TicketConfig,
) -> Result<TicketService, std::io::Error> {
    let records = ticket_records(bus, config, &tickets)?;
    let limits = TicketLimits::default();
    let service = TicketService::new(records, store.clone(), clock.clone(), limits);
    Ok(service
        .with_bus(bus.clone())
        .with_web_files(tickets.web_files))
}

/// Records in the bucket that all replicas share, or in a directory: where the bus ends with this process, or where a
/// directory is configured.
fn ticket_records(
    bus: &Bus,
    config: Option<&LoadedConfig>,
    tickets: &TicketConfig,
) -> Result<TicketRecords, std::io::Error> {
    let Some(config) = config else {
        return Ok(TicketRecords::key_value(
            bus.key_value(dray_ticket::TICKET_BUCKET),
        ));
    };
    let directory =
        record_directory(config).map_err(|error| std::io::Error::other(error.to_string()))?;
    match directory {
        Some(directory) => TicketRecords::directory(&directory),
        None if tickets.records.as_os_str().is_empty() => Ok(TicketRecords::key_value(
            bus.key_value(dray_ticket::TICKET_BUCKET),
        )),
        None => TicketRecords::directory(&tickets.records),
    }
}
