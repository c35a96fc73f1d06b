//! The route of each file (platform-delivery 4 and 6): one file in one message.

use dray_media_type::kind::{AudioKind, ContentKind, ImageKind, VideoCodec, VideoKind};
use dray_platform::{
    ChatLimits, ErrorKind, FilesStep, OutgoingDelivery, OutgoingFile, PlatformError, Route,
    SendFlags, SendOutcome, SendStep,
};
use dray_presentation::caption::{CaptionUnit, neutralise_mentions};

pub(crate) const IMAGE_ROUTE: Route = Route::Image;
pub(crate) const VIDEO_ROUTE: Route = Route::Video;
pub(crate) const AUDIO_ROUTE: Route = Route::Audio;
pub(crate) const DOCUMENT_ROUTE: Route = Route::Document;

/// Longest caption, in characters; the same for the Cloud API and a bridge.
pub(crate) const MAX_CAPTION_CHARACTERS: usize = 1024;
/// Longest text, in characters; the same for the Cloud API and a bridge.
pub(crate) const MAX_TEXT_CHARACTERS: usize = 4096;

/// The steps of a delivery: text, then pictures, then other files in their order. `is_bridge` is set for a bridge,
/// which accepts kinds that the Cloud API refuses. Files over all limits are left out.
pub(crate) fn plan_steps(
    delivery: &OutgoingDelivery,
    limits: &ChatLimits,
    is_bridge: bool,
) -> Vec<SendStep> {
    let routed = delivery
        .files
        .iter()
        .enumerate()
        .filter_map(|(index, file)| {
            let native = native_route(file, delivery.flags, is_bridge);
            let route = [native, DOCUMENT_ROUTE]
                .into_iter()
                .find(|route| file.size <= limits.of(*route))?;
            Some((index, route))
        });
    let (pictures, rest): (Vec<_>, Vec<_>) = routed.partition(|(_, route)| *route == IMAGE_ROUTE);
    let mut steps: Vec<SendStep> = pictures
        .into_iter()
        .chain(rest)
        .map(|(index, route)| file_step(route, index))
        .collect();
    // Audio has no caption, so the text becomes a message before it.
    let has_caption = steps
        .first()
        .is_some_and(|step| step.route() != AUDIO_ROUTE);
    let limits = ChatLimits {
        caption: if has_caption { limits.caption } else { 0 },
        ..limits.clone()
    };
    let text = neutralise_mentions(&delivery.message);
    dray_platform::plan::place_text(&text, &limits, CaptionUnit::Chars, &mut steps);
    steps
}

fn file_step(route: Route, file: usize) -> SendStep {
    SendStep::Files(FilesStep {
        route,
        files: vec![file],
        text: String::new(),
        // The platform compresses pictures and videos again.
        lossy: matches!(route, IMAGE_ROUTE | VIDEO_ROUTE),
    })
}

/// The route of a file by its kind; a bridge accepts more kinds than the Cloud API.
fn native_route(file: &OutgoingFile, flags: SendFlags, is_bridge: bool) -> Route {
    if flags.as_document {
        return DOCUMENT_ROUTE;
    }
    match file.detected.kind {
        ContentKind::Image(ImageKind::Png | ImageKind::Jpeg) => IMAGE_ROUTE,
        ContentKind::Image(ImageKind::Webp { animated: false }) if is_bridge => IMAGE_ROUTE,
        // The bridge sends it with GIF playback (platform-delivery 4).
        ContentKind::Image(ImageKind::Gif { animated: true }) if is_bridge => VIDEO_ROUTE,
        ContentKind::Video(VideoKind::Mp4(VideoCodec::H264 | VideoCodec::Unknown)) => VIDEO_ROUTE,
        ContentKind::Video(VideoKind::ThreeGp) if !is_bridge => VIDEO_ROUTE,
        ContentKind::Audio(AudioKind::Mp3 | AudioKind::M4a | AudioKind::OggOpus { .. }) => {
            AUDIO_ROUTE
        }
        _ => DOCUMENT_ROUTE,
    }
}

/// The media type with which a file is uploaded to the Cloud API, which takes a closed list of types. It has `text/plain`
/// for every text, such as CSV and JSON; the extension of the visible name stays.
pub(crate) fn upload_media_type(file: &OutgoingFile) -> &'static str {
    let media_type = file.detected.media_type;
    if file.detected.kind == ContentKind::Text || media_type.starts_with("text/") {
        "text/plain"
    } else {
        media_type
    }
}

/// The route of documents, for a file that was refused on another route; `None` when that would not help.
pub(crate) fn fallback_step(step: &SendStep, error: &PlatformError) -> Option<SendStep> {
    // Only while no message is visible, because sending again on any route would show a second message.
    let is_refused = matches!(
        error.kind(),
        ErrorKind::UnsupportedKind | ErrorKind::BadFormat | ErrorKind::TooLarge
    ) && error.send_outcome() == SendOutcome::NotSent;
    let has_fallback = matches!(step.route(), IMAGE_ROUTE | VIDEO_ROUTE | AUDIO_ROUTE);
    if !is_refused || !has_fallback {
        return None;
    }
    step.with_route(DOCUMENT_ROUTE)
}
