//! `dray ticket upload` and `dray ticket download`: ask a running endpoint for a ticket.

use dray_http::{HttpClient, HttpTimeouts};
use dray_service::host::ErrorChain;
use dray_ticket::{TicketDirection, TicketOrder, TicketReceipt};
use dray_types::{Fault, FaultCode, Secret};
use serde::Deserialize;

use crate::cli::{
    GlobalOptions, TicketCommand, TicketDownload, TicketOptions, TicketSource, TicketUpload,
};
use crate::commands::ticket_serve::{self, KEY_PURPOSE};
use crate::outcome::{CommandFailure, print_line, print_note};
use crate::world::SystemConnection;

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
    let (options, order) = match ticket {
        TicketCommand::Upload(upload) => (&upload.options, upload_order(global, upload)),
        TicketCommand::Download(download) => (&download.options, download_order(global, download)),
        TicketCommand::Serve(serve) => return ticket_serve::run(global, serve).await,
    };
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

fn upload_order(global: &GlobalOptions, upload: &TicketUpload) -> TicketOrder {
    TicketOrder {
        max_bytes: Some(upload.max_size.as_u64().max(upload.size.unwrap_or(0))),
        size: upload.size,
        media_type: upload.media_type.clone(),
        sha256: upload.sha256.map(dray_types::Sha256Digest::to_hex),
        destination: upload.to.clone(),
        ..plain_order(
            global,
            TicketDirection::Upload,
            &upload.options,
            &upload.name,
        )
    }
}

fn download_order(global: &GlobalOptions, download: &TicketDownload) -> TicketOrder {
    let order = plain_order(
        global,
        TicketDirection::Download,
        &download.options,
        &download.name,
    );
    match &download.source {
        TicketSource::Content(sha256) => TicketOrder {
            media_type: Some(download.media_type.clone()),
            sha256: Some(sha256.to_hex()),
            ..order
        },
        TicketSource::SandboxFile(path) => TicketOrder {
            sandbox_path: Some(path.clone()),
            ..order
        },
    }
}

fn plain_order(
    global: &GlobalOptions,
    direction: TicketDirection,
    options: &TicketOptions,
    name: &str,
) -> TicketOrder {
    TicketOrder {
        direction,
        tenant: global.tenant.clone(),
        session: options.session.as_str().to_owned(),
        max_bytes: None,
        size: None,
        media_type: None,
        sha256: None,
        name: name.to_owned(),
        destination: None,
        sandbox_path: None,
        lifetime_s: Some(options.expires),
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
