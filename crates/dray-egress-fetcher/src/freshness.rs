//! Whether a response may be stored and reused, and for how long without revalidation (RFC 9111). Does no I/O.
//!
//! The cache belongs to a tenant and is shared by its sessions, so the rules of a shared cache hold. Where the RFC
//! leaves a choice, this module is strict. No response is fresh by heuristics (section 4.2.2), no stale response is
//! used (section 4.2.4), and a response whose fields cannot be read counts as stale or is not stored.

use std::time::{Duration, SystemTime};

use http::header::{
    AGE, CACHE_CONTROL, CONTENT_RANGE, DATE, ETAG, EXPIRES, HeaderName, HeaderValue, LAST_MODIFIED,
    PRAGMA, SET_COOKIE, VARY,
};
use http::{HeaderMap, StatusCode};

use crate::validator::{is_entity_tag, is_same_tag, single_value};

/// Most field names of `Vary`.
const MAX_VARY_NAMES: usize = 16;
/// Longest field name of `Vary` in bytes, so that a record has room for all names.
const MAX_VARY_NAME_BYTES: usize = 64;

/// The conditions under which a stored response may be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReuseTerms {
    /// How long the response may be used from now on without revalidation; zero for never.
    pub fresh_for: Duration,
    /// Entity tag for `If-None-Match`.
    pub etag: Option<HeaderValue>,
    /// Date of the last change, for `If-Modified-Since`.
    pub last_modified: Option<HeaderValue>,
    /// Request fields on which the response depends, in lower case and sorted.
    pub vary: Vec<String>,
}

/// The times of a response, from which its age is computed (section 4.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseTimes {
    /// The time at which the head arrived.
    pub arrived: SystemTime,
    /// Time from the request to the head. `Age` does not count it.
    pub delay: Duration,
}

/// The terms of a response to a `GET` without credentials; `None` for a response that must not be stored.
pub fn reuse_terms(
    status: StatusCode,
    headers: &HeaderMap,
    times: ResponseTimes,
) -> Option<ReuseTerms> {
    // A part of a file is not the file. A response with a cookie is for its receiver alone.
    let is_whole = status == StatusCode::OK && !headers.contains_key(CONTENT_RANGE);
    if !is_whole || headers.contains_key(SET_COOKIE) {
        return None;
    }
    terms_of_head(headers, times)
}

/// Whether a 304 is about the stored response. A response that names another validator is about content that is not
/// stored, so it updates nothing (section 4.3.4).
pub fn is_confirmed(headers: &HeaderMap, stored: &ReuseTerms) -> bool {
    match &stored.etag {
        Some(tag) if headers.contains_key(ETAG) => {
            let mut named_tags = headers.get_all(ETAG).iter();
            return named_tags.all(|named| is_same_tag(named, tag));
        }
        // A tag without a usable form is not stored, so this one may be the tag of the stored response; the date
        // decides.
        None if usable_tag(headers).is_some() => return false,
        _ => {}
    }
    let is_stored_date = |named: &HeaderValue| stored.last_modified.as_ref() == Some(named);
    headers.get_all(LAST_MODIFIED).iter().all(is_stored_date)
}

/// The terms after a 304 that confirms the stored response: its fields replace those of the stored response (section
/// 3.2). The validators stay, because they belong to the stored content; so does a `Vary` that the 304 leaves out.
pub fn renewed_terms(
    headers: &HeaderMap,
    stored: &ReuseTerms,
    times: ResponseTimes,
) -> Option<ReuseTerms> {
    let mut terms = terms_of_head(headers, times)?;
    terms.etag.clone_from(&stored.etag);
    terms.last_modified.clone_from(&stored.last_modified);
    if !headers.contains_key(VARY) {
        terms.vary.clone_from(&stored.vary);
    }
    Some(terms)
}

fn terms_of_head(headers: &HeaderMap, times: ResponseTimes) -> Option<ReuseTerms> {
    let directives = CacheDirectives::read(headers)?;
    if directives.forbids_storing {
        return None;
    }
    let terms = ReuseTerms {
        fresh_for: fresh_time(headers, &directives, times),
        // Weak tags count, too: for a `GET` they prove that nothing changed (RFC 9110, section 13.1.2).
        etag: usable_tag(headers).cloned(),
        last_modified: single_value(headers, &LAST_MODIFIED)
            .filter(|value| date_of(value).is_some())
            .cloned(),
        vary: vary_names(headers)?,
    };
    Some(terms)
}

impl ReuseTerms {
    /// The terms for a response that is stored this long after its head arrived.
    #[must_use]
    pub fn with_elapsed(mut self, elapsed: Duration) -> Self {
        self.fresh_for = self.fresh_for.saturating_sub(elapsed);
        self
    }

    /// Whether the response can be reused, with or without revalidation.
    pub fn is_useful(&self) -> bool {
        !self.fresh_for.is_zero() || self.etag.is_some() || self.last_modified.is_some()
    }
}

