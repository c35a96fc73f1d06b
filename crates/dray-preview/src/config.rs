//! Settings of previews.

use std::net::SocketAddr;

use dray_sandbox_tree as tree;
use dray_types::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Label of a public URL that stands for the id of a preview.
const ID_LABEL: &str = "*.";

/// Section `sandbox-transfer.preview`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PreviewConfig {
    /// Address on which the links of previews are served, such as `127.0.0.1:7350`. No other page may be served on it:
    /// its port, or the host of `url`, is the origin of previewed pages. Default empty: previews are off. `dray up`
    /// uses a free port on loopback.
    pub listen: Option<SocketAddr>,
    /// Base of links if a proxy with TLS is in front of the address, such as `https://preview.example.org`. With a
    /// star, `https://*.preview.example.org`, every preview has a separate origin; the name needs a wildcard record
    /// and certificate. Default empty: the address itself.
    pub url: String,
    /// Lifetime of a link for which the caller requests none. Default `1h`.
    pub lifetime: Period,
    /// Longest lifetime of a link. Default `12h`.
    pub max_lifetime: Period,
    /// Most open previews of one session, or of one sandbox by address, 1 to 12. Links that deliveries sent into a chat
    /// do not count. Links with long paths may reach the size of their record, 56 KiB, before. Default 8.
    pub max_open: u32,
    /// Most open links of one session that deliveries sent into a chat: 1 to 32. Links with long paths may reach the size
    /// of their record, 56 KiB, before. Default 32.
    pub max_open_delivered: u32,
    /// Most entries of a directory that is sent as a ZIP, at most 100000. If `max_tree_entries` is larger, it applies
    /// instead. Each entry needs about 500 bytes of memory while its archive is sent. Default 20000.
    pub max_archive_entries: usize,
}

/// Limit for [`PreviewConfig::max_open`]: a record with this many previews, each with the longest path, fits a message.
pub(crate) const MAX_OPEN_PREVIEWS: u32 = 12;
/// Limit for [`PreviewConfig::max_open_delivered`]. With paths of up to 800 bytes, a record with this many fits too.
const MAX_OPEN_DELIVERED_PREVIEWS: u32 = 32;
/// Limit for [`PreviewConfig::max_archive_entries`].
const MAX_ARCHIVE_ENTRIES: usize = 100_000;
/// Bytes of the names in an archive, for each entry that it may have.
const MEAN_NAME_BYTES: usize = 256;

impl Default for PreviewConfig {
    fn default() -> Self {
        Self {
            listen: None,
            url: String::new(),
            lifetime: Period::secs(60 * 60),
            max_lifetime: Period::secs(12 * 60 * 60),
            max_open: 8,
            max_open_delivered: 32,
            max_archive_entries: 20_000,
        }
    }
}

