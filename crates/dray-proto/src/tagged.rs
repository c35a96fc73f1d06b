//! Paths that an agent's text names with `MEDIA:` tags (platform-delivery 3): how each is looked up in the sandbox.
//!
//! Every service that sends tagged files sends the same request and interprets the reply in the same way. This module
//! does no I/O itself.

use dray_types::{Fault, FaultCode};

use crate::v1::{self, SandboxEntryKind};

/// Most paths of one text that are looked up; those beyond count as missing.
pub const MAX_TAGGED_PATHS: usize = 256;

/// Most lookups of one text at one time.
pub const MAX_LOOKUPS: usize = 4;

/// The request that looks up a path. Links are followed, so that two names of one file are recognized.
pub fn lookup_request(sandbox: v1::SandboxRef, path: &str) -> v1::StatSandboxRequest {
    v1::StatSandboxRequest {
        sandbox: Some(sandbox),
        path: path.as_bytes().to_vec(),
        follow: true,
        ..v1::StatSandboxRequest::default()
    }
}

/// The real path to send for `path`, with links resolved. `None` for an entry that is neither a file nor a directory.
pub fn real_path(path: &str, entry: v1::SandboxEntry) -> Option<String> {
    let kind = entry.entry_kind();
    if !matches!(kind, SandboxEntryKind::File | SandboxEntryKind::Directory) {
        return None;
    }
    // A path that is not UTF-8 cannot be part of a text, so the spelling of the tag is kept.
    let real = String::from_utf8(entry.real_path).unwrap_or_default();
    Some(if real.is_empty() {
        path.to_owned()
    } else {
        real
    })
}

/// Whether a fault means that the path is missing or not allowed. For any other fault this is unknown.
pub const fn is_missing(fault: &Fault) -> bool {
    matches!(
        fault.code,
        FaultCode::NotFound
            | FaultCode::Denied
            | FaultCode::InvalidArgument
            | FaultCode::Unsupported
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: SandboxEntryKind, real_path: &[u8]) -> v1::SandboxEntry {
        v1::SandboxEntry {
            real_path: real_path.to_vec(),
            ..v1::SandboxEntry::default()
        }
        .with_kind(kind)
    }

    #[test]
    fn files_and_directories_are_sent_from_where_their_links_lead() {
        let file = entry(SandboxEntryKind::File, b"/w/a.pdf");
        assert_eq!(real_path("/l/a.pdf", file).as_deref(), Some("/w/a.pdf"));
        let directory = entry(SandboxEntryKind::Directory, b"");
        assert_eq!(real_path("/w/d", directory).as_deref(), Some("/w/d"));
        let not_text = entry(SandboxEntryKind::File, b"/w/\xff");
        assert_eq!(real_path("/w/l", not_text).as_deref(), Some("/w/l"));
        assert_eq!(
            real_path("/w/l", entry(SandboxEntryKind::Symlink, b"")),
            None
        );
    }

    #[test]
    fn only_faults_about_the_path_make_it_missing() {
        for code in FaultCode::ALL_CODES {
            let about_path = matches!(
                code.as_str(),
                "not_found" | "denied" | "invalid_argument" | "unsupported"
            );
            assert_eq!(is_missing(&Fault::new(code, "")), about_path, "{code:?}");
        }
    }
}