#[derive(Debug, Default)]
struct CacheDirectives {
    /// Whether the response has `no-store` or `private`, even with names of fields.
    forbids_storing: bool,
    /// Whether the response has `no-cache`, with or without names of fields.
    needs_revalidation: bool,
    /// `s-maxage`, else `max-age`, in seconds.
    max_age: Option<u64>,
}

impl CacheDirectives {
    /// Reads `Cache-Control`; `None` for text that is not a list of directives.
    fn read(headers: &HeaderMap) -> Option<Self> {
        let mut directives = Self::default();
        let (mut shared_max_age, mut max_age) = (None, None);
        for value in headers.get_all(CACHE_CONTROL) {
            for item in split_list(value.to_str().ok()?)? {
                let (name, argument) = item
                    .split_once('=')
                    .map_or((item, None), |(name, argument)| (name, Some(argument)));
                // A name with other characters may hide `no-store`, as `no-store; max-age=60` does.
                let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
                match name.as_str() {
                    "no-store" | "private" => directives.forbids_storing = true,
                    "no-cache" => directives.needs_revalidation = true,
                    // Of several, the shortest counts (section 4.2.1).
                    "s-maxage" => shared_max_age = Some(shorter_age(shared_max_age, argument)),
                    "max-age" => max_age = Some(shorter_age(max_age, argument)),
                    _ => {}
                }
            }
        }
        let has_pragma = headers.get_all(PRAGMA).iter().any(|value| {
            value
                .to_str()
                .is_ok_and(|value| value.to_ascii_lowercase().contains("no-cache"))
        });
        // `Pragma` counts only without `Cache-Control` (section 5.4).
        directives.needs_revalidation |= has_pragma && !headers.contains_key(CACHE_CONTROL);
        directives.max_age = shared_max_age.or(max_age);
        Some(directives)
    }
}

/// The shorter one of an age and the argument of a directive. An argument that is not a number counts as 0: stale.
fn shorter_age(earlier: Option<u64>, argument: Option<&str>) -> u64 {
    let text = argument.unwrap_or_default().trim().trim_matches('"');
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number that is too large is a very long time (section 1.2.2).
    let seconds = if is_number {
        text.parse().unwrap_or(u64::MAX)
    } else {
        0
    };
    earlier.map_or(seconds, |earlier| earlier.min(seconds))
}

/// The items of a list; a comma in a quoted string is part of its item, and so is a quotation mark behind `\\` (RFC
/// 9110, section 5.6.4). `None` where a quoted string has no end, since any item may be inside of it.
fn split_list(text: &str) -> Option<Vec<&str>> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let items = text.split(|character| {
        if is_quoted && !is_escaped && character == '\\' {
            is_escaped = true;
            return false;
        }
        if character == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = false;
        character == ',' && !is_quoted
    });
    let items: Vec<_> = items
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .collect();
    (!is_quoted).then_some(items)
}

/// Freshness lifetime less current age (sections 4.2.1 and 4.2.3).
fn fresh_time(headers: &HeaderMap, directives: &CacheDirectives, times: ResponseTimes) -> Duration {
    if directives.needs_revalidation {
        return Duration::ZERO;
    }
    let date = single_value(headers, &DATE).and_then(date_of);
    let expires_lifetime = || {
        let expires = single_value(headers, &EXPIRES).and_then(date_of)?;
        expires.duration_since(date.unwrap_or(times.arrived)).ok()
    };
    let max_age = directives.max_age.map(Duration::from_secs);
    // `max-age` overrides `Expires` (section 5.3).
    let lifetime = max_age.or_else(expires_lifetime).unwrap_or_default();
    let apparent_age = date.and_then(|date| times.arrived.duration_since(date).ok());
    let age = match headers.get(AGE) {
        None => Duration::ZERO,
        // An unreadable age may be any age, so the response counts as stale.
        Some(_) => single_value(headers, &AGE)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map_or(Duration::MAX, Duration::from_secs),
    };
    let corrected_age = age.saturating_add(times.delay);
    lifetime.saturating_sub(corrected_age.max(apparent_age.unwrap_or_default()))
}

/// The field names of `Vary`, in lower case and sorted; `None` where the response depends on more than request fields.
fn vary_names(headers: &HeaderMap) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for value in headers.get_all(VARY) {
        for name in value.to_str().ok()?.split(',') {
            let name = name.trim();
            if name.is_empty() {
                continue;
            }
            // `*` stands for more than request fields (RFC 9110, section 12.5.5).
            HeaderName::from_bytes(name.as_bytes())
                .ok()
                .filter(|_| name != "*" && name.len() <= MAX_VARY_NAME_BYTES)?;
            names.push(name.to_ascii_lowercase());
        }
    }
    names.sort_unstable();
    names.dedup();
    (names.len() <= MAX_VARY_NAMES).then_some(names)
}

/// The entity tag, if there is exactly one and it can be sent back.
fn usable_tag(headers: &HeaderMap) -> Option<&HeaderValue> {
    single_value(headers, &ETAG).filter(|tag| is_entity_tag(tag))
}

fn date_of(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests;
