//! Decides what may be fetched from addresses that an agent, a user or an app chose.
//!
//! Every function is a pure function of its arguments: no clock, no network, no async runtime, no environment. It
//! resolves nothing and connects to nothing. The fetcher does the I/O and asks this crate before every step:
//!
//! | module | question it answers |
//! |---|---|
//! | [`policy`] | may this app fetch at all, and this host, and this port? |
//! | [`pattern`] | does a host match an allowlist item? |
//! | [`canon`] | which host does this text name, and is there only one way to read it? |
//! | [`addrclass`] | is this address public, or which special block is it in? |
//! | [`judge`] | may these addresses be connected to? the only source of a connectable address |
//! | [`chain`] | where does this redirect lead, and may it be followed? |
//! | [`proxy_token`] | which client opened this connection to the forward proxy? |
//! | [`reason`] | which message does the agent get? |
//! | [`robots`] | may this product request the path, by the robots.txt of its host? |
//! | [`ruleset`] | may this tenant, session or app reach it, by the operator's policy files? |
//! | [`steps`] | which steps were judged, and what did each decide? |
//!
//! Rule ids (`U-4`, `D-5`) in comments and test names are those of the egress security specification. A
//! question that cannot be answered is a refusal (I-4).
//!
//! ```
//! use std::sync::Arc;
//! use dray_guard::{AdminPolicy, AppPolicy, Chain, Code, EffectivePolicy};
//!
//! let admin = AdminPolicy { enabled: true, ..AdminPolicy::default() };
//! let policy = Arc::new(EffectivePolicy::new(&admin, &AppPolicy::default())?);
//! let chain = Chain::start("https://files.example.org/a.pdf", policy.clone())?;
//! assert_eq!(chain.current().host_header(), "files.example.org");
//! let refused = Chain::start("https://user@files.example.org/", policy).unwrap_err();
//! assert_eq!(refused.code, Code::UrlCredentials);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod addrclass;
pub mod canon;
pub mod chain;
pub mod judge;
pub mod pattern;
pub mod policy;
pub mod proxy_token;
pub mod reason;
pub mod robots;
pub mod ruleset;
pub mod steps;

pub use addrclass::{Class, TABLE_EDITION, classify};
pub use canon::{CanonicalName, CanonicalUrl, Host};
pub use chain::{Chain, NextHop, RefusedUrl};
pub use judge::{
    ClassifiedAddress, DnsAnswer, DnssecStatus, HopContext, Judge, JudgeConfig, Nat64Prefix,
    Network, PinnedAddr, PinnedAddresses, PrivateRanges, RefusedHop, blocked_classes,
};
pub use pattern::{HostPattern, HostPatterns, PatternError, parse_admin_list};
pub use policy::{
    AdminPolicy, AllowedPorts, AppPolicy, CallerRules, EffectivePolicy, HostGrant, MaxRedirects,
    PreparedPolicy, RequestKind,
};
pub use reason::{Code, ShownHost, ShownUrl};
pub use ruleset::{Caller, RequestView, RuleDecision, RuleName, RuleSet};
pub use steps::{JudgedStep, PolicyStep, RuleOwner, StepLog, StepObserver};

#[cfg(test)]
mod tests;
