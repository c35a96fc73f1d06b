//! `dray up`: services until a signal ends them.

use std::net::SocketAddr;

use crate::cli::{GlobalOptions, UpArgs};
use crate::outcome::{CommandFailure, print_line, print_note};
use crate::world;
use dray_service::config::LoadedConfig;
use dray_service::host::BoundAddresses;
use dray_service::settings::{BusMode, BusSection};
use dray_service::{ExitStatus, RunningHost};
use serde_json::json;

/// Starts the wanted services, prints their addresses, and stops them in order on SIGTERM or SIGINT. A second
/// signal ends the process immediately.
pub(crate) async fn run(global: &GlobalOptions, up: &UpArgs) -> Result<(), CommandFailure> {
    let mut sources = world::with_home(world::config_sources(global)?)?;
    if let Some(address) = up.http {
        sources = sources.set("http.listen", address.to_string());
    }
    if let Some(address) = up.grpc {
        sources = sources.set("grpc.listen", address.to_string());
    }
    for (field, value) in [
        ("listen", up.chat.map(|address| address.to_string())),
        (
            "manifests",
            up.manifests
                .as_ref()
                .map(|folder| folder.to_string_lossy().into_owned()),
        ),
        ("model_url", up.model_url.clone()),
    ] {
        if let Some(value) = value {
            sources = sources.set(format!("orchestrator.{field}"), value);
        }
    }
    if let Some(level) = log_level(up, &world::load_config(&sources)?) {
        sources = sources.set("telemetry.level", level);
    }
    let mut host = world::all_services_host(sources).install_subscriber();
    if !up.only.is_empty() {
        host = host.only(up.only.iter().cloned());
    }
    let names = if up.only.is_empty() {
        host.names().join(", ")
    } else {
        up.only.join(", ")
    };
    let announce = |running: &RunningHost| {
        let bus = running.config().section::<BusSection>("bus");
        let embedded = bus.is_ok_and(|bus| bus.mode == BusMode::Embedded);
        let chat = running.context().doors.find("chat");
        announce_addresses(global, &names, running.addresses(), chat, embedded);
    };
    match dray_service::serve_with(host, announce).await {
        Ok(ExitStatus::Success) => Ok(()),
        Ok(_) => Err(CommandFailure::Reported),
        Err(error) => Err(world::start_failure(&error)),
    }
}

/// The log level that the command line asks for. A person at a terminal sees addresses and warnings; a service
/// that is run by itself logs as configured.
fn log_level(up: &UpArgs, loaded: &LoadedConfig) -> Option<&'static str> {
    match up.verbose {
        0 if up.only.is_empty() && loaded.is_default("telemetry.level") => Some("warn"),
        0 => None,
        1 => Some("info"),
        _ => Some("debug"),
    }
}

fn announce_addresses(
    global: &GlobalOptions,
    names: &str,
    addresses: BoundAddresses,
    chat: Option<SocketAddr>,
    embedded: bool,
) {
    let shown = |address: Option<SocketAddr>| address.map(|address| address.to_string());
    if global.json {
        let line = json!({
            "services": names.split(", ").collect::<Vec<_>>(),
            "http": shown(addresses.http),
            "grpc": shown(addresses.grpc),
            "chat": shown(chat),
        });
        print_line(&line.to_string());
        return;
    }
    print_note(&format!("running: {names}"));
    if embedded {
        print_note(
            "the bus is inside this process: work and events end with it; name a server with --nats to keep them",
        );
    }
    if let Some(http) = shown(addresses.http) {
        print_note(&format!(
            "health and metrics: http://{http}/ready http://{http}/metrics"
        ));
    }
    if let Some(chat) = shown(chat) {
        print_note(&format!(
            "chat completions: http://{chat}/v1/chat/completions (talk to it: dray chat --url http://{chat})"
        ));
    }
    if let Some(grpc) = shown(addresses.grpc) {
        print_note(&format!("gRPC: {grpc} (health and reflection included)"));
    }
}
