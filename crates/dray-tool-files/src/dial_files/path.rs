//! Paths relative to the app's own folder (quickapps 32).

use percent_encoding::percent_decode_str;

use dray_dial::origin::encode_path;

/// Longest path, in bytes.
const MAX_PATH_BYTES: usize = 1024;
/// Longest segment of a path, in bytes.
const MAX_SEGMENT_BYTES: usize = 255;
/// Characters that no path may contain: those of quickapps 32, and the backslash, which some systems read as `/`.
const REFUSED_CHARACTERS: [char; 10] = [':', ';', ',', '=', '{', '}', '%', '&', '"', '\\'];

/// The path in the form of URLs; `None` if it could leave the folder or is not a path. `""` is the folder itself and is
/// only valid for folders.
pub(super) fn relative_path(path: &str, is_folder: bool) -> Option<String> {
    let path = path.trim();
    let path = path.strip_prefix("./").unwrap_or(path);
    let path = if is_folder {
        path.trim_end_matches('/')
    } else {
        path
    };
    if is_folder && matches!(path, "" | ".") {
        return Some(String::new());
    }
    let refused =
        |character: char| character.is_control() || REFUSED_CHARACTERS.contains(&character);
    if path.is_empty() || path.len() > MAX_PATH_BYTES || path.contains(refused) {
        return None;
    }
    let is_valid_segment = |segment: &str| {
        // DIAL refuses a final dot with status 400 (quickapps 5.1); `.` and `..` end in one too (path traversal).
        !segment.is_empty() && segment.len() <= MAX_SEGMENT_BYTES && !segment.ends_with('.')
    };
    path.split('/').all(is_valid_segment).then(|| {
        let mut url = encode_path(path);
        if is_folder {
            url.push('/');
        }
        url
    })
}

/// A readable path from the path of a URL.
pub(super) fn shown_path(url: &str) -> String {
    percent_decode_str(url).decode_utf8_lossy().into_owned()
}

/// Whether a name matches `pattern`: `*` matches any text, `?` one character, ignoring case. The time is linear in the
/// name for each star.
pub(super) fn matches_pattern(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.to_lowercase().chars().collect();
    let name: Vec<char> = name.to_lowercase().chars().collect();
    let (mut name_index, mut pattern_index) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while name_index < name.len() {
        match pattern.get(pattern_index) {
            Some('*') => {
                star = Some((pattern_index, name_index));
                pattern_index += 1;
            }
            Some(expected) if *expected == '?' || name.get(name_index) == Some(expected) => {
                name_index += 1;
                pattern_index += 1;
            }
            _ => match star {
                // Only the last star is extended: earlier ones match as little as possible, which always suffices.
                Some((star_index, matched_until)) => {
                    star = Some((star_index, matched_until + 1));
                    pattern_index = star_index + 1;
                    name_index = matched_until + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(pattern_index).all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out_of_the_directory() {
        for path in [
            "../a",
            "a/../b",
            "/etc/passwd",
            "a//b",
            "a/./b",
            "..",
            ".",
            "a\\b",
            "%2e%2e/a",
            "a:b",
            "a\nb",
            "",
            "a.",
            "a/",
        ] {
            assert_eq!(relative_path(path, false), None, "{path:?}");
        }
        for path in ["..", "a/..", "/a"] {
            assert_eq!(relative_path(path, true), None, "{path:?}");
        }
        assert_eq!(relative_path(&"a".repeat(256), false), None);
        assert_eq!(relative_path(&"a/".repeat(600), true), None);
    }

    #[test]
    fn sound_paths_are_encoded_by_segment() {
        assert_eq!(
            relative_path("a b/c.txt", false).as_deref(),
            Some("a%20b/c.txt")
        );
        assert_eq!(relative_path("./a", false).as_deref(), Some("a"));
        assert_eq!(relative_path("", true).as_deref(), Some(""));
        assert_eq!(relative_path("a/b/", true).as_deref(), Some("a/b/"));
        assert_eq!(shown_path("a%20b/c.txt"), "a b/c.txt");
    }

    #[test]
    fn patterns_match_names() {
        assert!(matches_pattern("*.CSV", "a.csv"));
        assert!(matches_pattern("a?c*", "abcd"));
        assert!(matches_pattern("*", ""));
        assert!(matches_pattern("a*b*c", "a1b2b3c"));
        assert!(!matches_pattern("*.csv", "a.csv.bak"));
        assert!(!matches_pattern("?", ""));
    }
}
