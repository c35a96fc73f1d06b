//! Detects the type of a URL without a known suffix (agent-file-context 16.5). Contains the decisions for two requests
//! that the caller sends: at most [`crate::limits::MAX_CONCURRENT_PROBES`] concurrently and
//! [`crate::limits::PROBE_TIMEOUT`] for both.
//!
//! HEAD is only ever a hint: many signatures cover GET alone, so every failure of HEAD leads to GET.

use std::collections::BTreeSet;

use dray_media_type::kind::{ContentKind, detect_kind};

use crate::address;
use crate::kind;
use crate::model::FileType;
use crate::renew;

/// The `Range` header of the second request.
pub const RANGE_HEADER: &str = "bytes=0-8191";

/// The next step after HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeStep {
    /// The type is known.
    Done(FileType),
    /// Send a GET request with [`RANGE_HEADER`], and read [`crate::limits::MAX_PROBE_BYTES`] at most.
    Get,
}

/// Whether a URL has to be probed: it is absolute `http(s)` without a known suffix.
pub fn is_needed(url: &str) -> bool {
    let name = kind::file_name(url);
    let extension = name.as_deref().and_then(kind::name_extension);
    address::is_absolute_http(url) && !extension.is_some_and(kind::is_known)
}

/// The URLs to probe, each once, ignoring fragments.
pub fn urls_to_probe<'a>(urls: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    urls.into_iter()
        .filter(|url| is_needed(url))
        .map(address::without_fragment)
        .filter(|url| seen.insert(*url))
        .collect()
}

/// Whether a redirect may be followed; the list is the one that the URL itself passed.
pub fn may_follow(allowed_hosts: Option<&[String]>, location: &str) -> bool {
    address::is_absolute_http(location) && renew::allows_host(allowed_hosts, location)
}

/// Decides after HEAD. `response` is `None` if the request failed.
pub fn after_head(response: Option<(u16, Option<&str>)>) -> ProbeStep {
    let Some((200..=299, Some(mime))) = response else {
        // A refused HEAD has no meaning: many signatures are valid only for GET (section 20).
        return ProbeStep::Get;
    };
    of_mime(mime).map_or(ProbeStep::Get, ProbeStep::Done)
}

/// Decides after GET. `response` is `None` if the request failed. An unknown type counts as a document.
pub fn after_get(response: Option<(u16, Option<&str>, &[u8])>) -> FileType {
    let Some((200..=299, mime, bytes)) = response else {
        return FileType::File;
    };
    mime.and_then(of_mime)
        .or_else(|| of_bytes(bytes))
        .unwrap_or_default()
}

/// The file type of a specific MIME type; `None` for a generic one.
fn of_mime(mime: &str) -> Option<FileType> {
    let essence = dray_media_type::essence(mime);
    let (major, minor) = essence.split_once('/')?;
    // Types that servers send for files of unknown type.
    let generic = matches!(
        minor,
        "" | "*"
            | "octet-stream"
            | "x-download"
            | "force-download"
            | "download"
            | "unknown"
            | "x-binary"
    );
    match major {
        _ if generic => None,
        "image" => Some(FileType::Image),
        "audio" => Some(FileType::Audio),
        "video" => Some(FileType::Video),
        _ => Some(FileType::File),
    }
}

/// The type by the first bytes, of formats that people attach.
fn of_bytes(bytes: &[u8]) -> Option<FileType> {
    // A probe reads only the start of the file; the size means that more bytes follow.
    match detect_kind(bytes, "", u64::MAX).kind {
        ContentKind::Image(_) => Some(FileType::Image),
        ContentKind::Audio(_) => Some(FileType::Audio),
        ContentKind::Video(_) => Some(FileType::Video),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_a_known_suffix_is_not_probed() {
        for url in [
            "https://x.example/a.png",
            "https://x.example/a.PDF",
            "https://x.example/r?filename=a.docx",
            "/raw",
            "data:image/png;base64,A",
        ] {
            assert!(!is_needed(url), "{url}");
        }
        for url in [
            "https://x.example/raw",
            "https://x.example/a.bin",
            "https://x.example/",
        ] {
            assert!(is_needed(url), "{url}");
        }
        assert_eq!(
            urls_to_probe([
                "https://x.example/a#1",
                "https://x.example/a#2",
                "https://x.example/b.pdf"
            ]),
            ["https://x.example/a"]
        );
    }

    #[test]
    fn head_is_a_hint_and_never_required() {
        assert_eq!(
            after_head(Some((200, Some("image/png; q=1")))),
            ProbeStep::Done(FileType::Image)
        );
        assert_eq!(
            after_head(Some((200, Some("Application/PDF")))),
            ProbeStep::Done(FileType::File)
        );
        for answer in [
            None,
            Some((405, Some("image/png"))),
            Some((403, None)),
            Some((200, None)),
            Some((200, Some("application/octet-stream"))),
            Some((200, Some("nonsense"))),
        ] {
            assert_eq!(after_head(answer), ProbeStep::Get, "{answer:?}");
        }
    }

    #[test]
    fn bytes_decide_if_the_media_type_is_generic() {
        let cases: [(&[u8], FileType); 11] = [
            (b"\x89PNG\r\n\x1a\nrest", FileType::Image),
            (b"\xff\xd8\xff\xe0", FileType::Image),
            (b"RIFF\0\0\0\0WEBPVP8", FileType::Image),
            (b"\0\0\0\x18ftypheic", FileType::Image),
            (b"\0\0\0\x18ftypM4A ", FileType::Audio),
            (b"\0\0\0\x18ftypisom", FileType::Video),
            (b"\xff\xfb\x90\x00", FileType::Audio),
            (b"\x1a\x45\xdf\xa3", FileType::Video),
            (b"%PDF-1.7", FileType::File),
            (b"\xff\xfeh\0i\0", FileType::File),
            (b"", FileType::File),
        ];
        for (bytes, expected) in cases {
            assert_eq!(
                after_get(Some((206, Some("binary/octet-stream"), bytes))),
                expected,
                "{bytes:?}"
            );
        }
        assert_eq!(
            after_get(Some((206, Some("text/plain"), b"GIF89a"))),
            FileType::File
        );
        assert_eq!(
            after_get(Some((404, Some("image/png"), b"GIF89a"))),
            FileType::File
        );
        assert_eq!(after_get(None), FileType::File);
    }

    #[test]
    fn a_redirect_is_judged_like_the_url() {
        let hosts = vec!["x.example".to_owned()];
        assert!(may_follow(Some(&hosts), "https://x.example/b"));
        assert!(!may_follow(Some(&hosts), "https://y.example/b"));
        assert!(!may_follow(None, "file:///etc/passwd") && !may_follow(None, "/relative"));
    }
}
