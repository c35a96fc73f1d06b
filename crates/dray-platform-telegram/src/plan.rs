//! Which file travels how (platform-delivery 4, the column of Telegram), and what else there is when that is refused.

use dray_media_type::kind::{AudioKind, ContentKind, ImageKind, VideoCodec, VideoKind};
use dray_platform::{
    ChatLimits, ErrorKind, FilesStep, OutgoingDelivery, OutgoingFile, PlatformError, Route,
    SendFlags, SendOutcome, SendStep,
};
use dray_presentation::caption::{self, CaptionPlacement, CaptionUnit};

/// Routes. Each but the first is also the name of a field and, behind `send`, of a method.
pub(crate) const ALBUM_ROUTE: Route = Route::Album;
pub(crate) const PHOTO_ROUTE: Route = Route::Photo;
pub(crate) const VIDEO_ROUTE: Route = Route::Video;
pub(crate) const ANIMATION_ROUTE: Route = Route::Animation;
pub(crate) const AUDIO_ROUTE: Route = Route::Audio;
pub(crate) const VOICE_ROUTE: Route = Route::Voice;
pub(crate) const DOCUMENT_ROUTE: Route = Route::Document;

/// Largest sum of width and height of a photo, and largest ratio of them.
const MAX_PHOTO_SIDES: u64 = 10_000;
const MAX_PHOTO_RATIO: u32 = 20;

/// Text first, then photos and videos in albums, then the rest in its order: runs of documents and of music in albums,
/// everything else alone. Files without bytes are alone, so that their refusal drops no other file.
pub(crate) fn plan_steps(delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
    let routes: Vec<(usize, &OutgoingFile, Route)> = delivery
        .files
        .iter()
        .enumerate()
        .filter_map(|(index, file)| {
            Some((index, file, fitting_route(file, delivery.flags, limits)?))
        })
        .collect();
    let is_visual = |route: Route| matches!(route, PHOTO_ROUTE | VIDEO_ROUTE);
    let visual = routes.iter().filter(|(_, _, route)| is_visual(*route));
    let rest = routes.iter().filter(|(_, _, route)| !is_visual(*route));
    let mut steps = Vec::new();
    for (index, file, route) in visual.chain(rest) {
        let joined = steps
            .last_mut()
            .is_some_and(|last| join_album(last, delivery, limits, file, *index, *route));
        if !joined {
            steps.push(file_step(*route, vec![*index]));
        }
    }
    plan_message(&delivery.message, limits, &mut steps);
    steps
}

const fn file_step(route: Route, files: Vec<usize>) -> SendStep {
    SendStep::Files(FilesStep {
        route,
        files,
        text: String::new(),
        // The server compresses photos again and converts animations.
        lossy: matches!(route, PHOTO_ROUTE | ANIMATION_ROUTE | ALBUM_ROUTE),
    })
}

