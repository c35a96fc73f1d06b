//! Reads confirmations: the messages that the API returns for a successful request.

use dray_platform::{
    ConfirmedFile, ErrorKind, OutgoingDelivery, PlatformError, Route, SendOutcome, SendStep,
};
use serde::Deserialize;
use serde_json::Value;

use crate::plan::{
    ANIMATION_ROUTE, AUDIO_ROUTE, DOCUMENT_ROUTE, PHOTO_ROUTE, VIDEO_ROUTE, VOICE_ROUTE,
};

/// The fields of a message of the bot that confirm it.
#[derive(Debug, Deserialize)]
struct ConfirmedMessage {
    message_id: i64,
    #[serde(default)]
    photo: Vec<MessageContent>,
    document: Option<MessageContent>,
    audio: Option<MessageContent>,
    voice: Option<MessageContent>,
    video: Option<MessageContent>,
    animation: Option<MessageContent>,
}

#[derive(Debug, Deserialize)]
struct MessageContent {
    file_id: String,
    file_size: Option<u64>,
    #[serde(default)]
    width: u64,
    #[serde(default)]
    height: u64,
}

impl ConfirmedMessage {
    /// The file of the message and its actual kind, which may differ from the requested one.
    fn file(&self) -> Option<(Route, &MessageContent)> {
        let photo = self
            // A photo has several sizes; the largest is the one that was sent.
            .photo
            .iter()
            .max_by_key(|size| size.width.saturating_mul(size.height));
        // Animations are in `document` too, for old clients.
        [
            (PHOTO_ROUTE, photo),
            (ANIMATION_ROUTE, self.animation.as_ref()),
            (AUDIO_ROUTE, self.audio.as_ref()),
            (VOICE_ROUTE, self.voice.as_ref()),
            (VIDEO_ROUTE, self.video.as_ref()),
            (DOCUMENT_ROUTE, self.document.as_ref()),
        ]
        .into_iter()
        .find_map(|(kind, file)| Some((kind, file?)))
    }
}

/// The confirmation of a text.
pub(crate) fn confirm_text(
    step: &SendStep,
    result: Value,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let message: ConfirmedMessage = serde_json::from_value(result).map_err(unreadable_error)?;
    Ok(vec![ConfirmedFile {
        file: None,
        message_id: message.message_id.to_string(),
        file_id: String::new(),
        size: None,
        route: step.route(),
        provisional: false,
    }])
}

/// The confirmations of a file or an album: every file is present, and its length is the one that was sent.
pub(crate) fn confirm_files(
    delivery: &OutgoingDelivery,
    step: &SendStep,
    result: Value,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let messages: Vec<ConfirmedMessage> = if result.is_array() {
        serde_json::from_value(result)
    } else {
        serde_json::from_value(result).map(|message| vec![message])
    }
    .map_err(unreadable_error)?;
    // The request succeeded, but the number of items is not the number of files, so it is unknown which files are
    // visible.
    if messages.len() != step.files().len() {
        let context = format!(
            "{} of {} items were confirmed",
            messages.len(),
            step.files().len()
        );
        return Err(partial_error(context));
    }
    let mut confirmed = Vec::new();
    for (index, message) in step.files().iter().zip(&messages) {
        let Some((kind, file)) = message.file() else {
            return Err(partial_error(
                "the confirmed message has no file".to_owned(),
            ));
        };
        let sent = delivery.files.get(*index).map(|file| file.size);
        // Photos are compressed again and animations become MP4, so their lengths differ.
        let is_exact = !matches!(kind, PHOTO_ROUTE | ANIMATION_ROUTE);
        if is_exact && file.file_size.is_some() && file.file_size != sent {
            let context = format!("{:?} of {sent:?} bytes were confirmed", file.file_size);
            return Err(partial_error(context));
        }
        confirmed.push(ConfirmedFile {
            file: Some(*index),
            message_id: message.message_id.to_string(),
            file_id: file.file_id.clone(),
            size: file.file_size,
            route: kind,
            provisional: false,
        });
    }
    Ok(confirmed)
}

/// The error for a message that differs from the request. Sending again could show it twice.
fn partial_error(context: String) -> PlatformError {
    PlatformError::new(ErrorKind::Unknown, context).with_outcome(SendOutcome::Partial)
}

/// The error for a success whose response cannot be read: the message is probably visible.
fn unreadable_error(cause: serde_json::Error) -> PlatformError {
    PlatformError::new(ErrorKind::Unknown, "the response is not a message")
        .caused_by(cause)
        .ambiguous()
}
