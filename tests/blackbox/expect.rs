//! The expected output of a run: the contract of `dray fetch --json`, and the exact sentences for the agent.

use std::fmt;
use std::net::IpAddr;

use dray_types::hex::hex_digits;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::fetch::{FetchCommand, FetchOutcome};

/// The expected result of one fetch.
#[derive(Clone)]
pub(crate) enum FetchExpectation {
    /// Allowed, with this content.
    Content(Vec<u8>),
    /// Allowed; the server at this address responds (the scripted servers name themselves).
    Reached(&'static str),
    /// Refused or failed with this code of section 17, and its sentence.
    Denied(&'static str),
    /// Refused or failed with this code; the sentence is not checked.
    Coded(&'static str),
    /// Refused or failed, with any code.
    Refused,
    /// `dray resolve`: prints the arguments, with this text in place of the reference.
    Resolved(&'static str),
    /// `dray resolve`: prints no arguments.
    Rejected,
    /// The binary does not start: the configuration is wrong.
    NoStart,
}

/// The form for a finding, in which contents are replaced by their size.
impl fmt::Debug for FetchExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(bytes) => write!(f, "Content({} bytes)", bytes.len()),
            Self::Reached(address) => write!(f, "Reached({address})"),
            Self::Denied(code) => write!(f, "Denied({code})"),
            Self::Coded(code) => write!(f, "Coded({code})"),
            Self::Refused => f.write_str("Refused"),
            Self::Resolved(text) => write!(f, "Resolved({text})"),
            Self::Rejected => f.write_str("Rejected"),
            Self::NoStart => f.write_str("NoStart"),
        }
    }
}

/// The first keys of the JSON line, in order; more may follow.
const LINE_KEYS: [&str; 7] = [
    "verdict",
    "code",
    "message",
    "size",
    "sha256",
    "media_type",
    "name",
];

/// The difference between the outcome and the expectation, if any.
pub(crate) fn judge(
    fetch: &FetchCommand,
    expect: &FetchExpectation,
    outcome: &FetchOutcome,
) -> Result<(), String> {
    match expect {
        FetchExpectation::Resolved(text) => check_resolved(outcome, text),
        FetchExpectation::Rejected => check_rejected(outcome),
        FetchExpectation::NoStart => does_not_start(outcome),
        _ => check_fetch(fetch, expect, outcome),
    }
}

fn check_fetch(
    fetch: &FetchCommand,
    expect: &FetchExpectation,
    outcome: &FetchOutcome,
) -> Result<(), String> {
    let mut lines = outcome.stdout.lines();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err("it did not print exactly one line".to_owned());
    };
    let line: Value =
        serde_json::from_str(line).map_err(|error| format!("the line is not JSON: {error}"))?;
    let keys: Vec<&str> = line
        .as_object()
        .into_iter()
        .flat_map(|object| object.keys())
        .map(String::as_str)
        .collect();
    demand(keys.starts_with(&LINE_KEYS), || {
        format!("the line has the keys {keys:?}")
    })?;
    keeps_the_query(fetch, outcome)?;
    match expect {
        FetchExpectation::Content(content) => check_allowed(&line, outcome, content),
        FetchExpectation::Reached(address) => {
            check_allowed(&line, outcome, format!("reached {address}\n").as_bytes())
        }
        FetchExpectation::Denied(code) => {
            check_denied(&line, outcome, Some(code), &fetch.url)?;
            let message = line["message"].as_str().unwrap_or_default();
            let urls = possible_urls(&fetch.url);
            demand(
                urls.iter().any(|url| sentence(code, url) == message),
                || {
                    format!(
                        "the message is {message:?}, not {:?}",
                        sentence(code, &urls[0])
                    )
                },
            )
        }
        FetchExpectation::Coded(code) => check_denied(&line, outcome, Some(code), &fetch.url),
        FetchExpectation::Refused => check_denied(&line, outcome, None, &fetch.url),
        FetchExpectation::Resolved(_) | FetchExpectation::Rejected | FetchExpectation::NoStart => {
            Ok(())
        }
    }
}

