//! Names of files as agents and operators see them (R8): without user info, query and invisible characters.

use std::fmt;

use percent_encoding::percent_decode_str;

use dray_types::RedactedUrl;

use crate::reply::shown_name;
use dray_dial::origin::{FileUrl, LoadTarget};

/// Name of a file, fit for messages and logs: at most 200 characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisplayName(String);

impl DisplayName {
    /// Makes the name of a URL, or of a text that resembles one.
    pub fn url(named: &str) -> Self {
        Self(RedactedUrl::from_text(named).to_string())
    }

    /// Makes the name of a text that cannot be loaded, such as `mailto:a@b.example?subject=c`. The text is unchanged
    /// except for the user info of an authority, so that the model recognizes it. URLs of the web are shown like any
    /// other.
    pub fn unsupported(named: &str) -> Self {
        let is_web = ["http://", "https://"].iter().any(|scheme| {
            let head = named.trim_start_matches(' ').get(..scheme.len());
            head.is_some_and(|head| head.eq_ignore_ascii_case(scheme))
        });
        if is_web {
            return Self::url(named);
        }
        let Some((scheme, rest)) = named.split_once("//") else {
            return Self(shown_name(named));
        };
        let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let host = authority
            // The last `@` ends the user info, which may contain others.
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        Self(shown_name(&format!("{scheme}//{host}{path}")))
    }

    /// Makes the name of a DIAL file, percent-decoded, so that all of its spellings are displayed in the same way.
    pub fn dial(path: &FileUrl) -> Self {
        let decoded = percent_decode_str(path.as_str()).decode_utf8_lossy();
        Self(shown_name(&decoded))
    }

    /// Makes the name of a file from either source.
    pub fn target(target: &LoadTarget) -> Self {
        match target {
            LoadTarget::Dial(path) => Self::dial(path),
            LoadTarget::External(url) => Self::url(url),
        }
    }
}

impl fmt::Display for DisplayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_dial::origin::classify_reference;

    fn check(named: &str, expected: &str) {
        let shown = DisplayName::target(&classify_reference(named, None).unwrap());
        assert_eq!(shown.to_string(), expected);
    }

    #[test]
    fn dial_files_are_shown_decoded_and_whole() {
        check("//files/b/%C3%A4%20b@2x.png?secret", "files/b/ä b@2x.png");
        let long = format!("files/{}/a.pdf", "b".repeat(100));
        check(&long, &long);
        check(
            &format!("files/b/{}", "x".repeat(999)),
            &format!("files/b/{}", "x".repeat(192)),
        );
    }

    #[test]
    fn urls_lose_user_info_and_query() {
        check("https://u:p@h.example/a?secret", "https://h.example/a");
    }

    #[test]
    fn an_unsupported_reference_is_shown_unchanged_but_without_user_info() {
        for written in [
            "mailto:a@b.example?subject=c#d",
            "ftp://h.example/a?b=c@d",
            "data:text/plain,a@b",
            "report@home.pdf",
            "//h.example/x@y",
            "v1/files/b/a",
        ] {
            assert_eq!(DisplayName::unsupported(written).to_string(), written);
        }
        for (written, shown) in [
            ("ftp://u:p@h.example/a@b?c", "ftp://h.example/a@b?c"),
            ("HTTPS://u:p@h.example/a?secret", "HTTPS://h.example/a"),
        ] {
            assert_eq!(DisplayName::unsupported(written).to_string(), shown);
        }
    }

    #[test]
    fn characters_that_hide_others_are_escaped() {
        check("files/b/a\u{202e}fdp.exe", "files/b/a\\u{202e}fdp.exe");
    }
}
