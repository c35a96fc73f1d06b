//! Links to files that are too large for a chat (platform-delivery 13): their message, and when a link is sent.

use dray_presentation::{name, size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// When links are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkPolicy {
    /// When the store's public address is not this machine's own.
    #[default]
    Auto,
    /// Always: readers of the chat can reach the store.
    Always,
    /// Never: what is too large is refused.
    Never,
}

/// Whether a link to this address can work on another machine.
pub fn leads_outside(link: &str) -> bool {
    let Ok(url) = Url::parse(link) else {
        return false;
    };
    match url.host() {
        Some(Host::Ipv4(address)) => !address.is_loopback() && !address.is_unspecified(),
        Some(Host::Ipv6(address)) => !address.is_loopback() && !address.is_unspecified(),
        Some(Host::Domain(host)) => {
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            host != "localhost" && !host.ends_with(".localhost")
        }
        None => false,
    }
}

/// The message: name, size, expiry as a UTC time and as a duration, and the link on its own line.
pub fn link_text(file: &str, bytes: u64, url: &str, now_ms: u64, expires_at_ms: u64) -> String {
    format!(
        "{} ({}), available until {} ({}):\n{url}",
        dray_presentation::caption::neutralise_mentions(&name::shown_name(file)),
        size::human_size(bytes),
        absolute_utc(expires_at_ms),
        relative_time(expires_at_ms.saturating_sub(now_ms)),
    )
}

/// The message with the link to a preview. A size of 0 (a directory) is left out.
pub fn preview_text(file: &str, bytes: u64, url: &str, now_ms: u64, expires_at_ms: u64) -> String {
    let size = match bytes {
        0 => String::new(),
        bytes => format!(" ({})", size::human_size(bytes)),
    };
    format!(
        "{}{size}, viewable until {} ({}):\n{url}",
        dray_presentation::caption::neutralise_mentions(&name::shown_name(file)),
        absolute_utc(expires_at_ms),
        relative_time(expires_at_ms.saturating_sub(now_ms)),
    )
}

/// Formats a time as `2026-11-21 14:30 UTC`. Seconds are dropped, so that the link does not end before the stated time.
fn absolute_utc(unix_ms: u64) -> String {
    let second = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_second(second) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => "the end of time".to_owned(),
    }
}

/// Formats a duration as `for 24 hours`, rounded down, apart from the minute that making the link may take.
fn relative_time(remaining_ms: u64) -> String {
    const MINUTE_MS: u64 = 60_000;
    const HOUR_MS: u64 = 60 * MINUTE_MS;
    let (count, unit) = match remaining_ms {
        0..HOUR_MS => (remaining_ms / MINUTE_MS, "minute"),
        // A new link of a day is shown as 24 hours, although a moment has passed since it was made.
        HOUR_MS.. if remaining_ms + MINUTE_MS < 48 * HOUR_MS => {
            ((remaining_ms + MINUTE_MS) / HOUR_MS, "hour")
        }
        _ => ((remaining_ms + MINUTE_MS) / (24 * HOUR_MS), "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("for {count} {unit}{plural}")
}

/// Formats a time by RFC 3339, for results; empty for one out of range.
pub fn rfc3339_time(unix_ms: u64) -> String {
    let second = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(second).map_or_else(|_| String::new(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;

    #[test]
    fn the_text_has_name_size_expiry_duration_and_link() {
        let now = 1_795_000_000_000;
        let text = link_text(
            "/w/big.zip",
            62 << 20,
            "https://s/x?sig=1",
            now,
            now + DAY_MS,
        );
        assert_eq!(
            text,
            "big.zip (62 MB), available until 2026-11-19 11:06 UTC (for 24 hours):\nhttps://s/x?sig=1"
        );
    }

    #[test]
    fn the_shown_duration_is_never_longer_than_the_remaining_one() {
        for (remaining_ms, expected) in [
            (0, "for 0 minutes"),
            (60_000, "for 1 minute"),
            (59 * 60_000, "for 59 minutes"),
            (DAY_MS - 1_500, "for 24 hours"),
            (2 * DAY_MS, "for 2 days"),
            (7 * DAY_MS - 500, "for 7 days"),
            (3 * DAY_MS - 3_600_000, "for 2 days"),
        ] {
            assert_eq!(relative_time(remaining_ms), expected, "{remaining_ms}");
        }
    }

    #[test]
    fn a_name_cannot_add_lines_or_mentions_to_the_message() {
        let text = link_text("a\n@everyone\u{202e}.pdf", 1, "https://s/", 0, DAY_MS);
        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains("@everyone") && !text.contains('\u{202e}'));
    }

    #[test]
    fn links_to_this_machine_do_not_lead_outside() {
        for (link, expected) in [
            ("https://files.example/x", true),
            ("http://10.0.0.7:9000/x", true),
            ("http://127.0.0.1:9000/x", false),
            ("http://[::1]:9000/x", false),
            ("http://localhost:9000/x", false),
            ("http://a.localhost/x", false),
            ("http://0.0.0.0/x", false),
            ("nonsense", false),
        ] {
            assert_eq!(leads_outside(link), expected, "{link}");
        }
    }
}
