//! Tickets as calls, over the bus and over gRPC (`proto/dray/v1/ticket.proto`): issue, list, inspect and revoke.

use std::path::PathBuf;
use std::sync::Arc;

use dray_bus::Permissions;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_service::config::{ConfigProblem, Section};
use dray_service::{Request, Router, Service, ServiceContext, ServicePlan, StartError};
use dray_store::StoreAccess;
use dray_types::{Fault, FaultCode, SessionId, Sha256Digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::destination::{self, TicketDestination};
use crate::endpoint::is_base_url;
use crate::record::TicketDirection;
use crate::{Principal, TicketLimits, TicketOrder, TicketRecords, TicketService, WebFilePolicy};

/// Tickets: URLs through which one file is uploaded or downloaded once.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TicketConfig {
    /// Base of ticket URLs: where the endpoint of tickets is reached, for example `https://files.example.org`. Default
    /// empty: no tickets are made over the bus and gRPC. `dray up --tickets` sets it.
    pub url: String,
    /// Directory with the records of tickets. Default empty: the bucket `dray_tickets` of the bus, which all replicas
    /// share. `dray up` without NATS sets a directory of the state directory, since its bus ends with the process.
    pub records: PathBuf,
    /// Which files from the web a download ticket hands out. Default: all.
    pub web_files: WebFilePolicy,
}

impl Section for TicketConfig {
    fn validate(&self) -> Vec<ConfigProblem> {
        let mut problems = self.web_files.problems();
        if !self.url.is_empty() && !is_base_url(&self.url) {
            problems.push(ConfigProblem::new(
                "url",
                "must be an http or https URL without user, query and fragment",
            ));
        }
        problems
    }
}

/// The service that handles the calls. The URLs of its tickets lead to a [`crate::TicketEndpoint`] over the same
/// records.
#[derive(Debug)]
pub struct TicketServer {
    tickets: TicketService,
    url: String,
}

impl Service for TicketServer {
    const NAME: &'static str = "tickets";
    type Config = TicketConfig;

    fn plan() -> ServicePlan {
        // The call is written out, so that it is compiled here.
        ServicePlan::of::<Self>()
    }

    async fn start(config: TicketConfig, cx: &ServiceContext) -> Result<Self, StartError> {
        let records = if config.records.as_os_str().is_empty() {
            TicketRecords::key_value(cx.bus.key_value(crate::TICKET_BUCKET))
        } else {
            TicketRecords::directory(&config.records).map_err(|error| {
                StartError::with_source("the directory of ticket records cannot be used", error)
            })?
        };
        let limits = TicketLimits::default();
        let tickets = TicketService::new(records, cx.store.clone(), cx.clock.clone(), limits);
        Ok(Self {
            tickets: tickets
                .with_bus(cx.bus.clone())
                .with_web_files(config.web_files),
            url: config.url,
        })
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        router
            .answer(Self::issue)
            .answer(Self::list)
            .answer(Self::inspect)
            .answer(Self::revoke)
    }

    fn permissions(permissions: Permissions) -> Permissions {
        let permissions = permissions.about(
            "Makes tickets and serves their URLs (also `dray ticket serve --nats`): the records of tickets, and the\n\
             sandboxes and chats where they begin and end.",
        );
        destination::declare_rights(permissions)
    }

    fn store_access() -> StoreAccess {
        StoreAccess::probe().reads().writes()
    }
}

impl TicketServer {
    /// Makes a ticket.
    ///
    /// # Errors
    ///
    /// No endpoint is configured, the request is not valid, a limit of the session is reached, or
    /// [`TicketService::order`] fails.
    pub async fn issue(
        self: Arc<Self>,
        request: Request<v1::IssueTicketRequest>,
    ) -> Result<v1::IssuedTicket, Fault> {
        if self.url.is_empty() {
            return Err(Fault::new(
                FaultCode::Unavailable,
                "This system has no ticket endpoint.",
            )
            .detail("no_tickets")
            .advice(
                "Ask the operator to start one with `dray up --tickets ADDRESS`, or to set `tickets.url`.",
            ));
        }
        let order = to_order(request.meta.tenant.as_str(), request.body)?;
        let issued = self.tickets.order(order).await?;
        let ticket = self.tickets.load(&issued.key).await?;
        Ok(v1::IssuedTicket {
            ticket: Some(self.tickets.describe(&ticket)),
            url: issued.url(&self.url),
            curl: issued.curl_line(&self.url),
            parts_url: issued.parts_url(&self.url).unwrap_or_default(),
        })
    }