/// Puts a file into the album that `last` is or becomes, where it may.
fn join_album(
    last: &mut SendStep,
    delivery: &OutgoingDelivery,
    limits: &ChatLimits,
    file: &OutgoingFile,
    index: usize,
    route: Route,
) -> bool {
    // The groups that `sendMediaGroup` takes: documents and audio only with their own kind, photos mixed with videos,
    // animations and voice messages not at all.
    let album = match (last.route(), route) {
        (DOCUMENT_ROUTE, DOCUMENT_ROUTE) => DOCUMENT_ROUTE,
        (AUDIO_ROUTE, AUDIO_ROUTE) => AUDIO_ROUTE,
        (PHOTO_ROUTE, PHOTO_ROUTE) => PHOTO_ROUTE,
        (VIDEO_ROUTE, VIDEO_ROUTE) => VIDEO_ROUTE,
        (PHOTO_ROUTE | VIDEO_ROUTE | ALBUM_ROUTE, PHOTO_ROUTE | VIDEO_ROUTE) => ALBUM_ROUTE,
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
            .is_none_or(|limit| sizes().sum::<u64>() <= limit)
        // One file without bytes makes the server refuse the whole album.
        && sizes().all(|size| size > 0);
    if fits {
        let mut files = last.files().to_vec();
        files.push(index);
        *last = file_step(album, files);
    }
    fits
}

/// The message as the first step's caption, or in steps of its own before it.
fn plan_message(message: &str, limits: &ChatLimits, steps: &mut Vec<SendStep>) {
    let fitting = caption::CaptionLimits {
        // Without files no message can hold a caption, so each text is a message.
        caption: if steps.is_empty() { 0 } else { limits.caption },
        message: limits.text,
        unit: CaptionUnit::Utf16,
    };
    match (
        caption::fit_caption(&caption::neutralise_mentions(message), fitting),
        steps.first_mut(),
    ) {
        (CaptionPlacement::None, _) => {}
        (CaptionPlacement::Fits(text), Some(first)) => first.set_text(text),
        (CaptionPlacement::Fits(text), None) => steps.push(SendStep::Text(text)),
        (CaptionPlacement::Separate(texts), _) => {
            // Before the files: a text that explains them is read first.
            steps.splice(0..0, texts.into_iter().map(SendStep::Text));
        }
    }
}

/// The way of a file that it fits; `None` when it fits none.
fn fitting_route(file: &OutgoingFile, flags: SendFlags, limits: &ChatLimits) -> Option<Route> {
    [native_route(file, flags), DOCUMENT_ROUTE]
        .into_iter()
        .find(|route| file.size <= limits.of(*route))
}

/// The way of a file by what it is.
pub(crate) fn native_route(file: &OutgoingFile, flags: SendFlags) -> Route {
    if flags.as_document {
        return DOCUMENT_ROUTE;
    }
    match file.detected.kind {
        ContentKind::Image(
            ImageKind::Png | ImageKind::Jpeg | ImageKind::Webp { animated: false },
        ) if is_photo_shaped(file) => PHOTO_ROUTE,
        ContentKind::Image(ImageKind::Gif { animated: true }) => ANIMATION_ROUTE,
        // With the index at the end of the file the codec is not known; nearly all such files are H.264.
        ContentKind::Video(VideoKind::Mp4(VideoCodec::H264 | VideoCodec::Unknown)) => VIDEO_ROUTE,
        ContentKind::Audio(AudioKind::OggOpus { .. } | AudioKind::Mp3 | AudioKind::M4a)
            if flags.as_voice =>
        {
            VOICE_ROUTE
        }
        ContentKind::Audio(AudioKind::Mp3 | AudioKind::M4a) => AUDIO_ROUTE,
        _ => DOCUMENT_ROUTE,
    }
}

/// Whether the server takes a picture of this shape as a photo. Where the shape is not known, the server decides.
fn is_photo_shaped(file: &OutgoingFile) -> bool {
    file.detected.dimensions.is_none_or(|(width, height)| {
        let (long, short) = (width.max(height), width.min(height));
        u64::from(width) + u64::from(height) <= MAX_PHOTO_SIDES
            && long <= short.saturating_mul(MAX_PHOTO_RATIO)
    })
}

/// Another route for photos, videos and voice messages that the server refuses as such: as music or as documents.
pub(crate) fn fallback_step(
    delivery: &OutgoingDelivery,
    step: &SendStep,
    error: &PlatformError,
) -> Option<SendStep> {
    // Something visible must not be sent again, whichever route it takes.
    if error.kind() != ErrorKind::UnsupportedKind || error.moment() != SendOutcome::NotSent {
        return None;
    }
    let is_music = |index: &usize| {
        delivery.files.get(*index).is_some_and(|file| {
            matches!(
                file.detected.kind,
                ContentKind::Audio(AudioKind::Mp3 | AudioKind::M4a)
            )
        })
    };
    let other = match step.route() {
        // Recipients can forbid voice messages (`VOICE_MESSAGES_FORBIDDEN`); `sendAudio` takes MP3 and M4A only.
        VOICE_ROUTE if step.files().iter().all(is_music) => AUDIO_ROUTE,
        PHOTO_ROUTE | VIDEO_ROUTE | ALBUM_ROUTE | ANIMATION_ROUTE | AUDIO_ROUTE | VOICE_ROUTE => {
            DOCUMENT_ROUTE
        }
        _ => return None,
    };
    step.with_route(other)
}
