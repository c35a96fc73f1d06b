//! What users see.

use dray_types::Sha256Digest;

/// A visible message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its number in the chat.
    pub message_id: i64,
    /// Text, or caption of the file.
    pub text: String,
    /// Its file.
    pub file: Option<ShownFile>,
    /// Topic; 0 for none.
    pub thread: i64,
    /// The message it answers; 0 for none.
    pub reply_to: i64,
    /// Album it belongs to; empty for none.
    pub album: String,
    /// Hidden until clicked.
    pub spoiler: bool,
    /// Links in the text are shown with a preview.
    pub preview: bool,
}

/// A file in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFile {
    /// `photo`, `document`, `audio`, `voice`, `video`, `animation`.
    pub kind: &'static str,
    /// Its name, where the kind shows one.
    pub name: Option<String>,
    /// Bytes that came.
    pub size: u64,
    /// Their digest.
    pub sha256: Sha256Digest,
}
