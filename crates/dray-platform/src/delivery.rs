//! The content of a delivery, its target, and the platform's confirmations.

use std::fmt;
use std::fmt::Debug;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_media_type::kind::DetectedKind;
use dray_types::Sha256Digest;
use futures_util::Stream;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, PlatformError};

/// The target of a message. Written `platform[/account]:chat[#thread]`; the written form has no message to reply to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeliveryTarget {
    /// A name in the list of platforms ([`dray_types::PlatformKind`]).
    pub platform: String,
    /// Which configured account sends; empty for the only one.
    pub account: String,
    /// Chat, channel, room, recipient or webhook name, in the platform's own spelling.
    pub chat: String,
    /// Thread or topic within the chat; empty without one.
    pub thread: String,
    /// Message to reply to; empty without one.
    pub reply_to: String,
}

impl FromStr for DeliveryTarget {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Self, PlatformError> {
        let invalid_target = || {
            PlatformError::new(
                ErrorKind::NotFound,
                "a target is written PLATFORM[/ACCOUNT]:CHAT[#THREAD], for instance telegram:12345",
            )
        };
        let (head, rest) = text.split_once(':').ok_or_else(invalid_target)?;
        let (platform, account) = head.split_once('/').unwrap_or((head, ""));
        // Chats may contain `#` themselves (`#general`, Matrix aliases): the last one divides, and only after a name. The
        // chats of `cli` are directories, which have no threads.
        let (chat, thread) = match rest.rsplit_once('#') {
            Some((chat, thread)) if !chat.is_empty() && platform != "cli" => (chat, thread),
            _ => (rest, ""),
        };
        // Upper case is refused rather than changed: names of platforms are compared as they are.
        let is_word = |word: &str| {
            word.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        // The platform `cli` has only one chat, so its name may be empty.
        if platform.is_empty() || !is_word(platform) || (chat.is_empty() && platform != "cli") {
            return Err(invalid_target());
        }
        Ok(Self {
            platform: platform.to_owned(),
            account: account.to_owned(),
            chat: chat.to_owned(),
            thread: thread.to_owned(),
            reply_to: String::new(),
        })
    }
}

impl fmt::Display for DeliveryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.platform)?;
        if !self.account.is_empty() {
            write!(f, "/{}", self.account)?;
        }
        write!(f, ":{}", self.chat)?;
        if !self.thread.is_empty() {
            write!(f, "#{}", self.thread)?;
        }
        Ok(())
    }
}

/// A stream of bytes from the store or to it. It ends at the first error.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, PlatformError>> + Send>>;

/// Stored bytes that can be opened again for another attempt. Length and digest are checked while reading: a stream
/// ends without an error only after exactly the promised bytes.
#[async_trait]
pub trait ByteSource: Debug + Send + Sync {
    /// Opens the bytes at their beginning. Each stream is independent of the others.
    async fn open(&self) -> Result<ByteStream, PlatformError>;
}

/// One file to deliver.
#[derive(Clone, Debug)]
pub struct OutgoingFile {
    /// The name that users see; cleaned already, but not escaped for any wire.
    pub name: String,
    /// Exact number of bytes, which a platform may announce before it reads them.
    pub size: u64,
    /// SHA-256 digest of the bytes.
    pub sha256: Sha256Digest,
    /// The kind and the media type, detected from the bytes and not from the name.
    pub detected: DetectedKind,
    /// Opens the bytes, once per attempt.
    pub source: Arc<dyn ByteSource>,
    /// The platform's id of the same bytes in the same kind from an earlier delivery of this account; `None` without
    /// one. If it has expired, [`ErrorKind::StaleFileId`] requests the bytes.
    pub file_id: Option<String>,
}

/// Switches of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendFlags {
    /// Whether audio is sent as a voice message if the platform and the format allow it.
    pub as_voice: bool,
    /// Whether all files are sent as plain documents, so that their bytes are not changed.
    pub as_document: bool,
    /// Whether pictures are hidden until clicked, where the platform can.
    pub spoiler: bool,
}

/// How a file or a text travels on a platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// A picture that the platform may recompress.
    Photo,
    /// Exact bytes.
    Document,
    /// A short video without sound.
    Animation,
    /// A video with a player.
    Video,
    /// Sound with a player.
    Audio,
    /// A voice message.
    Voice,
    /// Several pictures or videos in one message.
    Album,
    /// A file of a message with text.
    Attachment,
    /// A plain file.
    File,
    /// A picture.
    Image,
    /// A text with the link to a file.
    Link,
    /// Characters alone, without a file.
    Text,
    /// The notice about failures; platforms send it as a text.
    Notice,
    /// A copy into a directory.
    Copy,
}