fn demand(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn does_not_start(outcome: &FetchOutcome) -> Result<(), String> {
    demand(outcome.status.code() == Some(78), || {
        format!("it ended with {}, not with exit code 78", outcome.status)
    })?;
    demand(outcome.file.is_none(), || "it wrote a file".to_owned())
}

fn check_resolved(outcome: &FetchOutcome, text: &str) -> Result<(), String> {
    demand(outcome.status.success(), || {
        format!("it ended with {}", outcome.status)
    })?;
    let printed: Value =
        serde_json::from_str(&outcome.stdout).map_err(|error| format!("no JSON: {error}"))?;
    demand(printed == json!({ "file": text }), || {
        format!("the arguments are {printed}")
    })
}

fn check_rejected(outcome: &FetchOutcome) -> Result<(), String> {
    demand(outcome.status.code() == Some(1), || {
        format!("it ended with {}", outcome.status)
    })?;
    demand(!outcome.stdout.contains("reached"), || {
        "it printed content".to_owned()
    })
}

fn check_allowed(line: &Value, outcome: &FetchOutcome, content: &[u8]) -> Result<(), String> {
    demand(line["verdict"] == "allow", || {
        format!("it was not allowed: {line}")
    })?;
    demand(outcome.status.success(), || {
        format!("it ended with {}", outcome.status)
    })?;
    let file = outcome.file.as_deref().ok_or("the outcome has no file")?;
    demand(file == content, || {
        format!(
            "the file is {:?}",
            String::from_utf8_lossy(file.get(..200).unwrap_or(file))
        )
    })?;
    demand(line["size"] == content.len(), || {
        format!("the size is {}", line["size"])
    })?;
    let digest = hex_digits(&Sha256::digest(content));
    demand(line["sha256"] == digest, || {
        format!("the digest is {}", line["sha256"])
    })
}

fn check_denied(
    line: &Value,
    outcome: &FetchOutcome,
    code: Option<&str>,
    url: &str,
) -> Result<(), String> {
    demand(code.is_none_or(|code| line["code"] == code), || {
        format!("the code is {}", line["code"])
    })?;
    demand(line["verdict"] == "deny", || {
        format!("it was not denied: {line}")
    })?;
    demand(outcome.status.code().is_some_and(|code| code != 0), || {
        format!("it ended with {}", outcome.status)
    })?;
    demand(outcome.file.is_none(), || "it wrote a file".to_owned())?;
    discloses_nothing(line, url)
}

/// S-5: neither logs nor replies contain what follows the path.
fn keeps_the_query(fetch: &FetchCommand, outcome: &FetchOutcome) -> Result<(), String> {
    let Some(path_end) = fetch.url.find(['?', '#']) else {
        return Ok(());
    };
    let leaks = [&outcome.stdout, &outcome.stderr]
        .iter()
        .any(|text| text.contains(&fetch.url[path_end + 1..]));
    demand(!leaks, || {
        "the output has the query or the fragment".to_owned()
    })
}

/// I-8: a refusal names no address that the URL does not name.
fn discloses_nothing(line: &Value, url: &str) -> Result<(), String> {
    let text = line.to_string();
    let words =
        text.split(|letter: char| !(letter.is_ascii_hexdigit() || letter == '.' || letter == ':'));
    let mut addresses = words
        .map(|word| word.trim_matches(['.', ':']))
        .filter(|word| word.parse::<IpAddr>().is_ok() && !url.contains(word));
    addresses.next().map_or(Ok(()), |address| {
        Err(format!("the refusal discloses the address {address}"))
    })
}

/// The forms of a URL in sentences: as the agent wrote it, without query and fragment, with or without an empty path.
fn possible_urls(url: &str) -> [String; 2] {
    let url = &url[..url.find(['?', '#']).unwrap_or(url.len())];
    let shortened = |text: &str| text.chars().take(200).collect();
    match url.split_once("://") {
        Some((_, rest)) if !rest.contains('/') => [shortened(url), shortened(&format!("{url}/"))],
        _ => [shortened(url), shortened(url)],
    }
}

/// The agent-facing sentence of a code (section 17), with the original URL in it.
fn sentence(code: &str, url: &str) -> String {
    let policy = match code {
        "disabled_by_admin" => {
            "External URL fetching is disabled by operator policy (EXTERNAL_URL_FETCH_ENABLED)."
        }
        "disabled_by_app" => {
            "External URL fetching is disabled by this app (features.external_url_fetch.enabled=false)."
        }
        "host_not_in_admin_allowlist" => {
            "External URL host is not in the operator allowlist (EXTERNAL_URL_FETCH_HOST_ALLOWLIST)."
        }
        "host_not_in_app_allowlist" => {
            "External URL host is not in this app's allowlist (features.external_url_fetch.host_allowlist)."
        }
        "policy_invalid" => {
            "This app's external fetch policy is invalid; ask the app owner to correct features.external_url_fetch."
        }
        _ => return format!("External URL {url} {}", predicate(code, url)),
    };
    policy.to_owned()
}

/// The part of the sentence that follows the URL.
fn predicate(code: &str, url: &str) -> String {
    let failed = |reason: &str| format!("could not be fetched. {reason}");
    match code {
        "invalid_url" => "is not a valid absolute http(s) URL.".to_owned(),
        "unsupported_scheme" => "uses a scheme that is not supported; use http or https.".to_owned(),
        "url_credentials" => "contains credentials, which are not accepted.".to_owned(),
        "ambiguous_host" => {
            "writes its host in an ambiguous form; use a plain host name or a dotted-decimal address.".to_owned()
        }
        "port_not_allowed" => "uses a port that is not allowed.".to_owned(),
        "blocked_host" => "names a host that is never fetched (local, internal or reserved name).".to_owned(),
        "ssrf_blocked" => {
            "resolves to a blocked address (loopback, private, link-local, or cloud-metadata).".to_owned()
        }
        "redirect_limit" => "exceeded the configured redirect limit.".to_owned(),
        "redirect_downgrade" => failed("It redirected from https to http, which is not allowed."),
        "redirect_invalid" => failed("It redirected to an invalid location."),
        "too_large" => "exceeds the configured file-size limit.".to_owned(),
        "timeout" => "timed out.".to_owned(),
        "dns_not_found" => {
            let host = url.split('/').nth(2).unwrap_or_default();
            failed(&format!("could not resolve host {host}."))
        }
        "dns_failure" => failed("Its host could not be resolved at the moment."),
        "connect_failed" => failed("The server could not be reached."),
        "tls_error" => failed("The TLS or certificate check failed."),
        "connection_closed" => failed("The server closed the connection without a response."),
        "malformed_response" => failed("The server sent an invalid HTTP response."),
        "unexpected_partial" => failed("The server sent only part of the file."),
        "truncated" => failed("The transfer ended before the file was complete."),
        "unsupported_encoding" => "could not be fetched. It uses a content encoding that is not supported.".to_owned(),
        "decode_error" => failed("Its content could not be decompressed."),
        _ => panic!("no sentence for the code {code} in this table"),
    }
}
