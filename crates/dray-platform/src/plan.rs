//! The plan of platforms that show any file as an attachment of a message (platform-delivery 4).

use dray_content::caption::{self, Caption, Unit};
use dray_content::kind::Kind;

pub use crate::delivery::{LINK, TEXT};

use crate::delivery::{FilesStep, OutgoingFile, Step};
use crate::limits::Limits;
use crate::platform::Delivery;

/// Text first, or as the text of the first files; then pictures, then the rest, as many in one message as limits allow.
/// Files without bytes are alone, so that their refusal drops no other file; files over the limit are left out.
pub fn attachments(delivery: &Delivery, limits: &Limits, route: &str, unit: Unit) -> Vec<Step> {
    let mut steps = files(delivery, limits, route);
    say(&delivery.message, limits, unit, &mut steps);
    steps
}

fn files(delivery: &Delivery, limits: &Limits, route: &str) -> Vec<Step> {
    let fitting = delivery
        .files
        .iter()
        .enumerate()
        .filter(|(_, file)| file.size <= limits.of(route));
    let (pictures, rest): (Vec<_>, Vec<_>) =
        fitting.partition(|(_, file)| matches!(file.detected.kind, Kind::Image(_)));
    let mut steps: Vec<Step> = Vec::new();
    for (index, file) in pictures.into_iter().chain(rest) {
        match steps.last_mut() {
            Some(Step::Files(last)) if joins(last, file, delivery, limits) => {
                last.files.push(index);
            }
            _ => steps.push(Step::files_by(route, vec![index])),
        }
    }
    steps
}

/// Whether one more file may be shown with those of `last`.
fn joins(last: &FilesStep, file: &OutgoingFile, delivery: &Delivery, limits: &Limits) -> bool {
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
fn say(message: &str, limits: &Limits, unit: Unit, steps: &mut Vec<Step>) {
    let fitting = caption::Limits {
        caption: if steps.is_empty() { 0 } else { limits.caption },
        message: limits.text,
        unit,
    };
    let said = caption::fit(&caption::neutralise(message), fitting);
    match (said, steps.first_mut()) {
        (Caption::None, _) => {}
        (Caption::Fits(text), Some(first)) => first.set_text(text),
        (Caption::Fits(text), None) => steps.push(Step::Text(text)),
        (Caption::Separate(texts), _) => {
            steps.splice(0..0, texts.into_iter().map(Step::Text));
        }
    }
}

/// The files of a step with their indices.
pub fn files_of<'a>(
    delivery: &'a Delivery,
    step: &'a Step,
) -> impl Iterator<Item = (usize, &'a OutgoingFile)> {
    let indices = step.files().iter();
    indices.filter_map(|index| Some((*index, delivery.files.get(*index)?)))
}
