//! Which file travels with which message (platform-delivery 4 and 7.4).

use dray_content::caption::{self, Caption, Unit};
use dray_content::kind::Kind;
use dray_platform::{Delivery, Limits, Step};

/// Route of a text.
pub(crate) const TEXT: &str = "text";
/// Route of a text that holds links to files.
pub(crate) const LINK: &str = "link";
/// Route of files.
pub(crate) const FILE: &str = "file";

/// Text first, or as the comment of the first files; then pictures, then the rest, ten at a time. Files without bytes
/// are alone, so that their refusal drops nobody else.
pub(crate) fn steps(delivery: &Delivery, limits: &Limits) -> Vec<Step> {
    let fits = |index: &usize| {
        delivery
            .files
            .get(*index)
            .is_some_and(|file| file.size <= limits.any)
    };
    let is_picture = |index: &usize| {
        delivery
            .files
            .get(*index)
            .is_some_and(|file| matches!(file.detected.kind, Kind::Image(_)))
    };
    let is_empty = |index: &usize| {
        delivery
            .files
            .get(*index)
            .is_some_and(|file| file.size == 0)
    };
    let all: Vec<usize> = (0..delivery.files.len()).filter(fits).collect();
    let (pictures, rest): (Vec<usize>, Vec<usize>) = all.into_iter().partition(is_picture);
    let mut steps: Vec<Step> = Vec::new();
    for index in pictures.into_iter().chain(rest) {
        match steps.last_mut() {
            Some(last)
                if last.files.len() < limits.per_message
                    && !is_empty(&index)
                    && !last.files.iter().any(is_empty) =>
            {
                last.files.push(index);
            }
            _ => steps.push(step(FILE, vec![index], String::new())),
        }
    }
    let fitting = caption::Limits {
        caption: if steps.is_empty() { 0 } else { limits.caption },
        message: limits.text,
        unit: Unit::Chars,
    };
    let said = caption::fit(&caption::neutralise(&delivery.message), fitting);
    match (said, steps.first_mut()) {
        (Caption::None, _) => {}
        (Caption::Fits(text), Some(first)) => first.text = text,
        (Caption::Fits(text), None) => steps.push(step(TEXT, Vec::new(), text)),
        (Caption::Separate(texts), _) => {
            let texts = texts.into_iter().map(|text| step(TEXT, Vec::new(), text));
            steps.splice(0..0, texts);
        }
    }
    steps
}

fn step(route: &str, files: Vec<usize>, text: String) -> Step {
    Step {
        route: route.to_owned(),
        files,
        text,
        lossy: false,
    }
}

/// Slack reads `&`, `<` and `>` as the begin of markup; escaped, a text is shown as it was written and calls nobody.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
