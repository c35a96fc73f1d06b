//! Selects which files of a result are kept, names them, and decides which of them the user sees (quickapps 19.2).

use dray_agent::manifest::call::AttachmentRules;
use dray_agent::message::Attachment;
pub use dray_media_type::matches_pattern;

/// The files of a result after the rules of its tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptFiles {
    /// All files that are kept, in order.
    pub all: Vec<Attachment>,
    /// The kept files that are also shown to the user.
    pub propagate: Vec<Attachment>,
}

/// Keeps files of supported types, replaces their types, and selects the files for the user by the new types.
pub fn keep_supported(attachments: Vec<Attachment>, rules: &AttachmentRules) -> KeptFiles {
    let (supported, propagated) = (rules.supported(), rules.propagated());
    let is_of = |kind: Option<&str>, patterns: &[&str]| {
        patterns
            .iter()
            .any(|pattern| matches_pattern(kind, pattern))
    };
    let mut kept = KeptFiles::default();
    for mut attachment in attachments {
        // This check uses the original type; the check for the user's files uses the new type (quickapps 19.2).
        if !is_of(attachment.kind.as_deref(), &supported) {
            continue;
        }
        if let Some(other) = substitute_type(attachment.kind.as_deref(), rules) {
            attachment.kind = Some(other);
        }
        if is_of(attachment.kind.as_deref(), &propagated) {
            kept.propagate.push(attachment.clone());
        }
        kept.all.push(attachment);
    }
    kept
}

fn substitute_type(kind: Option<&str>, rules: &AttachmentRules) -> Option<String> {
    let kind = kind?;
    rules
        .media_type_substitution
        .as_ref()?
        .iter()
        // Types have no case (RFC 2045 section 5.1).
        .find(|(from, _)| from.eq_ignore_ascii_case(kind))
        .map(|(_, to)| to.clone())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn file(kind: &str) -> Attachment {
        Attachment {
            kind: (!kind.is_empty()).then(|| kind.to_owned()),
            title: Some(kind.to_owned()),
            ..Attachment::default()
        }
    }

    fn kinds(files: &[Attachment]) -> Vec<&str> {
        files
            .iter()
            .filter_map(|file| file.kind.as_deref())
            .collect()
    }

    #[test]
    fn a_pattern_is_all_types_a_family_or_one_type() {
        assert!(matches_pattern(Some("image/png"), "*/*"));
        assert!(matches_pattern(Some("image/png"), "image/*"));
        assert!(matches_pattern(Some("Image/PNG"), "image/png"));
        assert!(!matches_pattern(Some("imagery/png"), "image/*"));
        assert!(!matches_pattern(Some("image/png"), "image/pn*"));
        assert!(!matches_pattern(
            Some("text/csv; charset=utf-8"),
            "text/csv"
        ));
        assert!(matches_pattern(Some("text/csv; charset=utf-8"), "text/*"));
    }

    #[test]
    fn a_missing_type_matches_no_pattern() {
        assert!(!matches_pattern(None, "*/*"));
        assert!(!matches_pattern(Some(""), "*/*"));
        assert_eq!(
            keep_supported(vec![file("")], &AttachmentRules::default()),
            KeptFiles::default()
        );
    }

    #[test]
    fn by_default_all_is_kept_and_the_user_sees_images_and_plots() {
        let files = ["image/png", "application/vnd.plotly.v1+json", "text/csv"].map(file);
        let kept = keep_supported(files.to_vec(), &AttachmentRules::default());
        assert_eq!(kept.all, files);
        assert_eq!(
            kinds(&kept.propagate),
            ["image/png", "application/vnd.plotly.v1+json"]
        );
    }

    #[test]
    fn the_original_type_decides_what_is_kept_and_the_new_one_what_is_shown() {
        let rules = AttachmentRules {
            supported_types: Some(vec!["text/x".to_owned(), "image/*".to_owned()]),
            propagate_types_to_choice: Some(vec!["text/plain".to_owned()]),
            media_type_substitution: Some(BTreeMap::from([
                ("text/x".to_owned(), "text/plain".to_owned()),
                ("audio/x".to_owned(), "text/x".to_owned()),
            ])),
        };
        let files = ["text/x", "audio/x", "image/gif", "text/plain"].map(file);
        let kept = keep_supported(files.to_vec(), &rules);
        assert_eq!(kinds(&kept.all), ["text/plain", "image/gif"]);
        assert_eq!(kinds(&kept.propagate), ["text/plain"]);
    }
}
