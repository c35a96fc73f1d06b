//! `upload_ticket` and `download_ticket`: URLs through which one file is uploaded or downloaded, bypassing the model.

use std::time::Duration;

use dray_ticket::{
    IssuedTicket, Principal, StoredContent, TicketDestination, TicketReceipt, TicketRequest,
};
use dray_types::{Fault, FaultCode, Sha256Digest};
use rmcp::model::CallToolResult;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ToolCall, not_permitted, structured_result};
use crate::content::ContentAccess;
use crate::failure;
use crate::location::Location;
use crate::options::TicketAccess;
use crate::progress::ProgressReporter;

/// Most bytes of an upload unless the caller sets a limit.
pub(crate) const DEFAULT_UPLOAD_BYTES: u64 = 100 << 20;

/// The arguments of the tool `upload_ticket`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UploadTicketArguments {
    #[serde(default)]
    pub(crate) to: Option<String>,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) max_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) media_type: Option<String>,
    #[serde(default)]
    pub(crate) sha256: Option<String>,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) expires_seconds: Option<u64>,
}

/// The arguments of the tool `download_ticket`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DownloadTicketArguments {
    pub(crate) from: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) expires_seconds: Option<u64>,
}

impl ToolCall<'_> {
    pub(super) async fn upload_ticket(
        &mut self,
        upload: UploadTicketArguments,
    ) -> Result<CallToolResult, Fault> {
        let tickets = self.tickets()?;
        let destination = self.destination(upload.to.as_deref(), upload.message)?;
        let sha256 = upload.sha256.map(|text| text.parse::<Sha256Digest>());
        let sha256 = sha256.transpose().map_err(|_| {
            failure::invalid("`sha256` is not a digest.", "Give 64 hexadecimal digits.")
                .detail("arguments_invalid")
        })?;
        let request = TicketRequest::upload(upload.max_bytes.unwrap_or(DEFAULT_UPLOAD_BYTES))
            .media_type(upload.media_type)
            .sha256(sha256)
            .name(upload.name)
            .destination(destination);
        let request = with_lifetime(request, upload.expires_seconds);
        let ticket = tickets
            .service
            .issue(&principal(self.access), request)
            .await?;
        Ok(ticket_result(&ticket, &tickets, json!({})))
    }

    pub(super) async fn download_ticket(
        &mut self,
        download: DownloadTicketArguments,
    ) -> Result<CallToolResult, Fault> {
        let tickets = self.tickets()?;
        let location = self.access.parse(&download.from)?;
        let named = |request: TicketRequest| {
            let request = with_lifetime(request, download.expires_seconds);
            match download.name.as_str() {
                "" => request,
                name => request.name(name),
            }
        };
        let progress = &mut self.progress;
        let ticket = issue_download(self.access, &tickets, &location, progress, named).await?;
        let content = ticket.content.as_ref();
        let details = json!({
            "size": ticket.max_bytes,
            "sha256": content.map(|content| content.sha256.as_str()),
        });
        Ok(ticket_result(&ticket, &tickets, details))
    }

    /// The tickets of this server.
    fn tickets(&self) -> Result<TicketAccess, Fault> {
        self.access.tickets.clone().ok_or_else(|| {
            Fault::new(FaultCode::Denied, "This server has no ticket endpoint.")
                .detail("no_tickets")
                .advice("Ask the user to start one with `dray mcp --tickets ADDR`.")
        })
    }

    /// Where an upload ends. A ticket has no effect that the tools of this server do not have.
    fn destination(
        &self,
        to: Option<&str>,
        message: String,
    ) -> Result<Option<TicketDestination>, Fault> {
        let destination = match to {
            None | Some("") => None,
            Some("chat") if !self.options.permissions.send => {
                return Err(not_permitted("Sending to the chat", "--allow-send"));
            }
            // The file is uploaded later by anyone with the URL, so the user could not confirm its content.
            Some("chat") if self.options.confirm_send => {
                return Err(Fault::new(
                    FaultCode::Denied,
                    "A person confirms each file that is sent, so no ticket may end in the chat.",
                )
                .detail("confirmation_required")
                .advice("Make a ticket without `to`, and send the upload with `send_file`."));
            }
            Some("chat") => Some(TicketDestination::Chat { message }),
            Some(to) => match self.access.parse(to)? {
                Location::Sandbox(_) if !self.options.permissions.write => {
                    return Err(not_permitted("Writing into the sandbox", "--allow-write"));
                }
                Location::Sandbox(path) => Some(TicketDestination::Sandbox {
                    // `sandbox:` alone is the place where `put` copies to.
                    directory: if to == "sandbox:" {
                        String::new()
                    } else {
                        path
                    },
                }),
                _ => {
                    return Err(failure::invalid(
                        "`to` is neither a directory of the sandbox nor the chat.",
                        "Give `sandbox:`, `sandbox:DIRECTORY` or `chat`, or leave it out.",
                    )
                    .detail("destination_invalid"));
                }
            },
        };
        Ok(destination)
    }
}

/// The principal of tickets, from the server or the token of the caller.
pub(crate) fn principal(access: &ContentAccess) -> Principal {
    Principal {
        tenant: access.client.tenant.clone(),
        session: access.client.session.clone(),
    }
}

/// Creates a ticket for the download of a location's content. `configure` sets its name and its lifetime.
pub(crate) async fn issue_download(
    access: &ContentAccess,
    tickets: &TicketAccess,
    location: &Location,
    progress: &mut ProgressReporter,
    configure: impl FnOnce(TicketRequest) -> TicketRequest,
) -> Result<IssuedTicket, Fault> {
    let principal = principal(access);
    if let Location::Sandbox(path) = location {
        progress.step("copying from the sandbox").await;
        let issued = tickets
            .service
            .issue_sandbox_download(&principal, path, configure);
        return Ok(issued.await?);
    }
    let stored = access.store(location, progress).await?;
    let artifact = &stored.claim.artifact;
    let content = StoredContent {
        sha256: artifact.sha256.to_hex(),
        size: artifact.size,
        media_type: stored.media_type.clone(),
        name: artifact.name.clone(),
    };
    let request = configure(TicketRequest::download(content).name(artifact.name.as_str()));
    Ok(tickets.service.issue(&principal, request).await?)
}

fn with_lifetime(request: TicketRequest, seconds: Option<u64>) -> TicketRequest {
    match seconds {
        Some(seconds) => request.lifetime(Duration::from_secs(seconds)),
        None => request,
    }
}

fn ticket_result(ticket: &IssuedTicket, tickets: &TicketAccess, details: Value) -> CallToolResult {
    let receipt = TicketReceipt::new(ticket, &tickets.base_url);
    let value = json!({
        "url": receipt.url,
        "curl": receipt.curl,
        "expires_at_ms": receipt.expires_at_ms,
        "max_bytes": receipt.max_bytes,
        "name": receipt.name,
    });
    structured_result(super::extended(value, details))
}
