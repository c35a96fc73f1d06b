//! `dray ticket`: requests a ticket from a running endpoint, lists tickets, shows and revokes one.

use dray_http::{HttpClient, HttpTimeouts, RequestBuilder, Url};
use dray_jwt::check_secure_url;
use dray_presentation::name;
use dray_presentation::size::human_size;
use dray_service::host::ErrorChain;
use dray_ticket::{TicketDirection, TicketListDocument, TicketOrder, TicketReceipt, TicketStatus};
use dray_types::{Fault, FaultCode, Secret};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cli::{
    GlobalOptions, TicketCommand, TicketDownload, TicketEndpointOptions, TicketList, TicketName,
    TicketOptions, TicketSource, TicketUpload,
};
use crate::commands::shown;
use crate::commands::ticket_serve::{self, KEY_PURPOSE};
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line, print_note};

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

/// Creates, lists, shows, revokes or serves tickets.
pub(crate) async fn run(
    global: &GlobalOptions,
    ticket: &TicketCommand,
) -> Result<(), CommandFailure> {
    match ticket {
        TicketCommand::Upload(upload) => {
            order_ticket(global, &upload.options, &upload_order(global, upload)).await
        }
        TicketCommand::Download(download) => {
            order_ticket(global, &download.options, &download_order(global, download)).await
        }
        TicketCommand::List(list) => list_tickets(global, list).await,
        TicketCommand::Show(named) => {
            let client = EndpointClient::open(global, &named.endpoint).await?;
            let request = client.http.get(&client.ticket_url(global, named)?);
            let ticket: TicketStatus = client.send(request, "No ticket is shown").await?;
            print_ticket(global, &ticket);
            Ok(())
        }
        TicketCommand::Revoke(named) => {
            let client = EndpointClient::open(global, &named.endpoint).await?;
            let request = client.http.delete(&client.ticket_url(global, named)?);
            let ticket: TicketStatus = client.send(request, "No ticket was revoked").await?;
            print_ticket(global, &ticket);
            Ok(())
        }
        TicketCommand::Serve(serve) => ticket_serve::run(global, serve).await,
    }
}

