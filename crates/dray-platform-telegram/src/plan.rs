//! Which file travels how (platform-delivery 4, the column of Telegram), and what else there is when that is refused.

use dray_content::caption::{self, Caption, Unit};
use dray_content::kind::{Audio, Codec, Image, Kind, Video};
use dray_platform::{
    Delivery, Error, ErrorKind, FilesStep, Flags, Limits, Moment, OutgoingFile, Step,
};

/// Routes. Each but the first is also the name of a field and, behind `send`, of a method.
pub(crate) const ALBUM: &str = "album";
pub(crate) const PHOTO: &str = "photo";
pub(crate) const VIDEO: &str = "video";
pub(crate) const ANIMATION: &str = "animation";
pub(crate) const AUDIO: &str = "audio";
pub(crate) const VOICE: &str = "voice";
pub(crate) const DOCUMENT: &str = "document";

/// Largest sum of width and height of a photo, and largest ratio of them.
const SIDES: u64 = 10_000;
const RATIO: u32 = 20;

/// Text first, then photos and videos in albums, then the rest in its order: runs of documents and of music in albums,
/// everything else alone. Files without bytes are alone, so that their refusal drops no other file.
pub(crate) fn steps(delivery: &Delivery, limits: &Limits) -> Vec<Step> {
    let routes: Vec<(usize, &OutgoingFile, &'static str)> = delivery
        .files
        .iter()
        .enumerate()
        .filter_map(|(index, file)| Some((index, file, route(file, delivery.flags, limits)?)))
        .collect();
    let is_visual = |route: &str| matches!(route, PHOTO | VIDEO);
    let visual = routes.iter().filter(|(_, _, route)| is_visual(route));
    let rest = routes.iter().filter(|(_, _, route)| !is_visual(route));
    let mut steps = Vec::new();
    for (index, file, route) in visual.chain(rest) {
        let joined = steps
            .last_mut()
            .is_some_and(|last| join(last, delivery, limits, file, *index, route));
        if !joined {
            steps.push(step(route, vec![*index]));
        }
    }
    say(&delivery.message, limits, &mut steps);
    steps
}

fn step(route: &str, files: Vec<usize>) -> Step {
    Step::Files(FilesStep {
        route: route.to_owned(),
        files,
        text: String::new(),
        lossy: matches!(route, PHOTO | ANIMATION | ALBUM),
    })
}

/// Puts a file into the album that `last` is or becomes, where it may.
fn join(
    last: &mut Step,
    delivery: &Delivery,
    limits: &Limits,
    file: &OutgoingFile,
    index: usize,
    route: &'static str,
) -> bool {
    let album = match (last.route(), route) {
        (DOCUMENT, DOCUMENT) => DOCUMENT,
        (AUDIO, AUDIO) => AUDIO,
        (PHOTO, PHOTO) => PHOTO,
        (VIDEO, VIDEO) => VIDEO,
        (PHOTO | VIDEO | ALBUM, PHOTO | VIDEO) => ALBUM,
        _ => return false,
    };
    let sizes = || {
        let earlier = last
            .files()
            .iter()
            .filter_map(|index| delivery.files.get(*index));
        earlier.chain([file]).map(|file| file.size)
    };
    let fits = last.files().len() < limits.per_message
        && limits
            .request
            .is_none_or(|most| sizes().sum::<u64>() <= most)
        && sizes().all(|size| size > 0);
    if fits {
        let mut files = last.files().to_vec();
        files.push(index);
        *last = step(album, files);
    }
    fits
}

/// The message as the first step's caption, or in steps of its own before it.
fn say(message: &str, limits: &Limits, steps: &mut Vec<Step>) {
    let fitting = caption::Limits {
        caption: if steps.is_empty() { 0 } else { limits.caption },
        message: limits.text,
        unit: Unit::Utf16,
    };
    match (
        caption::fit(&caption::neutralise(message), fitting),
        steps.first_mut(),
    ) {
        (Caption::None, _) => {}
        (Caption::Fits(text), Some(first)) => first.set_text(text),
        (Caption::Fits(text), None) => steps.push(Step::Text(text)),
        (Caption::Separate(texts), _) => {
            steps.splice(0..0, texts.into_iter().map(Step::Text));
        }
    }
}

/// The way of a file that it fits; `None` when it fits none.
fn route(file: &OutgoingFile, flags: Flags, limits: &Limits) -> Option<&'static str> {
    [native(file, flags), DOCUMENT]
        .into_iter()
        .find(|route| file.size <= limits.of(route))
}

/// The way of a file by what it is.
pub(crate) fn native(file: &OutgoingFile, flags: Flags) -> &'static str {
    if flags.as_document {
        return DOCUMENT;
    }
    match file.detected.kind {
        Kind::Image(Image::Png | Image::Jpeg | Image::Webp { animated: false })
            if is_photo_shaped(file) =>
        {
            PHOTO
        }
        Kind::Image(Image::Gif { animated: true }) => ANIMATION,
        // Where the index stands at the end the coding is not known; nearly all such files are H.264.
        Kind::Video(Video::Mp4(Codec::H264 | Codec::Unknown)) => VIDEO,
        Kind::Audio(Audio::OggOpus { .. } | Audio::Mp3 | Audio::M4a) if flags.as_voice => VOICE,
        Kind::Audio(Audio::Mp3 | Audio::M4a) => AUDIO,
        _ => DOCUMENT,
    }
}

/// Whether the server takes a picture of this shape as a photo. It is asked where the shape is not known.
fn is_photo_shaped(file: &OutgoingFile) -> bool {
    file.detected.dimensions.is_none_or(|(width, height)| {
        let (long, short) = (width.max(height), width.min(height));
        u64::from(width) + u64::from(height) <= SIDES && long <= short.saturating_mul(RATIO)
    })
}

/// Pictures, films and voices that the server does not take as such go as music or documents.
pub(crate) fn fallback(delivery: &Delivery, step: &Step, error: &Error) -> Option<Step> {
    if error.kind() != ErrorKind::UnsupportedKind || error.moment() != Moment::NotSent {
        return None;
    }
    let is_music = |index: &usize| {
        delivery
            .files
            .get(*index)
            .is_some_and(|file| matches!(file.detected.kind, Kind::Audio(Audio::Mp3 | Audio::M4a)))
    };
    let other = match step.route() {
        VOICE if step.files().iter().all(is_music) => AUDIO,
        PHOTO | VIDEO | ALBUM | ANIMATION | AUDIO | VOICE => DOCUMENT,
        _ => return None,
    };
    step.with_route(other)
}
