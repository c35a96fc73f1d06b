//! The routes of the fake server.

use std::convert::Infallible;
use std::sync::Mutex;

use bytes::Bytes;
use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, LOCATION,
    RETRY_AFTER,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};

use super::api;
use super::body::{self, Body};
use super::{DialState, InjectedFault, ReceivedRequest, StoredFile, lock_state};

/// Creation time of every file in Unix milliseconds; the fake has no clock.
const CREATED_AT: u64 = 1_700_000_000_000;

/// Handles one request; for a silent file, no response is sent.
pub(super) async fn answer_request(
    state: &Mutex<DialState>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (head, incoming) = request.into_parts();
    lock_state(state).requests.push(ReceivedRequest {
        method: head.method.to_string(),
        target: head.uri.to_string(),
        headers: head.headers.clone(),
    });
    let path = percent_decode_str(head.uri.path())
        .decode_utf8_lossy()
        .into_owned();
    // Faults are checked before routes and keys, because faults of a path apply to every method and caller.
    let fault = lock_state(state).api.faults.get(&path).cloned();
    if let Some(fault) = fault {
        return Ok(api::faulty_response(&fault).await);
    }
    let response = if path == "/v1/bucket" {
        bucket_response(state, &head.headers)
    } else if let Some(path) = path.strip_prefix("/v1/metadata/files/") {
        read_file(state, &head, path, true).await
    } else if let Some(path) = path.strip_prefix("/v1/files/") {
        match head.method {
            Method::GET => read_file(state, &head, path, false).await,
            Method::PUT => put_file(state, &head.headers, path, incoming).await,
            Method::DELETE => delete_file(state, &head.headers, path),
            _ => status_response(405),
        }
    } else if head.method == Method::POST {
        api::post_resource(state, &head.headers, &path, incoming).await
    } else {
        api::get_resource(state, &head.headers, &path)
    };
    Ok(response)
}

pub(super) fn status_response(code: u16) -> Response<Body> {
    let mut response = Response::new(body::whole_body(Bytes::new()));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

pub(super) fn with_header(
    mut response: Response<Body>,
    name: http::HeaderName,
    value: &str,
) -> Response<Body> {
    if let Ok(value) = value.parse() {
        response.headers_mut().insert(name, value);
    }
    response
}

pub(super) fn json_response(value: &Value) -> Response<Body> {
    let response = Response::new(body::whole_body(value.to_string()));
    with_header(response, CONTENT_TYPE, "application/json")
}

/// The key and the bucket of the caller; status 401 if the key is unknown.
pub(super) fn own_bucket(state: &DialState, headers: &HeaderMap) -> Result<(String, String), u16> {
    let key = headers
        .get("api-key")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    match state.keys.get(key) {
        Some(bucket) => Ok((key.to_owned(), bucket.clone())),
        None => Err(401),
    }
}

fn bucket_response(state: &Mutex<DialState>, headers: &HeaderMap) -> Response<Body> {
    match own_bucket(&lock_state(state), headers) {
        Ok((_, bucket)) => json_response(&json!({ "bucket": bucket })),
        Err(code) => status_response(code),
    }
}

/// Whether the caller may read (or, with `write`, change) the file.
pub(super) fn check_access(
    state: &DialState,
    headers: &HeaderMap,
    path: &str,
    write: bool,
) -> Result<(), u16> {
    let (key, own) = own_bucket(state, headers)?;
    let is_own = path.split('/').next() == Some(own.as_str());
    let is_shared = !write && state.shared.contains(&(key, path.to_owned()));
    if is_own || is_shared {
        Ok(())
    } else {
        Err(403)
    }
}

async fn read_file(
    state: &Mutex<DialState>,
    head: &http::request::Parts,
    path: &str,
    is_metadata: bool,
) -> Response<Body> {
    let (fault, stored) = {
        let state = lock_state(state);
        if let Err(code) = check_access(&state, &head.headers, path, false) {
            return status_response(code);
        }
        if path.ends_with('/') {
            return if is_metadata {
                directory_response(&state, path, head.uri.query().unwrap_or_default())
            } else {
                status_response(404)
            };
        }
        (
            state.file_faults.get(path).cloned(),
            state.files.get(path).cloned(),
        )
    };
    // The wait begins after the lock was released, because a silent file must not block requests for others.
    if fault == Some(InjectedFault::Silent) {
        std::future::pending::<()>().await;
    }
    let Some(file) = stored else {
        return status_response(404);
    };
    match &fault {
        Some(InjectedFault::Status(code)) => status_response(*code),
        Some(InjectedFault::Busy(code, seconds)) => {
            with_header(status_response(*code), RETRY_AFTER, &seconds.to_string())
        }
        Some(InjectedFault::Redirect(url)) => with_header(status_response(302), LOCATION, url),
        _ if is_metadata => metadata_response(path, &file, fault.as_ref()),
        _ => content_response(&file, fault.as_ref()),
    }
}

fn content_response(file: &StoredFile, fault: Option<&InjectedFault>) -> Response<Body> {
    let all = file.content.clone();
    let half = all.slice(..all.len() / 2);
    let promised = || Some(all.len().to_string());
    let (body, length) = match fault {
        Some(InjectedFault::ContentStatus(code)) => return status_response(*code),
        Some(InjectedFault::NoLength | InjectedFault::MetadataLength(_)) => {
            (body::chunked_body(all.clone()), None)
        }
        // The length of the complete content with half of the bytes.
        Some(InjectedFault::Truncated) => (body::broken_body(half), promised()),
        Some(InjectedFault::Stalled) => (body::stalled_body(half), promised()),
        Some(InjectedFault::Endless) => (body::endless_body(all.clone()), None),
        _ => (body::whole_body(all.clone()), promised()),
    };
    let mut response = with_header(Response::new(body), CONTENT_TYPE, &file.media_type);
    response = with_header(response, ETAG, &file.etag);
    if let Some(length) = length {
        response = with_header(response, CONTENT_LENGTH, &length);
    }
    if fault == Some(&InjectedFault::Encoded) {
        response = with_header(response, CONTENT_ENCODING, "gzip");
    }
    response
}

fn metadata_response(
    path: &str,
    file: &StoredFile,
    fault: Option<&InjectedFault>,
) -> Response<Body> {
    if fault == Some(&InjectedFault::GarbledMetadata) {
        return Response::new(body::whole_body("<html>"));
    }
    let mut value = metadata_item(path, file);
    if let Some(members) = value.as_object_mut() {
        match fault {
            Some(InjectedFault::NoLength | InjectedFault::Endless) => {
                members.remove("contentLength");
            }
            Some(
                InjectedFault::MetadataLength(length) | InjectedFault::WrongMetadataLength(length),
            ) => {
                members.insert("contentLength".to_owned(), (*length).into());
            }
            _ => {}
        }
    }
    json_response(&value)
}

fn metadata_item(path: &str, file: &StoredFile) -> Value {
    let (parent, name) = path.rsplit_once('/').unwrap_or_default();
    let (bucket, parent) = parent.split_once('/').unwrap_or((parent, ""));
    json!({
        "name": name,
        "parentPath": if parent.is_empty() { Value::Null } else { parent.into() },
        "bucket": bucket,
        "url": file_url(path),
        "nodeType": "ITEM",
        "resourceType": "FILE",
        "createdAt": CREATED_AT,
        "updatedAt": CREATED_AT,
        "etag": file.etag,
        "contentLength": file.content.len(),
        "contentType": file.media_type,
    })
}

/// Direct children of a directory; each directory below it is listed once.
fn directory_response(state: &DialState, path: &str, query: &str) -> Response<Body> {
    let mut items = Vec::new();
    for (stored_path, file) in &state.files {
        let Some(rest) = stored_path.strip_prefix(path) else {
            continue;
        };
        let entry = match rest.split_once('/') {
            None => metadata_item(stored_path, file),
            Some((name, _)) => json!({
                "name": name,
                "bucket": path.split('/').next().unwrap_or_default(),
                "url": format!("{}/", file_url(&format!("{path}{name}"))),
                "nodeType": "FOLDER",
                "resourceType": "FILE",
            }),
        };
        // Paths are sorted, so the files of one folder below follow each other.
        if items.last() != Some(&entry) {
            items.push(entry);
        }
    }
    let parameter = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.into_iter().find(|(key, _)| *key == name)?;
        value.parse::<usize>().ok()
    };
    let page = state.api.page.unwrap_or(100);
    // A server may return fewer items than requested; clients have to follow the token.
    let limit = parameter("limit").unwrap_or(page).min(page);
    let start = parameter("token").unwrap_or(0);
    let next = (items.len() > start + limit).then(|| (start + limit).to_string());
    let items: Vec<_> = items.into_iter().skip(start).take(limit).collect();
    let mut listing = json!({
        "bucket": path.split('/').next().unwrap_or_default(),
        "url": format!("{}/", file_url(path.trim_end_matches('/'))),
        "nodeType": "FOLDER",
        "resourceType": "FILE",
        "items": items,
    });
    if let (Some(next), Some(members)) = (next, listing.as_object_mut()) {
        members.insert("nextToken".to_owned(), next.into());
    }
    json_response(&listing)
}

