//! Detects the type of a file by its bytes (sniffing; platform-delivery 4).
//!
//! The bytes determine how a file is sent. The name only selects among kinds with the same bytes: types of text, old
//! Office documents. A name that claims another type is only reported ([`DetectedKind::disagrees`]).

mod bytes;
mod claim;
mod ebml;
mod image;
mod iso;
mod markup;
mod mpeg;
mod ogg;
mod riff;
mod signature;
mod sniff;
#[cfg(test)]
mod tests;
mod text;
mod types;
mod zip;

pub use signature::{FormatSignature, Signature, find_signature};
pub use types::{
    ArchiveKind, AudioKind, ContentKind, DocumentKind, ExecutableKind, ImageKind, VideoCodec,
    VideoKind,
};

/// Bytes of the start of a file that [`detect_kind`] uses at most. A shorter head can give a less precise kind.
pub const HEAD_BYTES: usize = 64 * 1024;

/// The detected kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectedKind {
    /// The kind by which the file is routed.
    pub kind: ContentKind,
    /// The kind's media type, such as `image/png`.
    pub media_type: &'static str,
    /// The usual extension, without a dot; `None` if the kind has none.
    pub extension: Option<&'static str>,
    /// Width and height in pixels, if the head contains them.
    pub dimensions: Option<(u32, u32)>,
    /// Whether the name's extension belongs to another type.
    pub disagrees: bool,
}

/// Detects the kind of a file.
///
/// `head` is its start, up to [`HEAD_BYTES`] bytes; `name` is its file name; `size` is its total number of bytes, which
/// shows whether `head` is the complete file.
pub fn detect_kind(head: &[u8], name: &str, size: u64) -> DetectedKind {
    let extension = crate::extension_of(name);
    // A file larger than `usize` cannot be completely in memory, so a failed conversion means that more bytes follow.
    let whole = u64::try_from(head.len()).is_ok_and(|length| length >= size);
    let found = if size == 0 {
        sniff::SniffResult::of(ContentKind::Empty)
    } else {
        sniff::sniff(head, &extension, whole)
    };
    let media_type = found.media_type.unwrap_or_else(|| found.kind.media_type());
    DetectedKind {
        kind: found.kind,
        media_type,
        extension: found.extension.or_else(|| found.kind.extension()),
        dimensions: found.dimensions,
        disagrees: claim::extension_disagrees(found.kind, &extension),
    }
}