async fn order_ticket(
    global: &GlobalOptions,
    options: &TicketOptions,
    order: &TicketOrder,
) -> Result<(), CommandFailure> {
    let client = EndpointClient::open(global, &options.endpoint).await?;
    let request = client.http.post(&format!("{}/tickets", client.base));
    let receipt: TicketReceipt = client
        .send(request.json(order), "No ticket was created")
        .await?;
    if global.json {
        let line = serde_json::to_string(&receipt).unwrap_or_default();
        print_line(&line);
    } else {
        print_line(&receipt.url);
        print_line(&receipt.curl);
        print_note(&format!(
            "Everybody who has this URL can use it, once. `dray ticket revoke {}` ends it.",
            receipt.id
        ));
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
        tenant: global.tenant_name().to_owned(),
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

async fn list_tickets(global: &GlobalOptions, list: &TicketList) -> Result<(), CommandFailure> {
    let client = EndpointClient::open(global, &list.endpoint).await?;
    let mut url = client.url("/tickets")?;
    url.query_pairs_mut()
        .append_pair("tenant", global.tenant_name())
        .append_pair("session", list.session.as_str())
        .append_pair("limit", &list.limit.to_string());
    let request = client.http.get(url.as_str());
    let listed: TicketListDocument = client.send(request, "No tickets are listed").await?;
    for ticket in &listed.tickets {
        print_ticket(global, ticket);
    }
    if listed.truncated {
        print_note("There are more; raise --limit to see them.");
    }
    if listed.tickets.is_empty() && !global.json {
        let session = list.session.as_str();
        print_note(&format!(
            "Session `{session}` has no open ticket, and none that moved bytes within a day."
        ));
    }
    Ok(())
}

/// Prints one line of JSON for scripts; for people, a line with the id and the state, then a line with the details.
fn print_ticket(global: &GlobalOptions, ticket: &TicketStatus) {
    if global.json {
        print_line(&serde_json::to_string(ticket).unwrap_or_default());
    } else {
        for line in ticket_lines(ticket) {
            print_line(&line);
        }
    }
}

fn ticket_lines(ticket: &TicketStatus) -> [String; 2] {
    let (direction, limit) = match ticket.direction {
        TicketDirection::Upload => ("upload", "at most "),
        TicketDirection::Download => ("download", ""),
    };
    let mut line = format!(
        "  {direction}  {} of {limit}{}  ends {}",
        human_size(ticket.moved_bytes),
        human_size(ticket.max_bytes),
        shown::rfc3339_time(ticket.expires_at_ms),
    );
    for text in [&ticket.media_type, &ticket.name] {
        if !text.is_empty() {
            line.push_str("  ");
            line.push_str(&name::shown_text(text, 40));
        }
    }
    [format!("{}  {}", ticket.id, ticket.state), line]
}

/// A running endpoint, and the key that lets this user create and revoke its tickets.
struct EndpointClient {
    http: HttpClient,
    /// Base URL without a slash at its end.
    base: String,
    key: Secret,
}

impl EndpointClient {
    async fn open(
        global: &GlobalOptions,
        endpoint: &TicketEndpointOptions,
    ) -> Result<Self, CommandFailure> {
        // The key of the endpoint is sent with each request, and lets its holder act for every tenant.
        check_secure_url(&endpoint.url).map_err(|error| {
            CommandFailure::Usage(format!(
                "--endpoint {error}; the key of the endpoint does not leave this machine without TLS"
            ))
        })?;
        let system = SystemConnection::open_keys(global).await?;
        let keys = system.store().map(|store| store.derive_keys(KEY_PURPOSE));
        system.close().await;
        let base = endpoint.url.trim_end_matches('/').to_owned();
        let http = HttpClient::new(HttpTimeouts::default(), None);
        Ok(Self {
            http: http.map_err(|error| unreachable_failure(&base, &error))?,
            base,
            key: Secret::new(dray_ticket::key_text(keys?.current())),
        })
    }

    fn url(&self, path: &str) -> Result<Url, CommandFailure> {
        let url = Url::parse(&format!("{}{path}", self.base));
        url.map_err(|error| CommandFailure::Usage(format!("--endpoint is not a URL: {error}")))
    }

    fn ticket_url(
        &self,
        global: &GlobalOptions,
        named: &TicketName,
    ) -> Result<String, CommandFailure> {
        let mut url = self.url(&format!("/tickets/{}", named.id.to_hex()))?;
        url.query_pairs_mut()
            .append_pair("tenant", global.tenant_name());
        Ok(url.into())
    }

    /// Sends a request with the key. `failure` begins the message when the endpoint refuses.
    async fn send<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        failure: &str,
    ) -> Result<T, CommandFailure> {
        let unreachable = |error: dray_http::HttpError| unreachable_failure(&self.base, &error);
        let request = request.authorization("Bearer", &self.key);
        let response = request.send(&|_| {}).await.map_err(unreachable)?;
        if response.is_success() {
            return response.json().await.map_err(unreachable);
        }
        let status = response.status();
        let problem: ProblemDocument = response.json().await.map_err(unreachable)?;
        let code = match status {
            401 => FaultCode::Denied,
            413 => FaultCode::TooLarge,
            429 => FaultCode::RateLimited,
            404 | 410 => FaultCode::NotFound,
            500.. => FaultCode::Unavailable,
            _ => FaultCode::InvalidArgument,
        };
        let name = problem.kind.rsplit([':', '#']).next().unwrap_or_default();
        let fault = Fault::new(code, format!("{failure}: {}.", problem.detail))
            .detail(name.replace('-', "_"))
            .advice(problem.advice);
        Err(fault.into())
    }
}

fn unreachable_failure(endpoint: &str, error: &dray_http::HttpError) -> CommandFailure {
    CommandFailure::Unreachable {
        description: format!("{endpoint} does not respond: {}", ErrorChain(error)),
        advice:
            "Start the endpoint with `dray up --tickets ADDRESS`, or name another one with --endpoint."
                .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, DrayCommand};

    #[tokio::test]
    async fn the_key_is_not_sent_to_another_machine_in_clear_text() {
        for endpoint in ["http://192.0.2.1:7340", "http://files.example", "files"] {
            let typed = ["dray", "ticket", "list", "--endpoint", endpoint];
            let cli = Cli::try_parse_from(typed).unwrap();
            let DrayCommand::Ticket(ticket) = cli.command else {
                panic!("the command must be `ticket`");
            };
            let refused = run(&cli.global, &ticket).await;
            assert!(
                matches!(refused, Err(CommandFailure::Usage(_))),
                "{endpoint}: {refused:?}"
            );
        }
    }
}
