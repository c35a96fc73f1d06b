//! Detects the type of a file by its bytes (platform-delivery 4).
//!
//! Bytes decide how a file travels; its name only chooses among kinds that share their bytes: the sorts of text, old
//! Office documents. A name that claims something else is reported ([`DetectedKind::disagrees`]), and nothing more.

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

/// How much of the start of a file [`detect_kind`] wants to see. Less works, and finds less.
pub const HEAD_BYTES: usize = 64 * 1024;

/// What a file was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectedKind {
    /// The kind by which the file is routed.
    pub kind: ContentKind,
    /// Its media type, such as `image/png`.
    pub media_type: &'static str,
    /// The usual extension, without a dot; nothing where the kind has none.
    pub extension: Option<&'static str>,
    /// Width and height in pixels, where the head holds them.
    pub dimensions: Option<(u32, u32)>,
    /// The name's extension stands for something else.
    pub disagrees: bool,
}

/// Finds out what a file is.
///
/// `head` is its start, up to [`HEAD_BYTES`] bytes; `name` how it is called; `size` how many bytes it has in all, which
/// says whether `head` is everything.
pub fn detect_kind(head: &[u8], name: &str, size: u64) -> DetectedKind {
    let extension = crate::extension_of(name);
    // A size beyond `usize` cannot be all in memory, so a failed conversion means that more follows.
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
