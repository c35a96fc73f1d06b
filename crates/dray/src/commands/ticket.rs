//! `dray ticket`, and the endpoint of `dray up --tickets`.

use std::net::SocketAddr;

use dray_http::{HttpClient, HttpTimeouts};
use dray_service::host::ErrorChain;
use dray_service::settings::{BusMode, BusSection, StateSection};
use dray_service::{RunningHost, ServiceContext};
use dray_ticket::{
    TicketDirection, TicketEndpoint, TicketLimits, TicketOrder, TicketReceipt, TicketRecords,
    TicketService,
};
use dray_types::{Fault, FaultCode, Secret};
use serde::Deserialize;

use crate::cli::{GlobalOptions, TicketCommand, TicketOptions};
use crate::outcome::{CommandFailure, print_line, print_note};
use crate::world::SystemConnection;

/// Purpose of the key that the endpoint and this command derive from the credentials of the store.
const KEY_PURPOSE: &str = "make tickets";
/// Bucket of the bus with the records of tickets.
const TICKET_BUCKET: &str = "dray_tickets";
/// Directory of the records in the state directory, where the bus is inside the process.
const TICKET_DIRECTORY: &str = "tickets";

/// The parts of a problem document that a person reads.
#[derive(Debug, Deserialize)]
struct ProblemDocument {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    advice: String,
}

/// Asks the running endpoint for a ticket and prints it.
pub(crate) async fn run(
    global: &GlobalOptions,
    ticket: &TicketCommand,
) -> Result<(), CommandFailure> {
    let options = match ticket {
        TicketCommand::Upload(upload) => &upload.options,
        TicketCommand::Download(download) => &download.options,
    };
    let order = ticket_order(global, ticket);
    let world = SystemConnection::open_store(global).await?;
    let key = world.store().map(|store| store.derive_key(KEY_PURPOSE));
    world.close().await;
    let receipt = order_ticket(options, &order, &dray_ticket::key_text(&key?)).await?;
    if global.json {
        let line = serde_json::to_string(&receipt).unwrap_or_default();
        print_line(&line);
    } else {
        print_line(&receipt.url);
        print_line(&receipt.curl);
        print_note("Everybody who has this URL can use it, once.");
    }
    Ok(())
}

fn ticket_order(global: &GlobalOptions, ticket: &TicketCommand) -> TicketOrder {
    let order = |direction, options: &TicketOptions, name: &str| TicketOrder {
        direction,
        tenant: global.tenant.clone(),
        session: options.session.as_str().to_owned(),
        max_bytes: None,
        size: None,
        media_type: None,
        sha256: None,
        name: name.to_owned(),
        lifetime_s: Some(options.expires),
    };
    match ticket {
        TicketCommand::Upload(upload) => TicketOrder {
            max_bytes: Some(upload.max_size.as_u64().max(upload.size.unwrap_or(0))),
            size: upload.size,
            media_type: upload.media_type.clone(),
            sha256: upload.sha256.map(|sha256| sha256.to_hex()),
            ..order(TicketDirection::Upload, &upload.options, &upload.name)
        },
        TicketCommand::Download(download) => TicketOrder {
            media_type: Some(download.media_type.clone()),
            sha256: Some(download.sha256.to_hex()),
            ..order(TicketDirection::Download, &download.options, &download.name)
        },
    }
}

async fn order_ticket(
    options: &TicketOptions,
    order: &TicketOrder,
    key: &str,
) -> Result<TicketReceipt, CommandFailure> {
    let unreachable = |error: dray_http::HttpError| {
        CommandFailure::Unreachable {
        what: format!("no tickets from {}: {}", options.endpoint, ErrorChain(&error)),
        advice: "Start the endpoint with `dray up --tickets ADDRESS`, or name another one with --endpoint."
            .to_owned(),
    }
    };
    let client = HttpClient::new(HttpTimeouts::default(), None).map_err(unreachable)?;
    let url = format!("{}/tickets", options.endpoint.trim_end_matches('/'));
    let request = client.post(&url).authorization("Bearer", &Secret::new(key));
    let sent = request.json(order).send(&|_| {}).await;
    let response = sent.map_err(unreachable)?;
    if response.is_success() {
        return response.json().await.map_err(unreachable);
    }
    let status = response.status();
    let problem: ProblemDocument = response.json().await.map_err(unreachable)?;
    let code = match status {
        401 => FaultCode::Denied,
        413 => FaultCode::TooLarge,
        429 => FaultCode::RateLimited,
        410 => FaultCode::NotFound,
        500.. => FaultCode::Unavailable,
        _ => FaultCode::InvalidArgument,
    };
    let name = problem.kind.rsplit([':', '#']).next().unwrap_or_default();
    let fault = Fault::new(code, format!("No ticket was made: {}.", problem.detail))
        .detail(name.replace('-', "_"))
        .advice(problem.advice);
    Err(fault.into())
}

/// Binds the endpoint of `dray up --tickets`.
pub(crate) async fn bind_endpoint(
    address: SocketAddr,
    public_url: Option<String>,
) -> Result<TicketEndpoint, CommandFailure> {
    let bound = TicketEndpoint::bind(address, public_url).await;
    bound.map_err(|error| CommandFailure::Unreachable {
        what: format!("{}", ErrorChain(&error)),
        advice: "End the program that uses the address, or name another one: --tickets ADDRESS."
            .to_owned(),
    })
}

/// Serves tickets for as long as the host runs.
pub(crate) fn serve_endpoint(endpoint: TicketEndpoint, running: &RunningHost) {
    let context = running.context();
    let records = match ticket_records(running, context) {
        Ok(records) => records,
        Err(error) => {
            print_note(&format!("tickets are not served: {error}"));
            return;
        }
    };
    let key = context.store.derive_key(KEY_PURPOSE);
    let service = TicketService::new(
        records,
        context.store.clone(),
        context.clock.clone(),
        TicketLimits::default(),
    );
    let serving = endpoint.serve(service, Some(key), context.stop.clone());
    context.tasks.spawn(async move {
        if let Err(error) = serving.await {
            print_note(&format!(
                "tickets are no longer served: {}",
                ErrorChain(&error)
            ));
        }
    });
}

/// The bucket that all replicas share; a directory where the bus ends with this process.
fn ticket_records(
    running: &RunningHost,
    context: &ServiceContext,
) -> Result<TicketRecords, std::io::Error> {
    let config = running.config();
    let bus = config.section::<BusSection>("bus");
    if bus.is_ok_and(|bus| bus.mode == BusMode::Nats) {
        return Ok(TicketRecords::key_value(
            context.bus.key_value(TICKET_BUCKET),
        ));
    }
    let state = config.section::<StateSection>("state");
    let state = state.map_err(std::io::Error::other)?;
    TicketRecords::directory(&state.folder.join(TICKET_DIRECTORY))
}
