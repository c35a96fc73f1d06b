//! The visible messages.

use dray_types::Sha256Digest;

use super::buttons::ShownButton;

/// A message as users see it in its chat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredMessage {
    /// The message's number, which is unique on the server.
    pub message_id: i64,
    /// Text, or caption of the file.
    pub text: String,
    /// The message's file. In an album, each message has one.
    pub file: Option<ShownFile>,
    /// Topic; 0 for none.
    pub thread: i64,
    /// The message to which it replies; 0 for none.
    pub reply_to: i64,
    /// The message's album; empty for none.
    pub album: String,
    /// Whether the file is blurred until the user clicks it.
    pub spoiler: bool,
    /// Whether links in the text are shown with a preview.
    pub preview: bool,
    /// The text that is shown as a block of code.
    pub code: String,
    /// The buttons under it.
    pub buttons: Vec<ShownButton>,
}

/// A file in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFile {
    /// `photo`, `document`, `audio`, `voice`, `video`, `animation`.
    pub kind: &'static str,
    /// The file's name, if files of this kind have one.
    pub name: Option<String>,
    /// Number of bytes that were uploaded.
    pub size: u64,
    /// SHA-256 digest of the uploaded bytes.
    pub sha256: Sha256Digest,
}
