//! The class of a URL, by its text alone.

use dray_tool::UrlClass;
use url::Url;

use super::drive::Drive;

/// The class of a URL (quickapps 32). Only the exact origin of DIAL counts as DIAL (R2).
pub(super) fn classify_url(drive: Option<&Drive>, url: &str) -> UrlClass {
    let trimmed = url.trim_start_matches(' ');
    if own_path(drive, url).is_some() {
        return UrlClass::Dial;
    }
    let bare = trimmed.trim_start_matches('/');
    if begins_with(bare, "files/") {
        // DIAL is not configured, but no other class matches.
        return UrlClass::Dial;
    }
    if begins_with(trimmed, "data:") {
        return UrlClass::Data;
    }
    match Url::parse(trimmed) {
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") && parsed.has_host() => {
            UrlClass::External
        }
        _ => UrlClass::Unsupported,
    }
}

fn begins_with(text: &str, start: &str) -> bool {
    text.get(..start.len())
        .is_some_and(|found| found.eq_ignore_ascii_case(start))
}

/// The path form of a file of DIAL, without leading slashes.
pub(super) fn own_path(drive: Option<&Drive>, url: &str) -> Option<String> {
    let drive = drive?;
    let trimmed = url.trim_start_matches(' ');
    let bare = trimmed.trim_start_matches('/');
    if begins_with(bare, "files/") {
        let rest = bare.get("files/".len()..).unwrap_or_default();
        // The path is returned in canonical spelling: `FILES/…` is a path of DIAL as well (quickapps 32).
        return Some(format!("files/{rest}"));
    }
    drive.own(trimmed)
}
