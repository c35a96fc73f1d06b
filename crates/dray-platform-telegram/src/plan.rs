//! Chooses the API method for each file (platform-delivery 4, the column of Telegram), and another one after a refusal.

use dray_media_type::kind::{AudioKind, ContentKind, ImageKind, VideoCodec, VideoKind};
use dray_platform::{
    ChatLimits, ErrorKind, FilesStep, OutgoingDelivery, OutgoingFile, PlatformError, Route,
    SendFlags, SendOutcome, SendStep,
};
use dray_presentation::caption::{CaptionUnit, neutralise_mentions};

// Routes. Except for albums, `send` and the route's name make the API method, and the name is also the form field.
pub(crate) const ALBUM_ROUTE: Route = Route::Album;
pub(crate) const PHOTO_ROUTE: Route = Route::Photo;
pub(crate) const VIDEO_ROUTE: Route = Route::Video;
pub(crate) const ANIMATION_ROUTE: Route = Route::Animation;
pub(crate) const AUDIO_ROUTE: Route = Route::Audio;
pub(crate) const VOICE_ROUTE: Route = Route::Voice;
pub(crate) const DOCUMENT_ROUTE: Route = Route::Document;

/// Largest sum of a photo's width and height, in pixels.
const MAX_PHOTO_SIDES: u64 = 10_000;
/// Largest ratio of a photo's longer side to its shorter side.
const MAX_PHOTO_RATIO: u32 = 20;

/// Plans the order: text first, then photos and videos in albums, then other files as given. Consecutive documents
/// share an album, and so do consecutive music files. Every other file is a separate message. An empty file is separate
/// too, because the server refuses a whole album for one empty file.
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
        let is_joined = steps
            .last_mut()
            .is_some_and(|last| join_album(last, delivery, limits, file, *index, *route));
        if !is_joined {
            steps.push(file_step(*route, vec![*index]));
        }
    }
    let text = neutralise_mentions(&delivery.message);
    dray_platform::plan::place_text(&text, limits, CaptionUnit::Utf16, &mut steps);
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

/// Adds a file to the last step, which becomes an album, if kinds and limits allow it. Returns whether it was added.
fn join_album(
    last: &mut SendStep,
    delivery: &OutgoingDelivery,
    limits: &ChatLimits,
    file: &OutgoingFile,
    index: usize,
    route: Route,
) -> bool {
    // `sendMediaGroup` accepts documents and audio only with their own kind, photos mixed with videos;
    // never animations or voice messages.
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
        // The server refuses a whole album for one empty file.
        && sizes().all(|size| size > 0);
    if fits {
        let mut files = last.files().to_vec();
        files.push(index);
        *last = file_step(album, files);
    }
    fits
}

/// The route for a file: the native one, or as a document. `None` when the file is too large for both.
fn fitting_route(file: &OutgoingFile, flags: SendFlags, limits: &ChatLimits) -> Option<Route> {
    [native_route(file, flags), DOCUMENT_ROUTE]
        .into_iter()
        .find(|route| file.size <= limits.of(*route))
}

/// The route for a file by its detected type.
pub(crate) fn native_route(file: &OutgoingFile, flags: SendFlags) -> Route {
    if flags.as_document {
        return DOCUMENT_ROUTE;
    }
    match file.detected.kind {
        ContentKind::Image(
            ImageKind::Png | ImageKind::Jpeg | ImageKind::Webp { animated: false },
        ) if is_photo_shaped(file) => PHOTO_ROUTE,
        ContentKind::Image(ImageKind::Gif { animated: true }) => ANIMATION_ROUTE,
        // The codec is unknown when the index is at the end of the file; nearly all such files are H.264.
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

/// Whether the server accepts an image with these dimensions as a photo. Unknown dimensions count as accepted: then
/// the server decides.
fn is_photo_shaped(file: &OutgoingFile) -> bool {
    file.detected.dimensions.is_none_or(|(width, height)| {
        let (long, short) = (width.max(height), width.min(height));
        u64::from(width) + u64::from(height) <= MAX_PHOTO_SIDES
            && long <= short.saturating_mul(MAX_PHOTO_RATIO)
    })
}

/// Another route, as music or as documents, for photos, videos and voice messages that the server refuses on their
/// route.
pub(crate) fn fallback_step(
    delivery: &OutgoingDelivery,
    step: &SendStep,
    error: &PlatformError,
) -> Option<SendStep> {
    // A file that may be visible in the chat must not be sent again by any route.
    if error.kind() != ErrorKind::UnsupportedKind || error.send_outcome() != SendOutcome::NotSent {
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
    let fallback_route = match step.route() {
        // Recipients can forbid voice messages (`VOICE_MESSAGES_FORBIDDEN`); `sendAudio` takes MP3 and M4A only.
        VOICE_ROUTE if step.files().iter().all(is_music) => AUDIO_ROUTE,
        PHOTO_ROUTE | VIDEO_ROUTE | ALBUM_ROUTE | ANIMATION_ROUTE | AUDIO_ROUTE | VOICE_ROUTE => {
            DOCUMENT_ROUTE
        }
        _ => return None,
    };
    step.with_route(fallback_route)
}
