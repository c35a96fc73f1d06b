//! The reasons why one file of a call could not be read.

use serde::Serialize;

/// The reason, from a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// No file has that id.
    UnknownId,
    /// The file's link expired and could not be renewed.
    Expired,
    /// The file is larger than the limit of reading.
    TooLarge,
    /// The file has no text that could be read, or its format is not supported.
    UnsupportedType,
    /// The file's address is in a private network.
    PrivateNetwork,
    /// Reading took too long.
    Timeout,
    /// The file was read and contains no text.
    Empty,
    /// The requested part begins after the end of the text.
    OutOfRange,
    /// More files were requested than one call reads.
    TooMany,
    /// Any other failure, with a general sentence.
    Failed,
}

impl FailureCode {
    /// Every code that an answer can have.
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

    /// The sentence for a model if the reader provides none.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::UnknownId => "File is not available in the current chat context.",
            Self::Expired => {
                "The link to this file has expired and could not be renewed. Ask the user to upload it again."
            }
            Self::TooLarge => "File exceeds maximum allowed size.",
            Self::UnsupportedType => "This file cannot be read as text.",
            // This sentence and the last one are the peer's words (section 12).
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFailure {
    /// The reason, for programs.
    pub code: FailureCode,
    /// Replaces the code's own sentence. It must not contain an address, path or token.
    pub message: Option<String>,
}

impl ReadFailure {
    /// A failure with the code's own sentence.
    pub fn of(code: FailureCode) -> Self {
        Self {
            code,
            message: None,
        }
    }

    /// A failure with a sentence of the reader in place of the code's own.
    pub fn with_message(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: Some(message.into()),
        }
    }

    /// The size limit, in the contract's words.
    pub fn too_large(limit_bytes: u64) -> Self {
        let message = format!("File exceeds maximum allowed size ({limit_bytes} bytes)");
        Self::with_message(FailureCode::TooLarge, message)
    }

    /// The sentence for the model.
    pub fn text(&self) -> &str {
        let message = self
            .message
            .as_deref()
            // An empty message would leave the model without a reason.
            .filter(|message| !message.is_empty());
        message.unwrap_or(self.code.sentence())
    }
}
