//! The plan of platforms that show every file as an attachment of a message (platform-delivery 4).

use dray_media_type::kind::ContentKind;
use dray_presentation::caption::{self, CaptionPlacement, CaptionUnit};

use crate::delivery::{FilesStep, OutgoingFile, Route, SendStep};
use crate::limits::ChatLimits;
use crate::platform::OutgoingDelivery;

/// The steps of a delivery: text first, alone or as the text of the first files; then pictures, then other files, as
/// many in one message as the limits allow. Empty files are alone, so that their refusal affects no other file. Files
/// over the limit are left out: the caller replaces them by links.
pub fn plan_attachments(
    delivery: &OutgoingDelivery,
    limits: &ChatLimits,
    route: Route,
    unit: CaptionUnit,
) -> Vec<SendStep> {
    let mut steps = plan_files(delivery, limits, route);
    let text = caption::neutralise_mentions(&delivery.message);
    place_text(&text, limits, unit, &mut steps);
    steps
}

/// The steps of [`plan_attachments`] without the text.
pub fn plan_files(delivery: &OutgoingDelivery, limits: &ChatLimits, route: Route) -> Vec<SendStep> {
    let fitting = delivery
        .files
        .iter()
        .enumerate()
        .filter(|(_, file)| file.size <= limits.of(route));
    let (pictures, rest): (Vec<_>, Vec<_>) =
        fitting.partition(|(_, file)| matches!(file.detected.kind, ContentKind::Image(_)));
    // Files are added only to the last step, because filling earlier ones would change the order.
    let mut steps: Vec<SendStep> = Vec::new();
    for (index, file) in pictures.into_iter().chain(rest) {
        match steps.last_mut() {
            Some(SendStep::Files(last)) if fits_into_step(last, file, delivery, limits) => {
                last.files.push(index);
            }
            _ => steps.push(SendStep::files_by(route, vec![index])),
        }
    }
    steps
}

/// Whether one more file may be shown with those of `last`.
fn fits_into_step(
    last: &FilesStep,
    file: &OutgoingFile,
    delivery: &OutgoingDelivery,
    limits: &ChatLimits,
) -> bool {
    let sizes = || {
        let earlier = last
            .files
            .iter()
            .filter_map(|index| delivery.files.get(*index));
        earlier.chain([file]).map(|file| file.size)
    };
    last.files.len() < limits.per_message
        // This includes the files that are in the step already: a file without bytes stays alone.
        && sizes().all(|size| size > 0)
        && limits
            .request
            .is_none_or(|limit| sizes().sum::<u64>() <= limit)
}

/// Adds a text to steps of files: as the caption of the first step if it fits there, else in separate steps before the
/// files. With [`ChatLimits::caption`] 0 it is always separate.
pub fn place_text(text: &str, limits: &ChatLimits, unit: CaptionUnit, steps: &mut Vec<SendStep>) {
    let fitting = caption::CaptionLimits {
        // A text without files has no file whose caption it could be, so it is a separate message.
        caption: if steps.is_empty() { 0 } else { limits.caption },
        message: limits.text,
        unit,
    };
    match (caption::fit_caption(text, fitting), steps.first_mut()) {
        (CaptionPlacement::None, _) => {}
        (CaptionPlacement::Fits(text), Some(first)) => first.set_text(text),
        (CaptionPlacement::Fits(text), None) => steps.push(SendStep::Text(text)),
        (CaptionPlacement::Separate(texts), _) => {
            // The texts come before the files, because they may explain them.
            steps.splice(0..0, texts.into_iter().map(SendStep::Text));
        }
    }
}

/// The files of a step with their indices in the delivery. An index without a file is left out.
pub fn files_of<'a>(
    delivery: &'a OutgoingDelivery,
    step: &'a SendStep,
) -> impl Iterator<Item = (usize, &'a OutgoingFile)> {
    let indices = step.files().iter();
    indices.filter_map(|index| Some((*index, delivery.files.get(*index)?)))
}
