//! Notices for people about files that were not delivered (platform-delivery 9): their names and the kind of reason.

use crate::{name, size};

/// Most names in a list; the others are counted.
const MAX_LISTED_NAMES: usize = 10;

/// Characters of the longest name in a notice.
const MAX_NAME_CHARACTERS: usize = 80;

/// The reason why a file was not delivered, as people read it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FailureReason {
    /// The file is larger than the chat accepts. Both numbers are in bytes.
    TooLarge {
        /// Size of the file.
        size: u64,
        /// Limit of the chat.
        limit: u64,
    },
    /// A rule forbids it; the log says which one.
    NotAllowed,
    /// The file is empty, and the platform does not accept empty files.
    Empty,
    /// The file does not exist.
    NotFound,
    /// No account is configured for this platform.
    NoAccount,
    /// The chat does not exist, or the account cannot reach it.
    ChatMissing,
    /// The platform does not accept files of this kind.
    Unsupported,
    /// The user has not written recently, which the platform requires for a message to the user.
    WindowClosed,
    /// A temporary failure of the platform, the store or the network; the same request may work later.
    TryLater,
    /// The file was sent, but the response was lost, so it may have arrived.
    Ambiguous,
}

/// One file that was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileFailure {
    /// Name or path of the file; only the last part is shown.
    pub name: String,
    /// The reason that the notice groups by.
    pub reason: FailureReason,
}

impl FailureReason {
    /// `too large for this chat (62 MB of 50 MB)`, `not allowed`, …
    pub fn text(&self) -> String {
        match self {
            Self::TooLarge { size, limit } => {
                format!(
                    "too large for this chat ({})",
                    size::over_limit(*size, *limit)
                )
            }
            Self::NotAllowed => "not allowed".to_owned(),
            Self::Empty => "empty".to_owned(),
            Self::NotFound => "not found".to_owned(),
            Self::NoAccount => "no account is set up for this chat".to_owned(),
            Self::ChatMissing => "this chat does not exist or cannot be reached".to_owned(),
            Self::Unsupported => "this chat does not take such files".to_owned(),
            Self::WindowClosed => "will follow when you write again".to_owned(),
            Self::TryLater => "try again later".to_owned(),
            Self::Ambiguous => "may have been delivered".to_owned(),
        }
    }
}

/// The one notice of a turn: `⚠️ Couldn't deliver: a.pdf, b.csv. Reason: not allowed.`
///
/// Equal failures are reported once. If the reasons differ, each group is listed with its reason. Files that may have
/// arrived get a separate sentence. `None` without failures.
pub fn failure_notice(failures: &[FileFailure]) -> Option<String> {
    let mut lost = ReasonGroups::default();
    let mut ambiguous = ReasonGroups::default();
    for failure in failures {
        let groups = if failure.reason == FailureReason::Ambiguous {
            &mut ambiguous
        } else {
            &mut lost
        };
        groups.add(failure.reason.text(), shown_name(&failure.name));
    }
    let mut sentences = Vec::new();
    if !lost.0.is_empty() {
        sentences.push(undelivered_sentence(&lost.0));
    }
    // All ambiguous failures share one text, so there is at most one group.
    if let [(_, names)] = ambiguous.0.as_slice() {
        sentences.push(format!("⚠️ May have been delivered: {}.", name_list(names)));
    }
    (!sentences.is_empty()).then(|| sentences.join("\n"))
}

/// Names by reason, both in the order of their first appearance.
#[derive(Default)]
struct ReasonGroups(Vec<(String, Vec<String>)>);

impl ReasonGroups {
    fn add(&mut self, reason: String, name: String) {
        match self.0.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => self.0.push((reason, vec![name])),
        }
    }
}

