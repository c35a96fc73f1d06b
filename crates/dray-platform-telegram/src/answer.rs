//! What the API says about a message that it showed.

use dray_platform::{Confirmed, Delivery, Error, ErrorKind, Moment, Step};
use serde::Deserialize;
use serde_json::Value;

use crate::plan::{ANIMATION, AUDIO, DOCUMENT, PHOTO, VIDEO, VOICE};

/// A message, as far as it is a confirmation.
#[derive(Debug, Deserialize)]
struct Told {
    message_id: i64,
    #[serde(default)]
    photo: Vec<Content>,
    document: Option<Content>,
    audio: Option<Content>,
    voice: Option<Content>,
    video: Option<Content>,
    animation: Option<Content>,
}

#[derive(Debug, Deserialize)]
struct Content {
    file_id: String,
    file_size: Option<u64>,
    #[serde(default)]
    width: u64,
    #[serde(default)]
    height: u64,
}

impl Told {
    /// The file of the message and the kind it has, whichever was asked for: the server may know better.
    fn file(&self) -> Option<(&'static str, &Content)> {
        let photo = self
            .photo
            .iter()
            .max_by_key(|size| size.width * size.height);
        // Animations stand under `document` as well, for old readers.
        [
            (PHOTO, photo),
            (ANIMATION, self.animation.as_ref()),
            (AUDIO, self.audio.as_ref()),
            (VOICE, self.voice.as_ref()),
            (VIDEO, self.video.as_ref()),
            (DOCUMENT, self.document.as_ref()),
        ]
        .into_iter()
        .find_map(|(kind, file)| Some((kind, file?)))
    }
}

/// The confirmation of a text.
pub(crate) fn text(step: &Step, result: Value) -> Result<Vec<Confirmed>, Error> {
    let message: Told = serde_json::from_value(result).map_err(unreadable)?;
    Ok(vec![Confirmed {
        file: None,
        message_id: message.message_id.to_string(),
        file_id: String::new(),
        size: None,
        route: step.route().to_owned(),
        provisional: false,
    }])
}

/// The confirmations of a file or an album: each file counted, and of the length that was sent.
pub(crate) fn files(
    delivery: &Delivery,
    step: &Step,
    result: Value,
) -> Result<Vec<Confirmed>, Error> {
    let messages: Vec<Told> = if result.is_array() {
        serde_json::from_value(result)
    } else {
        serde_json::from_value(result).map(|message| vec![message])
    }
    .map_err(unreadable)?;
    if messages.len() != step.files().len() {
        let context = format!("{} of {} items came", messages.len(), step.files().len());
        return Err(partial(context));
    }
    let mut confirmed = Vec::new();
    for (index, message) in step.files().iter().zip(&messages) {
        let Some((kind, file)) = message.file() else {
            return Err(partial("the message came without its file".to_owned()));
        };
        let sent = delivery.files.get(*index).map(|file| file.size);
        let is_exact = !matches!(kind, PHOTO | ANIMATION);
        if is_exact && file.file_size.is_some() && file.file_size != sent {
            let context = format!("{:?} of {sent:?} bytes came", file.file_size);
            return Err(partial(context));
        }
        confirmed.push(Confirmed {
            file: Some(*index),
            message_id: message.message_id.to_string(),
            file_id: file.file_id.clone(),
            size: file.file_size,
            route: kind.to_owned(),
            provisional: false,
        });
    }
    Ok(confirmed)
}

/// Something is visible, but not what was asked for.
fn partial(context: String) -> Error {
    Error::new(ErrorKind::Unknown, context).at(Moment::Partial)
}

fn unreadable(cause: serde_json::Error) -> Error {
    Error::new(ErrorKind::Unknown, "the answer is no message")
        .caused_by(cause)
        .ambiguous()
}