fn file_url(path: &str) -> String {
    let mut url = "files".to_owned();
    for segment in path.split('/') {
        url.push('/');
        url.extend(utf8_percent_encode(segment, NON_ALPHANUMERIC));
    }
    url
}

async fn put_file(
    state: &Mutex<DialState>,
    headers: &HeaderMap,
    path: &str,
    incoming: Incoming,
) -> Response<Body> {
    let Ok(received) = incoming.collect().await else {
        return status_response(400);
    };
    let mut state = lock_state(state);
    if let Err(code) = check_access(&state, headers, path, true) {
        return status_response(code);
    }
    if path
        .split('/')
        // DIAL Core refuses such names (quickapps 5.1).
        .any(|segment| segment.is_empty() || segment.ends_with('.'))
    {
        return status_response(400);
    }
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let current = state.files.get(path).map(|file| file.etag.as_str());
    let conflict = match (header(IF_MATCH), header(IF_NONE_MATCH)) {
        // A missing file fails `If-Match` too (RFC 9110, 13.1.1).
        (Some(expected), _) => current != Some(expected),
        (None, Some("*")) => current.is_some(),
        (None, _) => false,
    };
    if conflict {
        return status_response(412);
    }
    let content_type = header(CONTENT_TYPE).unwrap_or_default();
    let Some((content, media_type)) = body::first_part(content_type, &received.to_bytes()) else {
        return status_response(400);
    };
    let file = StoredFile::new(content, media_type);
    let metadata = metadata_item(path, &file);
    state.files.insert(path.to_owned(), file);
    json_response(&metadata)
}

fn delete_file(state: &Mutex<DialState>, headers: &HeaderMap, path: &str) -> Response<Body> {
    let mut state = lock_state(state);
    let expected = headers.get(IF_MATCH).and_then(|value| value.to_str().ok());
    let current = state.files.get(path).map(|file| file.etag.as_str());
    let has_changed = expected.is_some_and(|expected| current != Some(expected));
    match check_access(&state, headers, path, true) {
        Err(code) => status_response(code),
        Ok(()) if has_changed => status_response(412),
        Ok(()) if state.files.remove(path).is_some() => status_response(200),
        Ok(()) => status_response(404),
    }
}