/// The sentence for files that were certainly not delivered.
fn undelivered_sentence(groups: &[(String, Vec<String>)]) -> String {
    let mut all: Vec<String> = Vec::new();
    for name in groups.iter().flat_map(|(_, names)| names) {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    let head = format!("⚠️ Couldn't deliver: {}.", name_list(&all));
    if let [(reason, _)] = groups {
        return format!("{head} Reason: {reason}.");
    }
    let reasons: Vec<String> = groups
        .iter()
        .map(|(reason, names)| format!("{}: {reason}", name_list(names)))
        .collect();
    format!("{head} {}.", reasons.join("; "))
}

/// `a.pdf, b.csv and 3 more`.
fn name_list(names: &[String]) -> String {
    let shown = names
        .get(..names.len().min(MAX_LISTED_NAMES))
        .unwrap_or(names)
        .join(", ");
    match names.len().saturating_sub(MAX_LISTED_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The last part of a name, safe to show, with mentions disabled.
fn shown_name(raw: &str) -> String {
    crate::caption::neutralise_mentions(&name::shown_text(
        name::shown_name(raw),
        MAX_NAME_CHARACTERS,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(failures: &[(&str, FailureReason)], expected: Option<&str>) {
        let failures: Vec<FileFailure> = failures
            .iter()
            .map(|(name, reason)| FileFailure {
                name: (*name).to_owned(),
                reason: reason.clone(),
            })
            .collect();
        assert_eq!(failure_notice(&failures).as_deref(), expected);
    }

    #[test]
    fn without_failures_there_is_no_notice() {
        check(&[], None);
    }

    #[test]
    fn one_reason_is_reported_once_and_names_have_no_directories() {
        check(
            &[
                ("/workspace/out/a.pdf", FailureReason::NotAllowed),
                ("b.csv", FailureReason::NotAllowed),
                ("/other/a.pdf", FailureReason::NotAllowed),
            ],
            Some("⚠️ Couldn't deliver: a.pdf, b.csv. Reason: not allowed."),
        );
    }

    #[test]
    fn a_size_is_reported_with_its_limit() {
        check(
            &[(
                "a.mp4",
                FailureReason::TooLarge {
                    size: 62 << 20,
                    limit: 50 << 20,
                },
            )],
            Some("⚠️ Couldn't deliver: a.mp4. Reason: too large for this chat (62 MB of 50 MB)."),
        );
    }

    #[test]
    fn different_reasons_name_their_files() {
        check(
            &[
                ("a", FailureReason::Empty),
                ("b", FailureReason::TryLater),
                ("c", FailureReason::Empty),
            ],
            Some("⚠️ Couldn't deliver: a, c, b. a, c: empty; b: try again later."),
        );
    }

    #[test]
    fn faults_of_the_chat_are_not_reported_as_faults_of_the_file() {
        check(
            &[("a", FailureReason::NoAccount)],
            Some("⚠️ Couldn't deliver: a. Reason: no account is set up for this chat."),
        );
        check(
            &[
                ("a", FailureReason::ChatMissing),
                ("b", FailureReason::NotFound),
            ],
            Some(
                "⚠️ Couldn't deliver: a, b. a: this chat does not exist or cannot be reached; b: not found.",
            ),
        );
    }

    #[test]
    fn r_13_an_ambiguous_delivery_is_not_reported_as_lost() {
        check(
            &[
                ("a", FailureReason::Ambiguous),
                ("b", FailureReason::NotFound),
            ],
            Some("⚠️ Couldn't deliver: b. Reason: not found.\n⚠️ May have been delivered: a."),
        );
    }

    #[test]
    fn r_15_a_name_is_escaped_in_the_notice() {
        check(
            &[("x/@everyone\u{202e}\n.pdf", FailureReason::Empty)],
            Some("⚠️ Couldn't deliver: @\u{200b}everyone??.pdf. Reason: empty."),
        );
    }

    #[test]
    fn many_names_are_counted() {
        let failures: Vec<FileFailure> = (0..13)
            .map(|number| FileFailure {
                name: format!("{number}.txt"),
                reason: FailureReason::Empty,
            })
            .collect();
        let text = failure_notice(&failures).unwrap();
        assert!(
            text.contains("9.txt and 3 more.") && !text.contains("10.txt"),
            "{text}"
        );
    }
}
