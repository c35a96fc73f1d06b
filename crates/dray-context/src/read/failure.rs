//! Why one file of a call could not be read.

use serde::{Deserialize, Serialize};

/// Why, from a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// No file has that id.
    UnknownId,
    /// Its link expired and could not be renewed.
    Expired,
    /// It is larger than what is read.
    TooLarge,
    /// It has no text that could be read, or its format is not supported.
    UnsupportedType,
    /// It lies in a private network.
    PrivateNetwork,
    /// It took too long.
    Timeout,
    /// It holds no text.
    Empty,
    /// The asked part begins behind its end.
    OutOfRange,
    /// More files were asked for than one call reads.
    TooMany,
    /// Anything else.
    Failed,
}

impl FailureCode {
    /// All of them.
    pub const ALL_CODES: [Self; 10] = [
        Self::UnknownId,
        Self::Expired,
        Self::TooLarge,
        Self::UnsupportedType,
        Self::PrivateNetwork,
        Self::Timeout,
        Self::Empty,
        Self::OutOfRange,
        Self::TooMany,
        Self::Failed,
    ];

    /// The sentence for a model when the reader had none.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::UnknownId => "File is not available in the current chat context.",
            Self::Expired => {
                "The link to this file has expired and could not be renewed. Ask the user to upload it again."
            }
            Self::TooLarge => "File exceeds maximum allowed size.",
            Self::UnsupportedType => "This file cannot be read as text.",
            Self::PrivateNetwork => "Request to private network not allowed",
            Self::Timeout => "Reading this file took too long. Try again, or read a part of it.",
            Self::Empty => "The file holds no text.",
            Self::OutOfRange => "The asked part begins behind the end of the text.",
            Self::TooMany => "Too many files in one call. Read this one in another call.",
            Self::Failed => "Load file error",
        }
    }
}

/// One failure, with the sentence for the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFailure {
    /// Why.
    pub code: FailureCode,
    /// What to say instead of the code's own sentence. It must hold no address, path or token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl ReadFailure {
    /// With the code's own sentence.
    pub fn of(code: FailureCode) -> Self {
        Self {
            code,
            message: None,
        }
    }

    /// With another sentence.
    pub fn saying(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: Some(message.into()),
        }
    }

    /// The size limit, in the contract's words.
    pub fn too_large(limit_bytes: u64) -> Self {
        let message = format!("File exceeds maximum allowed size ({limit_bytes} bytes)");
        Self::saying(FailureCode::TooLarge, message)
    }

    /// What the model sees.
    pub fn text(&self) -> &str {
        let message = self
            .message
            .as_deref()
            .filter(|message| !message.is_empty());
        message.unwrap_or(self.code.sentence())
    }
}
