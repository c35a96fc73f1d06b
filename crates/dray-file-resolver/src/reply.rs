//! The sentences an agent reads when an argument cannot be used (quickapps 19.4, 30.3, 30.4, 31, 34).
//!
//! They are wire format: one list, no other place writes them.

use dray_types::ByteSize;

use crate::shown::DisplayName;

/// Longest shown argument name, in characters.
const SHOWN_NAME: usize = 200;

/// What the resolver adds to the policy sentences of the fetcher (quickapps 34).
const POLICY_ADVICE: &str = "Upload the file to DIAL and pass `files/...` instead, or use a deployment that supports url_attachments.";

/// The details of the fetcher's policy refusals (egress-security 17), to which the advice is added.
const POLICY_DETAILS: [&str; 4] = [
    "disabled_by_admin",
    "disabled_by_app",
    "host_not_in_admin_allowlist",
    "host_not_in_app_allowlist",
];

/// The tool message for an argument that the model can correct.
pub fn invalid_parameter(name: &str, message: &str) -> String {
    format!(
        "Parameter {} is invalid, try to call the tool again with fixed exception: {message}",
        shown_name(name)
    )
}

/// A file above the limit.
pub fn file_size(size: u64, limit: ByteSize) -> String {
    format!(
        "File size {size} exceeds the limit of {} bytes.",
        limit.as_u64()
    )
}

/// A file asked for as text that is not text.
pub fn binary_file_message(url: &DisplayName, name: &str) -> String {
    format!(
        "File at {url} appears to be binary ({name}). Use `file:base64::...` or `file:URL::...` instead of `file:text::...`."
    )
}

/// The fetcher's sentence, with advice when a policy refused.
pub fn egress_message(detail: &str, sentence: &str, url: &DisplayName) -> String {
    if POLICY_DETAILS.contains(&detail) {
        format!("{sentence} {POLICY_ADVICE} URL: {url}")
    } else {
        sentence.to_owned()
    }
}

/// A name as it is shown: cut at 200 characters, with controls escaped.
pub fn shown_name(name: &str) -> String {
    let mut shown = String::new();
    for character in name.chars().take(SHOWN_NAME) {
        if is_invisible(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Characters that change how a line reads without being seen: controls, separators, bidi overrides.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_wire_format_to_the_letter() {
        let url = DisplayName::url("https://u:p@h.example/a?secret=1");
        assert_eq!(
            invalid_parameter(
                "file",
                "Missing required file prefix (base64::, url::, text::)"
            ),
            "Parameter file is invalid, try to call the tool again with fixed exception: \
             Missing required file prefix (base64::, url::, text::)"
        );
        assert_eq!(
            file_size(11, ByteSize::bytes(10)),
            "File size 11 exceeds the limit of 10 bytes."
        );
        assert_eq!(
            binary_file_message(&url, "PDF document"),
            "File at https://h.example/a appears to be binary (PDF document). Use `file:base64::...` or \
             `file:URL::...` instead of `file:text::...`."
        );
    }

    #[test]
    fn policy_sentences_are_followed_by_the_advice_of_section_34() {
        let url = DisplayName::url("https://h.example/a?secret=1");
        for (detail, sentence) in [
            (
                "disabled_by_admin",
                "External URL fetching is disabled by operator policy (EXTERNAL_URL_FETCH_ENABLED).",
            ),
            (
                "disabled_by_app",
                "External URL fetching is disabled by this app (features.external_url_fetch.enabled=false).",
            ),
            (
                "host_not_in_admin_allowlist",
                "External URL host is not in the operator allowlist (EXTERNAL_URL_FETCH_HOST_ALLOWLIST).",
            ),
            (
                "host_not_in_app_allowlist",
                "External URL host is not in this app's allowlist (features.external_url_fetch.host_allowlist).",
            ),
        ] {
            assert_eq!(
                egress_message(detail, sentence, &url),
                format!(
                    "{sentence} Upload the file to DIAL and pass `files/...` instead, or use a deployment that supports \
                     url_attachments. URL: https://h.example/a"
                )
            );
        }
    }

    #[test]
    fn other_sentences_of_the_fetcher_pass_through() {
        let url = DisplayName::url("https://h.example/a");
        let sentence = "External URL https://h.example/a timed out.";
        assert_eq!(egress_message("timeout", sentence, &url), sentence);
    }

    #[test]
    fn names_are_cut_and_controls_escaped() {
        assert_eq!(shown_name("a\nb"), "a\\u{a}b");
        assert_eq!(shown_name(&"x".repeat(999)).len(), 200);
    }
}
