//! Names that are never fetched (section 6): local, internal, reserved and metadata names.
//!
//! They are refused before any DNS query, and again as CNAME targets. The check of addresses remains the actual
//! protection.

use crate::pattern::HostPatterns;

use super::CanonicalName;
use super::name::MAX_NAME_CHARACTERS;

/// Names that are blocked together with everything below them.
const BLOCKED_NAMES: &[&str] = &[
    // RFC 6761, 6762, 7686, 8375, 9476. `test` and `example` are left to DNS.
    "localhost",
    "invalid",
    "local",
    "onion",
    "home.arpa",
    "alt",
    // Infrastructure: reverse zones and service names.
    "arpa",
    // Private use by custom or by ICANN reservation.
    "internal",
    "corp",
    "home",
    "lan",
    "intranet",
    "private",
    "localdomain",
    "svc",
    "cluster",
    "consul",
    // Names in public zones that resolve to metadata services.
    "metadata.goog",
    "metadata.tencentyun.com",
    "metadata.packet.net",
    "metadata.platformequinix.com",
];

/// Whether a host is never fetched; `extra` contains the operator's additions.
pub fn is_blocked_name(name: &CanonicalName, extra: &HostPatterns) -> bool {
    is_blocked(name.as_str(), extra)
}

/// Whether a CNAME target is never followed. Takes the text of the answer, with or without root dot.
///
/// A target that cannot be judged is blocked (I-4). Its host has characters that no host name has, or its last label is
/// a number. Hyphens at the edge of a label occur in the wild and are harmless.
pub fn is_blocked_cname(target: &str, extra: &HostPatterns) -> bool {
    // An answer keeps the case in which the zone was written (RFC 4343).
    let target = target
        .strip_suffix('.')
        .unwrap_or(target)
        .to_ascii_lowercase();
    let is_readable = target.len() <= MAX_NAME_CHARACTERS && target.split('.').all(is_dns_label);
    let last = target.rsplit('.').next().unwrap_or_default();
    // An empty last label counts as a number too; `is_readable` has refused it already.
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    !is_readable || is_number || is_blocked(&target, extra)
}

fn is_blocked(name: &str, extra: &HostPatterns) -> bool {
    // A single label means another host on another machine, so it counts as a local name.
    !name.contains('.')
        || BLOCKED_NAMES
            .iter()
            .any(|blocked| is_at_or_below(name, blocked))
        || extra.matches_name(name)
}

/// Whether `name` is `parent` or lies below it: the suffix must end at a label border.
fn is_at_or_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent)
        .is_some_and(|below| below.is_empty() || below.ends_with('.'))
}

fn is_dns_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

#[cfg(test)]
mod tests;
