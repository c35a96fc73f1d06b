//! Which file travels how (platform-delivery 4 and 6): one file in one message.

use dray_content::caption::{self, Caption, Unit};
use dray_content::kind::{Audio, Codec, Image, Kind, Video};
use dray_platform::{
    Delivery, Error, ErrorKind, FilesStep, Flags, Limits, Moment, OutgoingFile, Step,
};

pub(crate) const IMAGE: &str = "image";
pub(crate) const VIDEO: &str = "video";
pub(crate) const AUDIO: &str = "audio";
pub(crate) const DOCUMENT: &str = "document";

/// Longest caption and text, in characters.
pub(crate) const CAPTION: usize = 1024;
pub(crate) const TEXT: usize = 4096;

/// The words, then pictures, then the rest in its order.
pub(crate) fn steps(delivery: &Delivery, limits: &Limits, more_kinds: bool) -> Vec<Step> {
    let routed = delivery
        .files
        .iter()
        .enumerate()
        .filter_map(|(index, file)| {
            let native = native(file, delivery.flags, more_kinds);
            let route = [native, DOCUMENT]
                .into_iter()
                .find(|route| file.size <= limits.of(route))?;
            Some((index, route))
        });
    let (pictures, rest): (Vec<_>, Vec<_>) = routed.partition(|(_, route)| *route == IMAGE);
    let mut steps: Vec<Step> = pictures
        .into_iter()
        .chain(rest)
        .map(|(index, route)| step(route, index))
        .collect();
    // Sound carries no words.
    let speaks = steps.first().is_some_and(|step| step.route() != AUDIO);
    let fitting = caption::Limits {
        caption: if speaks { limits.caption } else { 0 },
        message: limits.text,
        unit: Unit::Chars,
    };
    let said = caption::fit(&caption::neutralise(&delivery.message), fitting);
    match (said, steps.first_mut()) {
        (Caption::None, _) => {}
        (Caption::Fits(text), Some(first)) => first.set_text(text),
        (Caption::Fits(text), None) => steps.push(Step::Text(text)),
        (Caption::Separate(texts), _) => {
            steps.splice(0..0, texts.into_iter().map(Step::Text));
        }
    }
    steps
}

fn step(route: &str, file: usize) -> Step {
    Step::Files(FilesStep {
        route: route.to_owned(),
        files: vec![file],
        text: String::new(),
        lossy: matches!(route, IMAGE | VIDEO),
    })
}

/// The way of a file by what it is; a bridge takes more kinds than the Cloud API.
fn native(file: &OutgoingFile, flags: Flags, more_kinds: bool) -> &'static str {
    if flags.as_document {
        return DOCUMENT;
    }
    match file.detected.kind {
        Kind::Image(Image::Png | Image::Jpeg) => IMAGE,
        Kind::Image(Image::Webp { animated: false }) if more_kinds => IMAGE,
        Kind::Image(Image::Gif { animated: true }) if more_kinds => VIDEO,
        Kind::Video(Video::Mp4(Codec::H264 | Codec::Unknown)) => VIDEO,
        Kind::Video(Video::ThreeGp) if !more_kinds => VIDEO,
        Kind::Audio(Audio::Mp3 | Audio::M4a | Audio::OggOpus { .. }) => AUDIO,
        _ => DOCUMENT,
    }
}

/// What is refused as it is goes as a document.
pub(crate) fn fallback(step: &Step, error: &Error) -> Option<Step> {
    let is_refused = matches!(
        error.kind(),
        ErrorKind::UnsupportedKind | ErrorKind::BadFormat | ErrorKind::TooLarge
    ) && error.moment() == Moment::NotSent;
    let has_fallback = matches!(step.route(), IMAGE | VIDEO | AUDIO);
    if !is_refused || !has_fallback {
        return None;
    }
    step.with_route(DOCUMENT)
}
