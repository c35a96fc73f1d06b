//! Tickets: single-use URLs through which one file is uploaded or downloaded, bypassing the model.
//!
//! A ticket is bound to a tenant and a session (the [`Principal`]), to a direction, to a size limit, a media type and a
//! digest if known, and to an expiry. Its URL has 256 random bits; the records contain only their SHA-256, so that a
//! reader of the records cannot use a ticket.
//!
//! - [`TicketService`] makes, revokes and sweeps tickets, and checks the limits of each principal.
//! - [`TicketEndpoint`] serves them over HTTP: plain `PUT` and `POST`, tus 1.0, the resumable uploads of the IETF, and
//!   downloads with ranges.
//! - [`TicketServer`] makes, lists, shows and revokes them over the bus and gRPC.
//! - [`TicketRecords`] stores the state: in a bucket of the bus, or in a directory of this machine.
//!
//! Bytes of an upload are staged in segments, which survive the end of this process. The artifact exists only after
//! size, digest and type were checked. A ticket may have a sandbox or a chat as its destination
//! ([`TicketDestination`]): then the request that completes the upload also transfers the artifact there and returns
//! the receipt.
//!
//! What it does not do: it authorizes the makers of tickets only by the key of the endpoint, and it does not implement
//! TLS; a proxy in front of it does.
//!
//! ```no_run
//! # async fn example(store: dray_store::Store) -> Result<(), Box<dyn std::error::Error>> {
//! use dray_ticket::{Principal, TicketEndpoint, TicketLimits, TicketRecords, TicketRequest, TicketService};
//! use dray_types::Clock;
//!
//! let records = TicketRecords::directory("/var/lib/drayage/tickets".as_ref())?;
//! let service = TicketService::new(records, store, Clock::system(), TicketLimits::default());
//! let endpoint = TicketEndpoint::bind("127.0.0.1:7340".parse()?, None).await?;
//! let request = TicketRequest::upload(10 << 20);
//! let ticket = service.issue(&Principal::default(), request).await?;
//! println!("{}", ticket.url(endpoint.base_url()));
//! # Ok(())
//! # }
//! ```

mod accounting;
mod active;
mod api;
mod audit;
mod checksum;
mod destination;
mod direct;
mod download;
mod endpoint;
mod fields;
mod finish;
mod form;
mod issue;
mod listing;
mod lookup;
mod manage;
mod page;
mod principal;
mod problem;
mod protocol;
mod receive;
mod record;
mod records;
mod response;
mod sandbox_source;
mod server;
mod service;
mod sweep;
mod upload;
mod usage;
mod web_files;

#[cfg(test)]
mod tests;

pub use api::{TicketOrder, TicketReceipt, key_text};
pub use destination::{TicketDestination, declare_rights};
pub use endpoint::{EndpointError, TicketEndpoint, is_base_url};
pub use issue::{IssuedTicket, TicketRequest};
pub use manage::{TicketListDocument, TicketStatus};
pub use principal::Principal;
pub use problem::{DestinationFailure, TicketProblem};
pub use record::{StoredContent, TicketDirection};
pub use records::TICKET_BUCKET;
pub use records::{RecordError, TicketRecords};
pub use server::{TicketConfig, TicketServer};
pub use service::{TicketLimits, TicketService};
pub use web_files::{WebFileOutcome, WebFilePolicy};
