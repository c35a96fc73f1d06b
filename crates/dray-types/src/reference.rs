//! The `file:` grammar of tool-call arguments (quickapps 30.2, 30.3).
//!
//! ```text
//! value   = *"/" "file:" [ prefix "::" ] rest [ LF ]
//! prefix  = "base64" / "url" / "text"
//! rest    = 1*( any character except LF )
//! ```
//!
//! Keywords fold as ASCII only: `ı` is not `i`.

/// How the content of a referenced file is put into the argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReferenceForm {
    /// Standard base64 with padding and without line breaks (RFC 4648 section 4).
    Base64,
    /// Decoded text (quickapps 30.4).
    Text,
    /// The reference itself, untouched and never fetched.
    Url,
}

/// An argument value that consists of one file reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReference<'a> {
    /// Form of the content that replaces the value.
    pub form: ReferenceForm,
    /// The referenced URL or path: everything after the prefix, not trimmed and not checked.
    pub target: &'a str,
}

/// The result of parsing an argument value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedReference<'a> {
    /// Not a reference: pass it on unchanged.
    Plain,
    /// `file:` without one of the prefixes: an invalid parameter.
    MissingPrefix,
    /// A reference with one of the prefixes.
    Reference(FileReference<'a>),
}

/// The invalid-parameter sentence for [`ParsedReference::MissingPrefix`].
pub const MISSING_PREFIX: &str = "Missing required file prefix (base64::, url::, text::)";

impl<'a> FileReference<'a> {
    /// Parses an argument value, which is a reference only as a whole.
    ///
    /// ```
    /// use dray_types::reference::{FileReference, ReferenceForm, ParsedReference};
    ///
    /// let parsed = FileReference::parse("file:base64::files/b/report.pdf");
    /// let reference = FileReference { form: ReferenceForm::Base64, target: "files/b/report.pdf" };
    /// assert_eq!(parsed, ParsedReference::Reference(reference));
    /// assert_eq!(FileReference::parse("see file:base64::x"), ParsedReference::Plain);
    /// assert_eq!(FileReference::parse("file:///etc/passwd"), ParsedReference::MissingPrefix);
    /// ```
    pub fn parse(value: &'a str) -> ParsedReference<'a> {
        let value = value.trim_start_matches('/');
        let Some(rest) = strip_keyword(value, "file:") else {
            return ParsedReference::Plain;
        };
        // Only one final LF is removed; CR is an ordinary character and stays (30.2).
        let rest = rest.strip_suffix('\n').unwrap_or(rest);
        // Text over several lines names no file (30.3).
        if rest.is_empty() || rest.contains('\n') {
            return ParsedReference::Plain;
        }
        for (keyword, form) in [
            ("base64::", ReferenceForm::Base64),
            ("url::", ReferenceForm::Url),
            ("text::", ReferenceForm::Text),
        ] {
            match strip_keyword(rest, keyword) {
                // `file:base64::` without a target counts as a missing prefix (30.3).
                Some(target) if !target.is_empty() => {
                    return ParsedReference::Reference(Self { form, target });
                }
                _ => {}
            }
        }
        ParsedReference::MissingPrefix
    }
}

fn strip_keyword<'a>(text: &'a str, keyword: &str) -> Option<&'a str> {
    // `get` also returns `None` when the length ends inside a character; keywords are ASCII.
    let head = text.get(..keyword.len())?;
    head.eq_ignore_ascii_case(keyword)
        .then(|| text.get(keyword.len()..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(value: &str, expected: &ParsedReference<'_>) {
        assert_eq!(&FileReference::parse(value), expected, "{value:?}");
    }

    fn reference(form: ReferenceForm, target: &str) -> ParsedReference<'_> {
        ParsedReference::Reference(FileReference { form, target })
    }

    #[test]
    fn every_row_of_the_grammar() {
        check("file:base64::a", &reference(ReferenceForm::Base64, "a"));
        check("FILE:Text::a b ", &reference(ReferenceForm::Text, "a b "));
        check(
            "///file:url::http://h/x?y",
            &reference(ReferenceForm::Url, "http://h/x?y"),
        );
        check("file:text::a\n", &reference(ReferenceForm::Text, "a"));
        check("file:text:: a", &reference(ReferenceForm::Text, " a"));
        check("file:text:::a", &reference(ReferenceForm::Text, ":a"));
        check("file:text::a\r", &reference(ReferenceForm::Text, "a\r"));
        check(
            "file:base64::file:text::a",
            &reference(ReferenceForm::Base64, "file:text::a"),
        );
        check("file:base64::\n\n", &ParsedReference::Plain);
        check("file:", &ParsedReference::Plain);
        check("file:\n", &ParsedReference::Plain);
        check(" file:text::a", &ParsedReference::Plain);
        check("x file:text::a", &ParsedReference::Plain);
        check("file:text::a\nb", &ParsedReference::Plain);
        check("", &ParsedReference::Plain);
        check("files/b/a", &ParsedReference::Plain);
        check("f\u{131}le:text::a", &ParsedReference::Plain);
        for missing in [
            "file:///etc/passwd",
            "file:bytes::x",
            "file:base64:x",
            "file:base64::",
            "file:text",
            "file:ba\u{17f}e64::x",
        ] {
            check(missing, &ParsedReference::MissingPrefix);
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_targets_are_suffixes(value in "/{0,2}(file:)?(base64::|url::|text::|[a-z:]{0,8})?.{0,12}\n?") {
            if let ParsedReference::Reference(reference) = FileReference::parse(&value) {
                let body = value.strip_suffix('\n').unwrap_or(&value);
                prop_assert!(body.ends_with(reference.target));
                prop_assert!(!reference.target.is_empty() && !reference.target.contains('\n'));
            }
        }

        #[test]
        fn ordinary_text_is_never_touched(value in "[^/fF].*") {
            prop_assert_eq!(FileReference::parse(&value), ParsedReference::Plain);
        }
    }
}
