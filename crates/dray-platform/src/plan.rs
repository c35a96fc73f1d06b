//! The plan of platforms that show any file as an attachment of a message (platform-delivery 4).

use dray_content::caption::{self, CaptionPlacement, CaptionUnit};
use dray_content::kind::ContentKind;

pub use crate::delivery::{LINK_ROUTE, TEXT_ROUTE};

use crate::delivery::{FilesStep, OutgoingFile, SendStep};
use crate::limits::ChatLimits;
use crate::platform::OutgoingDelivery;

/// Text first, or as the text of the first files; then pictures, then the rest, as many in one message as limits allow.
/// Files without bytes are alone, so that their refusal drops no other file; files over the limit are left out.
pub fn plan_attachments(
    delivery: &OutgoingDelivery,
    limits: &ChatLimits,
    route: &str,
    unit: CaptionUnit,
) -> Vec<SendStep> {
    let mut steps = plan_files(delivery, limits, route);
    plan_message(&delivery.message, limits, unit, &mut steps);
    steps
}

fn plan_files(delivery: &OutgoingDelivery, limits: &ChatLimits, route: &str) -> Vec<SendStep> {
    let fitting = delivery
        .files
        .iter()
        .enumerate()
        .filter(|(_, file)| file.size <= limits.of(route));
    let (pictures, rest): (Vec<_>, Vec<_>) =
        fitting.partition(|(_, file)| matches!(file.detected.kind, ContentKind::Image(_)));
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
        && sizes().all(|size| size > 0)
        && limits
            .request
            .is_none_or(|most| sizes().sum::<u64>() <= most)
}

/// The message as the text of the first step, or in steps of its own before it.
fn plan_message(message: &str, limits: &ChatLimits, unit: CaptionUnit, steps: &mut Vec<SendStep>) {
    let fitting = caption::CaptionLimits {
        caption: if steps.is_empty() { 0 } else { limits.caption },
        message: limits.text,
        unit,
    };
    let said = caption::fit_caption(&caption::neutralise_mentions(message), fitting);
    match (said, steps.first_mut()) {
        (CaptionPlacement::None, _) => {}
        (CaptionPlacement::Fits(text), Some(first)) => first.set_text(text),
        (CaptionPlacement::Fits(text), None) => steps.push(SendStep::Text(text)),
        (CaptionPlacement::Separate(texts), _) => {
            steps.splice(0..0, texts.into_iter().map(SendStep::Text));
        }
    }
}

/// The files of a step with their indices.
pub fn files_of<'a>(
    delivery: &'a OutgoingDelivery,
    step: &'a SendStep,
) -> impl Iterator<Item = (usize, &'a OutgoingFile)> {
    let indices = step.files().iter();
    indices.filter_map(|index| Some((*index, delivery.files.get(*index)?)))
}