impl PreviewConfig {
    /// The first field that cannot be used, with the reason.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        if !self.url.is_empty() && self.base_url("0", None).is_none() {
            let text = "must begin with `http://` or `https://` and a host, without a path";
            return Some(("url", text.to_owned()));
        }
        if self.lifetime.as_duration().is_zero() || self.lifetime > self.max_lifetime {
            let text = "must be above 0 and at most `max_lifetime`";
            return Some(("lifetime", text.to_owned()));
        }
        if !(1..=MAX_OPEN_PREVIEWS).contains(&self.max_open) {
            let text = format!("must be 1 to {MAX_OPEN_PREVIEWS}");
            return Some(("max_open", text));
        }
        if !(1..=MAX_OPEN_DELIVERED_PREVIEWS).contains(&self.max_open_delivered) {
            let text = format!("must be 1 to {MAX_OPEN_DELIVERED_PREVIEWS}");
            return Some(("max_open_delivered", text));
        }
        if !(1..=MAX_ARCHIVE_ENTRIES).contains(&self.max_archive_entries) {
            let text = format!("must be 1 to {MAX_ARCHIVE_ENTRIES}");
            return Some(("max_archive_entries", text));
        }
        None
    }

    /// Most open previews of a session: of those that deliveries sent, or of all others.
    pub(crate) const fn max_open_of(&self, is_delivered: bool) -> u32 {
        if is_delivered {
            self.max_open_delivered
        } else {
            self.max_open
        }
    }

    /// Limits of a directory that is sent as an archive. `directories` are the limits of copied directories. They apply
    /// to everything but the number of entries and the bytes of their names.
    pub fn archive_limits(&self, directories: tree::Limits) -> tree::Limits {
        let entries = self.max_archive_entries.max(directories.entries);
        tree::Limits {
            entries,
            names: directories
                .names
                .max(entries.saturating_mul(MEAN_NAME_BYTES)),
            ..directories
        }
    }

    /// The origin of a preview, without a slash at its end; `None` if neither a URL nor an address is set.
    pub fn base_url(&self, preview_id: &str, bound: Option<SocketAddr>) -> Option<String> {
        let url = self.url.trim_end_matches('/');
        if url.is_empty() {
            return bound.map(|address| format!("http://{address}"));
        }
        let (scheme, host) = url.split_once("://")?;
        if !matches!(scheme, "http" | "https")
            || host.is_empty()
            || host.contains(['/', '?', '#', '@'])
        {
            return None;
        }
        let host = match host.strip_prefix(ID_LABEL) {
            Some(domain) => format!("{preview_id}.{domain}"),
            None => host.to_owned(),
        };
        (!host.contains('*')).then(|| format!("{scheme}://{host}"))
    }

    /// Whether a request with this `Host` may show the preview: with a star in the URL, each preview has its own name.
    pub(crate) fn admits_host(&self, preview_id: &str, host: Option<&str>) -> bool {
        if !self.url.contains(ID_LABEL) {
            return true;
        }
        let own = self.base_url(preview_id, None);
        let own = own.as_deref().and_then(|url| url.split_once("://"));
        own.is_some_and(|(_, own)| host.is_some_and(|host| host.eq_ignore_ascii_case(own)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_url(url: &str) -> PreviewConfig {
        PreviewConfig {
            url: url.to_owned(),
            ..PreviewConfig::default()
        }
    }

    #[test]
    fn a_star_in_the_url_gives_each_preview_its_own_name() {
        let config = with_url("https://*.preview.example.org/");
        assert_eq!(
            config.base_url("ab", None).as_deref(),
            Some("https://ab.preview.example.org")
        );
        assert!(config.admits_host("ab", Some("AB.preview.example.org")));
        for other in [
            None,
            Some("preview.example.org"),
            Some("cd.preview.example.org"),
        ] {
            assert!(!config.admits_host("ab", other), "{other:?}");
        }
        assert!(with_url("https://files.example.org").admits_host("ab", Some("any")));
    }

    #[test]
    fn a_url_that_is_not_an_origin_is_refused() {
        for url in [
            "ftp://a",
            "https://",
            "a.example",
            "https://a/b",
            "https://x.*.a",
            "https://u@a",
        ] {
            assert_eq!(
                with_url(url).problem().map(|problem| problem.0),
                Some("url"),
                "{url}"
            );
        }
        assert_eq!(with_url("").problem(), None);
        let config = PreviewConfig {
            max_open: 13,
            ..PreviewConfig::default()
        };
        assert_eq!(config.problem().map(|problem| problem.0), Some("max_open"));
        let config = PreviewConfig {
            max_open_delivered: 33,
            ..PreviewConfig::default()
        };
        let problem = config.problem().map(|problem| problem.0);
        assert_eq!(problem, Some("max_open_delivered"));
        for max_archive_entries in [0, 100_001] {
            let config = PreviewConfig {
                max_archive_entries,
                ..PreviewConfig::default()
            };
            let problem = config.problem().map(|problem| problem.0);
            assert_eq!(problem, Some("max_archive_entries"));
        }
    }
}
