//! The terms of a fetch: its request, its limits, its network, and its results.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use dray_guard::robots::{RobotsMode, product_token};
use dray_guard::{AppPolicy, Caller, Code, RequestKind};
use dray_types::Fault;
use http::HeaderValue;

use crate::dial::Dialer;
use crate::error::FetchPhase;
use crate::label::ResponseLabels;
use crate::resolve::Resolver;
use crate::sink::StoredFile;

/// Access to DNS and TCP. Tests and the demo inject their own; no setting replaces it (I-9).
#[derive(Clone)]
pub struct NetworkAccess {
    /// Resolves host names; literal addresses never reach it.
    pub resolver: Arc<dyn Resolver>,
    /// Connects to pinned addresses alone.
    pub dialer: Arc<dyn Dialer>,
}

impl std::fmt::Debug for NetworkAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetworkAccess").finish_non_exhaustive()
    }
}

/// Limits of time and size of a fetch (egress-security 13 and 14).
#[derive(Clone, Debug)]
pub struct FetchLimits {
    /// Time for resolving, per hop.
    pub dns: Duration,
    /// Time for connecting, all addresses together, per hop.
    pub connect: Duration,
    /// Time for the TLS handshake, per hop.
    pub tls: Duration,
    /// Time from the request to the final head, per hop.
    pub head: Duration,
    /// Time for the whole fetch, an upper bound for requests.
    pub total: Duration,
    /// Longest silence between two chunks of the body (B-8).
    pub idle: Duration,
    /// Least bytes per second of the body on average; 0 for none.
    pub floor: u64,
    /// Time before the average counts.
    pub grace: Duration,
    /// Most bytes of a file, when the request does not say.
    pub size: u64,
    /// Most bytes of a file, an upper bound for requests (C-2).
    pub size_ceiling: u64,
    /// Value of `User-Agent` in every request.
    pub user_agent: HeaderValue,
    /// How the robots.txt of hosts is treated where the rules of the policy files do not say.
    pub robots: RobotsMode,
}

impl FetchLimits {
    /// C-2: the request may only lower the ceiling; 0 means the default.
    pub(super) fn size(&self, request: &FetchJob) -> u64 {
        let requested = match request.size_limit {
            0 => self.size,
            requested => requested,
        };
        requested.min(self.size_ceiling)
    }

    /// The operator's time, which the tool's timeout and the command's deadline may only shorten (I-5).
    pub(super) fn total(&self, request: &FetchJob) -> Duration {
        self.total
            .min(request.tool_timeout.unwrap_or(Duration::MAX))
            .min(request.remaining)
    }

    /// The product token by which groups of a robots.txt name this product (RFC 9309, section 2.2.1).
    pub(super) fn robots_token(&self) -> &str {
        product_token(self.user_agent.to_str().unwrap_or_default())
    }
}

/// One fetch: the URL and its limits (egress-security 2). A request cannot set method, headers, body, credentials,
/// proxy or address (C-1).
#[derive(Clone, Debug, Default)]
pub struct FetchJob {
    /// The URL as the agent wrote it.
    pub url: String,
    /// The policy of the app; it can only narrow the operator's policy (C-3).
    pub app_policy: AppPolicy,
    /// The tenant whose slots are used.
    pub tenant: String,
    /// The app of the tenant; every app has slots of its own.
    pub app: String,
    /// The caller, for the rules of the policy files.
    pub caller: Caller,
    /// The kind of the request, for the rules of the policy files.
    pub kind: RequestKind,
    /// The methods that its fields name in addition; empty for a fetch, whose fields are those of this service.
    pub overrides: MethodOverrides,
    /// Whether a stored response is used only after its server has confirmed it.
    pub revalidates: bool,
    /// Most bytes; 0 for the default (C-2).
    pub size_limit: u64,
    /// Time the tool call may take; `None` for as long as the operator allows.
    pub tool_timeout: Option<Duration>,
    /// Time that is left of the command's own deadline.
    pub remaining: Duration,
}

/// The methods that the head of a request names in place of that of its request line: its server may obey them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MethodOverrides {
    /// The methods that fields name, in capitals.
    pub methods: Vec<String>,
    /// Whether the body is a form that cannot be read here, which may name any method.
    pub has_unreadable_form: bool,
}

/// A file that was fetched and stored. Untrusted external content; every label is the server's claim (B-7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedFile {
    /// Size and digest of the stored bytes.
    pub stored: StoredFile,
    /// The name and the media type that the server gives the file.
    pub labels: ResponseLabels,
    /// Media type found by magic bytes; empty when none matched.
    pub sniffed: Cow<'static, str>,
    /// Whether the end of the file was certain; `false` for a cleartext body that ended with its connection (B-3).
    pub length_verified: bool,
    /// Body bytes that came over the wire.
    pub wire_size: u64,
    /// Content coding that was decoded; empty for none.
    pub coding: &'static str,
    /// Scheme, host, port and path of the last hop.
    pub final_url: String,
    /// Redirects that were followed.
    pub redirect_count: u32,
    /// Status of the last hop.
    pub status: u16,
}

/// A fetch that returned no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchFailure {
    /// The reason, for logs, audit and metrics.
    pub code: Code,
    /// The phase that was under way.
    pub phase: FetchPhase,
    /// Number of the hop that failed, 0 for the first URL.
    pub hop: u32,
    /// The message for the agent, without addresses and without text of a peer.
    pub fault: Fault,
}