    /// Lists the tickets of a session.
    ///
    /// # Errors
    ///
    /// The session is not valid, or the records are not available.
    pub async fn list(
        self: Arc<Self>,
        request: Request<v1::ListTicketsRequest>,
    ) -> Result<v1::ListTicketsReply, Fault> {
        let principal = Principal {
            tenant: request.meta.tenant,
            session: session_of(&request.body.session)?,
        };
        Ok(self.tickets.list(&principal, request.body.limit).await?)
    }

    /// Shows one ticket.
    ///
    /// # Errors
    ///
    /// The tenant has no such ticket, or the records are not available.
    pub async fn inspect(
        self: Arc<Self>,
        request: Request<v1::InspectTicketRequest>,
    ) -> Result<v1::Ticket, Fault> {
        let ticket = self
            .tickets
            .inspect(&request.meta.tenant, &request.body.ticket_id);
        Ok(ticket.await?)
    }

    /// Ends a ticket and removes the bytes received so far.
    ///
    /// # Errors
    ///
    /// The tenant has no such ticket, it was used or is over, or the records are not available.
    pub async fn revoke(
        self: Arc<Self>,
        request: Request<v1::RevokeTicketRequest>,
    ) -> Result<v1::Ticket, Fault> {
        let revoked = self
            .tickets
            .revoke_by_id(&request.meta.tenant, &request.body.ticket_id);
        Ok(revoked.await?)
    }
}

fn session_of(session: &str) -> Result<SessionId, Fault> {
    let session = SessionId::new(session);
    session.map_err(|error| InvalidMessage::field("session", error).into())
}

fn to_order(tenant: &str, request: v1::IssueTicketRequest) -> Result<TicketOrder, Fault> {
    let direction = match request.direction() {
        v1::TicketDirection::Upload => TicketDirection::Upload,
        v1::TicketDirection::Download => TicketDirection::Download,
        v1::TicketDirection::Unspecified => {
            return Err(InvalidMessage::Missing("direction").into());
        }
    };
    let sha256 = match request.sha256.as_slice() {
        [] => None,
        bytes => Some(
            Sha256Digest::try_from(bytes)
                .map_err(|error| Fault::from(InvalidMessage::field("sha256", error)))?,
        ),
    };
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let destination = match request.destination {
        None => None,
        Some(destination) => Some(TicketDestination::try_from(destination)?),
    };
    Ok(TicketOrder {
        direction,
        tenant: tenant.to_owned(),
        session: session_of(&request.session)?.as_str().to_owned(),
        max_bytes: Some(request.max_bytes).filter(|bytes| *bytes > 0),
        size: request.size,
        media_type: given(request.media_type),
        sha256: sha256.map(Sha256Digest::to_hex),
        name: request.name,
        destination,
        sandbox_path: given(request.sandbox_path),
        lifetime_s: Some(request.lifetime_s)
            .filter(|seconds| *seconds > 0)
            .map(u64::from),
    })
}

impl TryFrom<v1::TicketDestination> for TicketDestination {
    type Error = Fault;

    fn try_from(destination: v1::TicketDestination) -> Result<Self, Fault> {
        use v1::ticket_destination::Destination;
        match destination.destination {
            Some(Destination::SandboxDirectory(directory)) => Ok(Self::Sandbox { directory }),
            Some(Destination::ChatMessage(message)) => Ok(Self::Chat { message }),
            None => Err(InvalidMessage::Missing("destination").into()),
        }
    }
}

impl From<TicketDestination> for v1::TicketDestination {
    fn from(destination: TicketDestination) -> Self {
        use v1::ticket_destination::Destination;
        let destination = match destination {
            TicketDestination::Sandbox { directory } => Destination::SandboxDirectory(directory),
            TicketDestination::Chat { message } => Destination::ChatMessage(message),
        };
        Self {
            destination: Some(destination),
        }
    }
}
