//! One structured record in the log for each call (read-attachment 15). Never content, nonces or panic payloads.

use crate::message::escape_path;
use crate::record::{Code, Record};

/// The path for the log. For a path outside the roots, only that fact is logged.
fn path(display_path: &str, code: Option<Code>) -> String {
    if code == Some(Code::OutsideWorkspace) {
        "(outside)".to_owned()
    } else {
        escape_path(display_path)
    }
}

/// Writes the log of a staged file that is not announced.
pub(super) fn skipped(display_path: &str, code: Code) {
    let (path, reason) = (path(display_path, Some(code)), code.word());
    tracing::warn!(path, reason, "run.attachment_skipped");
}

/// Writes the log of one call.
pub(super) fn record(display_path: &str, record: &Record) {
    let path = path(display_path, record.error_code);
    let failed = matches!(
        record.error_code,
        Some(Code::Internal | Code::LimitExceeded | Code::Corrupt)
    );
    macro_rules! write_with {
        ($level:ident, $name:literal) => {
            tracing::$level!(
                tool = "read_attachment",
                path,
                kind = record.kind.map(dray_documents::classify::Kind::word),
                mime = record.mime.as_deref(),
                size = record.size_bytes,
                outcome = record.outcome.word(),
                error_code = record.error_code.map(Code::word),
                converter = record.converter.as_deref(),
                elapsed_ms = record.elapsed_ms,
                bytes_out = record.output.len(),
                truncated = record.truncated,
                worker = record.worker,
                $name
            )
        };
    }
    if failed {
        write_with!(warn, "read_attachment.failed");
    } else {
        write_with!(info, "read_attachment");
    }
}
