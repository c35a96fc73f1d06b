//! Escapes untrusted text, so that no name, URL or content can close the wrapper.

/// The tag around everything that is reported about files.
pub(crate) const WRAPPER_TAG: &str = "system-reminder";

/// Escapes the five characters of XML, ampersand first (agent-file-context 8).
pub(crate) fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Undoes [`escape_xml`] once. For a URL that a model copied out of a reminder (17.3).
pub(crate) fn unescape_xml(text: &str) -> String {
    text.replace("&apos;", "'")
        .replace("&quot;", "\"")
        .replace("&gt;", ">")
        .replace("&lt;", "<")
        // The ampersand comes last, in reverse of `escape_xml`: `&amp;lt;` encodes the text `&lt;`.
        .replace("&amp;", "&")
}

/// Disarms every opening or closing wrapper tag in a question that is written inside the wrapper (R-12). Other text of
/// the question is not changed.
pub(crate) fn disarm_wrapper_tags(question: &str) -> String {
    let mut disarmed = String::with_capacity(question.len());
    let mut rest = question;
    while let Some(index) = rest.find('<') {
        let (before, tag) = rest.split_at(index);
        disarmed.push_str(before);
        let after = tag.strip_prefix('<').unwrap_or(tag);
        disarmed.push_str(if opens_wrapper(after) { "&lt;" } else { "<" });
        rest = after;
    }
    disarmed.push_str(rest);
    disarmed
}

/// Whether the text after a `<` is the name of the wrapper, in any case and after any blanks or slashes.
fn opens_wrapper(after: &str) -> bool {
    let name = after.trim_start_matches(|character: char| {
        character.is_whitespace()
            || character.is_control()
            || character == '/'
            || is_zero_width(character)
    });
    // `<sys\u{200b}tem-reminder>` looks like the tag to a model that ignores zero-width characters.
    let mut letters = name.chars().filter(|&character| !is_zero_width(character));
    WRAPPER_TAG.chars().all(|expected| {
        letters
            .next()
            .is_some_and(|letter| letter.to_ascii_lowercase() == expected)
    })
}

/// Characters without width: with them in the tag, a reader still sees the tag.
fn is_zero_width(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_five_characters_are_escaped_and_the_ampersand_only_once() {
        assert_eq!(
            escape_xml(r#"a&b<c>"d"'e'&amp;"#),
            "a&amp;b&lt;c&gt;&quot;d&quot;&apos;e&apos;&amp;amp;"
        );
    }

    #[test]
    fn only_the_wrapper_is_disarmed() {
        assert_eq!(
            disarm_wrapper_tags("<b>x</b> </system-reminder>"),
            "<b>x</b> &lt;/system-reminder>"
        );
        assert_eq!(disarm_wrapper_tags("1 < 2"), "1 < 2");
    }

    #[test]
    fn a_wrapper_with_blanks_other_case_or_unseen_letters_is_disarmed_too() {
        for tag in [
            "< / System-Reminder >",
            "</\u{200b}system-reminder>",
            "<sys\u{ad}tem-reminder>",
            "<\t/SYSTEM-REMINDER\n>",
        ] {
            assert!(disarm_wrapper_tags(tag).starts_with("&lt;"), "{tag:?}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_never_closes_the_wrapper_and_can_be_unescaped(text in ".*") {
            let escaped = escape_xml(&text);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'']));
            prop_assert_eq!(unescape_xml(&escaped), text);
        }

        #[test]
        fn a_disarmed_question_contains_no_wrapper_tag(pieces in prop::collection::vec(
            prop::sample::select(vec!["<", "/", "</system-reminder>", "system-reminder", ">", " ", "<SYSTEM-reminder", "a"]), 0..12)) {
            let disarmed = disarm_wrapper_tags(&pieces.concat()).to_lowercase();
            prop_assert!(!disarmed.contains("<system-reminder") && !disarmed.contains("</system-reminder"));
        }
    }
}
