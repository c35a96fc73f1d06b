//! What is to be delivered, where to, and what the platform said about it.

use std::fmt;
use std::fmt::Debug;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_content::kind::DetectedKind;
use dray_types::Sha256Digest;
use futures_util::Stream;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, PlatformError};

/// Where a message goes. Written `platform[/account]:chat[#thread]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeliveryTarget {
    /// `telegram`, `discord`, `slack`, `whatsapp`, `matrix`, `email`, `webhook`, `cli`.
    pub platform: String,
    /// Which configured account sends; empty for the only one.
    pub account: String,
    /// Chat, channel, room, recipient or webhook name, in the platform's own spelling.
    pub chat: String,
    /// Thread or topic within the chat; empty for none.
    pub thread: String,
    /// Message to answer; empty for none.
    pub reply_to: String,
}

impl FromStr for DeliveryTarget {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Self, PlatformError> {
        let wrong = || {
            PlatformError::new(
                ErrorKind::NotFound,
                "a target is written PLATFORM[/ACCOUNT]:CHAT[#THREAD], for instance telegram:12345",
            )
        };
        let (head, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (platform, account) = head.split_once('/').unwrap_or((head, ""));
        // Matrix rooms and Slack channels may hold any of these; only the last `#` after a name divides.
        let (chat, thread) = match rest.rsplit_once('#') {
            Some((chat, thread)) if !chat.is_empty() => (chat, thread),
            _ => (rest, ""),
        };
        let is_word = |word: &str| {
            word.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if platform.is_empty() || !is_word(platform) || (chat.is_empty() && platform != "cli") {
            return Err(wrong());
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

/// A stream of bytes from the store or to it.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, PlatformError>> + Send>>;

/// Stored bytes that can be opened again for another try. Length and digest are checked while reading: a stream
/// ends without an error only after exactly the promised bytes.
#[async_trait]
pub trait ByteSource: Debug + Send + Sync {
    /// Opens it at the beginning.
    async fn open(&self) -> Result<ByteStream, PlatformError>;
}

/// One file to deliver.
#[derive(Clone, Debug)]
pub struct OutgoingFile {
    /// Visible name, cleaned already.
    pub name: String,
    /// Exact bytes.
    pub size: u64,
    /// Digest of the bytes.
    pub sha256: Sha256Digest,
    /// What the bytes are.
    pub detected: DetectedKind,
    /// The bytes.
    pub source: Arc<dyn ByteSource>,
    /// The platform's id of the same bytes in the same kind from an earlier delivery of this account, when there is
    /// one.
    pub file_id: Option<String>,
}

/// Switches of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendFlags {
    /// Audio as a voice message.
    pub as_voice: bool,
    /// Everything as a plain document: exact bytes.
    pub as_document: bool,
    /// Hidden until clicked, where the platform can.
    pub spoiler: bool,
}

/// How a file travels on a platform: `photo`, `document`, `voice`, `attachment`, `image`, `text`, `link` …
pub type Route = &'static str;

/// Route of a text.
pub const TEXT_ROUTE: Route = "text";
/// Route of a text that holds links to files.
pub const LINK_ROUTE: Route = "link";

/// One visible request: a text, a text with a link, one file, or an album.
///
/// A text and a link have no files by type, so that a platform cannot attach the file that a link stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendStep {
    /// Text alone.
    Text(String),
    /// Text that holds the link to a file. It is sent without a preview: preview robots use one-time links up.
    Link(String),
    /// Files, with their caption.
    Files(FilesStep),
}

/// A visible request that shows files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesStep {
    /// How the files travel.
    pub route: String,
    /// Indices of the files of the delivery that it shows.
    pub files: Vec<usize>,
    /// Caption; empty for none.
    pub text: String,
    /// Whether what the user gets may differ from the bytes (a photo is recompressed).
    pub lossy: bool,
}

impl SendStep {
    /// Files without a caption whose exact bytes arrive.
    pub fn files_by(route: &str, files: Vec<usize>) -> Self {
        Self::Files(FilesStep {
            route: route.to_owned(),
            files,
            text: String::new(),
            lossy: false,
        })
    }

    /// How it travels.
    pub fn route(&self) -> &str {
        match self {
            Self::Text(_) => TEXT_ROUTE,
            Self::Link(_) => LINK_ROUTE,
            Self::Files(step) => &step.route,
        }
    }

    /// Caption or text; empty for none.
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

    /// Indices of the files of the delivery that it shows; none of a text or a link.
    pub fn files(&self) -> &[usize] {
        match self {
            Self::Text(_) | Self::Link(_) => &[],
            Self::Files(step) => &step.files,
        }
    }

    /// Whether what the user gets may differ from the bytes.
    pub fn is_lossy(&self) -> bool {
        matches!(self, Self::Files(step) if step.lossy)
    }

    /// The same files on another route that keeps their bytes; `None` for a text or a link.
    #[must_use]
    pub fn with_route(&self, route: &str) -> Option<Self> {
        match self {
            Self::Text(_) | Self::Link(_) => None,
            Self::Files(step) => Some(Self::Files(FilesStep {
                route: route.to_owned(),
                lossy: false,
                ..step.clone()
            })),
        }
    }
}

/// A file of a delivery and what the platform confirmed of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfirmedFile {
    /// Index of the file in the delivery; `None` for text.
    pub file: Option<usize>,
    /// The platform's id of the visible message.
    pub message_id: String,
    /// The platform's id of the file, reusable as [`OutgoingFile::file_id`]; empty when it gave none.
    pub file_id: String,
    /// Bytes that the platform says it has, when it says so.
    pub size: Option<u64>,
    /// Route that was taken in the end, which may differ from the planned one.
    pub route: String,
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
        for wrong in ["", "telegram", "telegram:", ":x", "Tele:1"] {
            assert!(wrong.parse::<DeliveryTarget>().is_err(), "{wrong:?}");
        }
    }
}
