//! One configured server: its transport, whether it is trusted, and the checks of its responses (D-10).

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use dray_guard::DnssecStatus;
use hickory_resolver::proto::op::{DnsResponse, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::opt::EdnsOption;
use hickory_resolver::proto::rr::{DNSClass, Name, RecordType};

use super::encrypted::EncryptedServer;
use super::health::{HealthChange, ServerHealth};
use super::question::exchange_plain;
use super::{DnsError, NameServer};

/// Code of the EDNS option with an extended error (RFC 8914, section 2).
const EXTENDED_ERROR: u16 = 15;
/// Extended errors of a validation that failed: from "DNSSEC Bogus" to "NSEC Missing" (RFC 8914, sections 4.7 to 4.13).
const BOGUS_CODES: RangeInclusive<u16> = 6..=12;

/// One configured server.
#[derive(Debug)]
pub(super) struct ServerHandle {
    transport: ServerTransport,
    /// Whether the AD bit of its responses counts ([`NameServer::is_trusted`]).
    pub(super) is_trusted: bool,
    /// Name of the server in the log.
    shown: String,
    /// Its address in metrics. The path of DNS over HTTPS may hold the key of an account.
    pub(super) label: String,
    pub(super) health: ServerHealth,
}

#[derive(Debug)]
enum ServerTransport {
    Plain(SocketAddr),
    Encrypted(Box<EncryptedServer>),
}

/// A valid response, and whether DNSSEC authenticates it according to its server.
pub(super) struct AnsweredQuery {
    pub(super) response: DnsResponse,
    pub(super) dnssec: DnssecStatus,
}

/// The reason why a server gave no answer.
pub(super) enum QueryFailure {
    /// The server failed; another one may answer.
    OfServer(DnsError),
    /// The server says that the answer does not pass DNSSEC validation, which no peer on the path can forge.
    Bogus,
}

impl From<DnsError> for QueryFailure {
    fn from(error: DnsError) -> Self {
        Self::OfServer(error)
    }
}

/// Whether a server says that validation failed, and not the server itself (RFC 8914).
fn is_bogus(response: &DnsResponse) -> bool {
    let options = response
        .edns
        .iter()
        .flat_map(|edns| &edns.options().options);
    options
        .filter_map(|(_, option)| match option {
            EdnsOption::Unknown(EXTENDED_ERROR, data) => data.first_chunk::<2>(),
            _ => None,
        })
        .any(|code| BOGUS_CODES.contains(&u16::from_be_bytes(*code)))
}

impl ServerHandle {
    /// A plain server of a test, which is on loopback.
    #[cfg(test)]
    pub(super) fn plain(address: SocketAddr, is_trusted: bool) -> Self {
        Self {
            transport: ServerTransport::Plain(address),
            is_trusted,
            shown: address.to_string(),
            label: address.to_string(),
            health: ServerHealth::default(),
        }
    }

    pub(super) fn new(server: &NameServer, bundle: Option<&str>) -> Result<Self, DnsError> {
        let encrypted = EncryptedServer::new(server, bundle)
            .map_err(|error| DnsError::Failure(format!("{server}: {error}")))?;
        let transport = match encrypted {
            Some(encrypted) => ServerTransport::Encrypted(Box::new(encrypted)),
            None => ServerTransport::Plain(server.address()),
        };
        Ok(Self {
            transport,
            is_trusted: server.is_trusted(),
            shown: server.to_string(),
            label: server.address().to_string(),
            health: ServerHealth::default(),
        })
    }

    /// Logs that the server became silent, or responds again.
    pub(super) fn log_change(&self, change: Option<HealthChange>) {
        let server = &self.shown;
        match change {
            Some(HealthChange::BecameSilent) => {
                tracing::warn!(
                    server,
                    "a DNS server does not respond: others are asked first"
                );
            }
            Some(HealthChange::Recovered) => {
                tracing::info!(server, "a DNS server responds again");
            }
            None => {}
        }
    }
}

/// Asks one server one question. An answer counts only when it is complete, of class IN, and for this question.
pub(super) async fn ask_one(
    server: &ServerHandle,
    name: &Name,
    kind: RecordType,
) -> Result<AnsweredQuery, QueryFailure> {
    let query = Query::query(name.clone(), kind);
    let response = match &server.transport {
        ServerTransport::Plain(address) => exchange_plain(*address, query.clone()).await?,
        ServerTransport::Encrypted(server) => server.exchange(query.clone()).await?,
    };
    let dnssec = match (server.is_trusted, response.authentic_data) {
        (false, _) => DnssecStatus::NotKnown,
        (true, false) => DnssecStatus::NotAuthenticated,
        (true, true) => DnssecStatus::Authenticated,
    };
    let failed = |description: &str| {
        let error = DnsError::Failure(description.to_owned());
        Err(QueryFailure::OfServer(error))
    };
    // D-10. The UDP client drops such answers itself; over other transports nothing else compares the question.
    if response.queries.as_slice() != [query] {
        return failed("a response to another query");
    }
    if response.truncation {
        return failed("a truncated response over a stream");
    }
    let mut records = response.answers.iter();
    if records.any(|record| record.dns_class != DNSClass::IN) {
        return failed("a record of another class");
    }
    let has_address = response
        .answers
        .iter()
        .any(|record| record.data.ip_addr().is_some());
    match response.response_code {
        ResponseCode::NXDomain if has_address => failed("NXDOMAIN with an address"),
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(AnsweredQuery { response, dnssec }),
        ResponseCode::ServFail if server.is_trusted && is_bogus(&response) => {
            Err(QueryFailure::Bogus)
        }
        code => failed(&code.to_string()),
    }
}
