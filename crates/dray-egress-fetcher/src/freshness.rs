//! Whether a response may be stored and used again, and for how long without asking its server (RFC 9111). Pure.
//!
//! The cache belongs to a tenant and is shared by its sessions, so the rules of a shared cache hold. Where the RFC leaves a
//! choice, this is the strict one: nothing is fresh by heuristics (section 4.2.2), nothing stale is used (section 4.2.4), and
//! what cannot be read counts as stale or is not stored.

use std::time::{Duration, SystemTime};

use http::header::{
    AGE, CACHE_CONTROL, CONTENT_RANGE, DATE, ETAG, EXPIRES, HeaderName, HeaderValue, LAST_MODIFIED,
    PRAGMA, SET_COOKIE, VARY,
};
use http::{HeaderMap, StatusCode};

/// Longest validator that is kept and sent back, in bytes.
const MAX_VALIDATOR_BYTES: usize = 256;
/// Most field names of `Vary`.
const MAX_VARY_NAMES: usize = 16;
/// Longest of these names, in bytes: a record has room for all.
const MAX_VARY_NAME_BYTES: usize = 64;

/// How a stored response may be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReuseTerms {
    /// How long it may be used from now on without a question to the server; zero for never.
    pub fresh_for: Duration,
    /// Entity tag for `If-None-Match`.
    pub etag: Option<HeaderValue>,
    /// Date of the last change, for `If-Modified-Since`.
    pub last_modified: Option<HeaderValue>,
    /// Request fields on which the response depends, in lower case and sorted.
    pub vary: Vec<String>,
}

/// The terms of a response to a `GET` without credentials; `None` for one that must not be stored, or that could never be
/// used. `now` is when its head came.
pub fn reuse_terms(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<ReuseTerms> {
    // A part of a file is not the file. A cookie makes the response one for its receiver.
    let is_whole = status == StatusCode::OK && !headers.contains_key(CONTENT_RANGE);
    if !is_whole || headers.contains_key(SET_COOKIE) {
        return None;
    }
    terms_of_head(headers, now)
}

/// The terms after a 304, whose fields replace those of the stored response (section 3.2). A field that it leaves out stays.
pub fn renewed_terms(
    headers: &HeaderMap,
    stored: &ReuseTerms,
    now: SystemTime,
) -> Option<ReuseTerms> {
    let mut terms = terms_of_head(headers, now)?;
    terms.etag = terms.etag.or_else(|| stored.etag.clone());
    terms.last_modified = terms.last_modified.or_else(|| stored.last_modified.clone());
    if !headers.contains_key(VARY) {
        terms.vary.clone_from(&stored.vary);
    }
    Some(terms)
}

fn terms_of_head(headers: &HeaderMap, now: SystemTime) -> Option<ReuseTerms> {
    let directives = CacheDirectives::read(headers)?;
    if directives.forbids_storing {
        return None;
    }
    let terms = ReuseTerms {
        fresh_for: fresh_time(headers, &directives, now),
        etag: single_value(headers, &ETAG)
            .filter(|tag| is_entity_tag(tag))
            .cloned(),
        last_modified: single_value(headers, &LAST_MODIFIED)
            .filter(|value| date_of(value).is_some())
            .cloned(),
        vary: vary_names(headers)?,
    };
    Some(terms)
}

impl ReuseTerms {
    /// Whether the response could be used again at all: without a question, or with one.
    pub fn is_useful(&self) -> bool {
        !self.fresh_for.is_zero() || self.etag.is_some() || self.last_modified.is_some()
    }
}

#[derive(Debug, Default)]
struct CacheDirectives {
    /// `no-store` or `private`, also with names of fields.
    forbids_storing: bool,
    /// `no-cache`, with or without names of fields.
    needs_question: bool,
    /// `s-maxage`, else `max-age`, in seconds.
    max_age: Option<u64>,
}

impl CacheDirectives {
    /// Reads `Cache-Control`; `None` for text that is not a list of directives.
    fn read(headers: &HeaderMap) -> Option<Self> {
        let mut directives = Self::default();
        let (mut shared_age, mut own_age) = (None, None);
        for value in headers.get_all(CACHE_CONTROL) {
            for item in split_list(value.to_str().ok()?) {
                let (name, argument) = item
                    .split_once('=')
                    .map_or((item, None), |(name, argument)| (name, Some(argument)));
                match name.trim().to_ascii_lowercase().as_str() {
                    "no-store" | "private" => directives.forbids_storing = true,
                    "no-cache" => directives.needs_question = true,
                    // Of several, the shortest counts (section 4.2.1).
                    "s-maxage" => shared_age = Some(shorter(shared_age, argument)),
                    "max-age" => own_age = Some(shorter(own_age, argument)),
                    _ => {}
                }
            }
        }
        let is_old = headers.get_all(PRAGMA).iter().any(|value| {
            value
                .to_str()
                .is_ok_and(|value| value.to_ascii_lowercase().contains("no-cache"))
        });
        // Only where there is no `Cache-Control` (section 5.4).
        directives.needs_question |= is_old && !headers.contains_key(CACHE_CONTROL);
        directives.max_age = shared_age.or(own_age);
        Some(directives)
    }
}

/// The shorter one of an age and that of a directive. One that is not a number is 0: stale.
fn shorter(before: Option<u64>, argument: Option<&str>) -> u64 {
    let text = argument.unwrap_or_default().trim().trim_matches('"');
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number that is too large is a very long time (section 1.2.2).
    let seconds = if is_number {
        text.parse().unwrap_or(u64::MAX)
    } else {
        0
    };
    before.map_or(seconds, |before| before.min(seconds))
}

/// The items of a list; a comma in a quoted string is part of its item.
fn split_list(text: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |character| {
        if character == '"' {
            is_quoted = !is_quoted;
        }
        character == ',' && !is_quoted
    })
    .map(str::trim)
    .filter(|item| !item.is_empty())
}