impl Route {
    /// Every route.
    pub const ALL: [Self; 14] = [
        Self::Photo,
        Self::Document,
        Self::Animation,
        Self::Video,
        Self::Audio,
        Self::Voice,
        Self::Album,
        Self::Attachment,
        Self::File,
        Self::Image,
        Self::Link,
        Self::Text,
        Self::Notice,
        Self::Copy,
    ];

    /// The name in receipts, metrics and keys.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Photo => "photo",
            Self::Document => "document",
            Self::Animation => "animation",
            Self::Video => "video",
            Self::Audio => "audio",
            Self::Voice => "voice",
            Self::Album => "album",
            Self::Attachment => "attachment",
            Self::File => "file",
            Self::Image => "image",
            Self::Link => "link",
            Self::Text => "text",
            Self::Notice => "notice",
            Self::Copy => "copy",
        }
    }

    /// Whether it shows only a text. A link is a text that replaces its file.
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Link | Self::Text | Self::Notice)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One visible request: a text, a text with a link, one file, or an album.
///
/// Texts and links have no files in their type, so that a platform cannot attach the file of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendStep {
    /// Text without files, in the platform's own length limit.
    Text(String),
    /// Text with the link to a file. It is sent without a preview: preview robots use up one-time links.
    Link(String),
    /// Files, with their caption.
    Files(FilesStep),
}

/// A visible request that shows files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesStep {
    /// The kind of message that carries the files.
    pub route: Route,
    /// Indices of the files of the delivery that it shows.
    pub files: Vec<usize>,
    /// Caption; may be empty.
    pub text: String,
    /// Whether the user's file may differ from the bytes (a photo is recompressed).
    pub lossy: bool,
}

impl SendStep {
    /// Files without a caption whose exact bytes arrive.
    pub const fn files_by(route: Route, files: Vec<usize>) -> Self {
        Self::Files(FilesStep {
            route,
            files,
            text: String::new(),
            lossy: false,
        })
    }

    /// The kind of message that carries it.
    pub const fn route(&self) -> Route {
        match self {
            Self::Text(_) => Route::Text,
            Self::Link(_) => Route::Link,
            Self::Files(step) => step.route,
        }
    }

    /// Caption or text; may be empty.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Link(text) => text,
            Self::Files(step) => &step.text,
        }
    }

    /// Sets the caption or text.
    pub fn set_text(&mut self, new: String) {
        match self {
            Self::Text(text) | Self::Link(text) => *text = new,
            Self::Files(step) => step.text = new,
        }
    }

    /// Indices of the files of the delivery that it shows; none for a text or a link.
    pub fn files(&self) -> &[usize] {
        match self {
            Self::Text(_) | Self::Link(_) => &[],
            Self::Files(step) => &step.files,
        }
    }

    /// Whether the user's file may differ from the bytes.
    pub fn is_lossy(&self) -> bool {
        matches!(self, Self::Files(step) if step.lossy)
    }

    /// The same files and caption on another route, which keeps their bytes; `None` for a text or a link.
    #[must_use]
    pub fn with_route(&self, route: Route) -> Option<Self> {
        match self {
            Self::Text(_) | Self::Link(_) => None,
            Self::Files(step) => Some(Self::Files(FilesStep {
                route,
                lossy: false,
                ..step.clone()
            })),
        }
    }
}

/// A file of a delivery, and the platform's confirmation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmedFile {
    /// Index of the file in the delivery; `None` for text.
    pub file: Option<usize>,
    /// The platform's id of the visible message.
    pub message_id: String,
    /// The platform's id of the file, reusable as [`OutgoingFile::file_id`]; empty without one.
    pub file_id: String,
    /// Number of bytes that the platform reports, when it does.
    pub size: Option<u64>,
    /// Route that was finally used, which may differ from the planned one.
    pub route: Route,
    /// True when acceptance was confirmed but a later status may still correct it (`WhatsApp`).
    pub provisional: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_they_are_written() {
        for text in [
            "telegram:-1001234",
            "telegram/bot2:42#7",
            "matrix:!room:example.org",
            "slack:C012",
            "email:a@example.org",
            "cli:",
        ] {
            assert_eq!(text.parse::<DeliveryTarget>().unwrap().to_string(), text);
        }
        let target: DeliveryTarget = "matrix:#alias:example.org".parse().unwrap();
        assert_eq!(
            (target.chat.as_str(), target.thread.as_str()),
            ("#alias:example.org", "")
        );
        let directory: DeliveryTarget = "cli:/srv/c#/out".parse().unwrap();
        assert_eq!(
            (directory.chat.as_str(), directory.thread.as_str()),
            ("/srv/c#/out", "")
        );
        for invalid_target in ["", "telegram", "telegram:", ":x", "Tele:1"] {
            assert!(
                invalid_target.parse::<DeliveryTarget>().is_err(),
                "{invalid_target:?}"
            );
        }
    }
}