/// Freshness lifetime less current age (sections 4.2.1 and 4.2.3).
fn fresh_time(headers: &HeaderMap, directives: &CacheDirectives, now: SystemTime) -> Duration {
    if directives.needs_question {
        return Duration::ZERO;
    }
    let date = single_value(headers, &DATE).and_then(date_of);
    let of_expires = || {
        let expires = single_value(headers, &EXPIRES).and_then(date_of)?;
        expires.duration_since(date.unwrap_or(now)).ok()
    };
    let max_age = directives.max_age.map(Duration::from_secs);
    // `max-age` overrides `Expires` (section 5.3).
    let lifetime = max_age.or_else(of_expires).unwrap_or_default();
    let apparent_age = date.and_then(|date| now.duration_since(date).ok());
    let age = match headers.get(AGE) {
        None => Duration::ZERO,
        // An age that cannot be read may be any.
        Some(_) => single_value(headers, &AGE)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map_or(Duration::MAX, Duration::from_secs),
    };
    lifetime.saturating_sub(age.max(apparent_age.unwrap_or_default()))
}

/// The names of `Vary`, in lower case and sorted; `None` where it depends on more than request fields.
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

/// An entity tag, strong or weak: both prove that nothing changed for a `GET` (RFC 9110, section 13.1.2).
fn is_entity_tag(tag: &HeaderValue) -> bool {
    let bytes = tag.as_bytes();
    let opaque = bytes.strip_prefix(b"W/").unwrap_or(bytes);
    bytes.len() <= MAX_VALIDATOR_BYTES
        && opaque
            .strip_prefix(b"\"")
            .and_then(|rest| rest.strip_suffix(b"\""))
            .is_some_and(|inner| {
                inner
                    .iter()
                    .all(|byte| byte.is_ascii_graphic() && *byte != b'"')
            })
}

fn date_of(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

/// The value of a field that is there once.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    // Of two values, it is unknown which one the server meant.
    values.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests;
