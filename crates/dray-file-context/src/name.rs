//! Makes display names that are single safe path segments and unique in a conversation (agent-file-context 5.2, R-4).

use std::collections::BTreeMap;

use crate::limits;

/// Makes a name a single safe path segment: the text after the last slash or backslash, trimmed, without control
/// characters, at most [`limits::MAX_NAME_BYTES`] long. If no usable text is left, the name is `file-{index}`.
pub(crate) fn clean_name(name: &str, index: usize) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String = last
        .trim()
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    // The name is trimmed again, because removing a control character can leave a blank at an end.
    match plain.trim() {
        "" | "." | ".." => format!("file-{index}"),
        plain => shorten_stem(plain),
    }
}

/// Shortens a name to [`limits::MAX_NAME_BYTES`]. Cuts before the extension, if the extension has at most 20 bytes.
fn shorten_stem(name: &str) -> String {
    if name.len() <= limits::MAX_NAME_BYTES {
        return name.to_owned();
    }
    let (stem, extension) = match name.rfind('.') {
        // A longer text after the dot is a part of the name and not an extension.
        Some(dot) if dot > 0 && name.len() - dot <= 20 => name.split_at(dot),
        _ => (name, ""),
    };
    let end = stem.floor_char_boundary(limits::MAX_NAME_BYTES - extension.len());
    let (stem, _) = stem.split_at(end);
    format!("{}{extension}", stem.trim_end())
}

/// Adds `-{count}` before the first dot; at the end if the name begins with a dot or the text after the dot is long.
fn numbered_name(name: &str, count: usize) -> String {
    let dot = name
        .char_indices()
        // `.env` has no text before its dot and becomes `.env-1` (5.2).
        .find(|&(index, character)| index > 0 && character == '.' && !name.starts_with('.'));
    let (stem, extension) = dot
        .map(|(index, _)| name.split_at(index))
        .filter(|(_, extension)| extension.len() <= limits::MAX_NAME_BYTES / 2)
        .unwrap_or((name, ""));
    let suffix = format!("-{count}");
    // The stem is shortened, so that the number and the extension are kept.
    let stem_limit = limits::MAX_NAME_BYTES.saturating_sub(extension.len() + suffix.len());
    let (stem, _) = stem.split_at(stem.floor_char_boundary(stem_limit));
    format!("{stem}{suffix}{extension}")
}

/// Assigns unique names to files.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameAllocator {
    /// Owner of each assigned name.
    owners: BTreeMap<String, String>,
    /// The last number tried for a name, so that many files with the same name stay fast.
    counts: BTreeMap<String, usize>,
    /// The name that each owner got, by cleaned name and owner.
    assigned: BTreeMap<(String, String), String>,
}

impl NameAllocator {
    /// Creates an allocator without assigned names.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Reserves a name for a file that already has it. Does nothing if the name belongs to another file.
    pub(crate) fn reserve(&mut self, name: &str, owner: &str) {
        let known_owner = self.owners.entry(name.to_owned());
        known_owner.or_insert_with(|| owner.to_owned());
    }

    /// Assigns a unique name: the cleaned name, with a number if it is taken. The same owner and name give the same
    /// result again.
    pub(crate) fn assign(&mut self, name: &str, index: usize, owner: &str) -> String {
        let cleaned = clean_name(name, index);
        if self.owners.get(&cleaned).is_none_or(|other| other == owner) {
            self.reserve(&cleaned, owner);
            return cleaned;
        }
        let request = (cleaned, owner.to_owned());
        if let Some(name) = self.assigned.get(&request) {
            return name.clone();
        }
        let (cleaned, _) = &request;
        let mut count = self.counts.get(cleaned).copied().unwrap_or(0) + 1;
        let mut name = numbered_name(cleaned, count);
        while self.owners.contains_key(&name) {
            count += 1;
            name = numbered_name(cleaned, count);
        }
        self.counts.insert(cleaned.clone(), count);
        self.reserve(&name, owner);
        self.assigned.insert(request, name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assign_all(requested: &[&str]) -> Vec<String> {
        let mut names = NameAllocator::new();
        let numbered = requested.iter().enumerate();
        numbered
            .map(|(index, name)| names.assign(name, index, &index.to_string()))
            .collect()
    }

    #[test]
    fn a_name_becomes_one_safe_path_segment() {
        assert_eq!(clean_name("/api/file/raw", 0), "raw");
        assert_eq!(clean_name("C:\\docs\\a.pdf", 0), "a.pdf");
        assert_eq!(clean_name(" a\u{0}\u{1f}b\u{7f}\u{85}.txt ", 0), "ab.txt");
        for nothing in ["", "/", "..", "a/.", " \n ", "\u{1}"] {
            assert_eq!(clean_name(nothing, 3), "file-3", "{nothing:?}");
        }
    }

    #[test]
    fn a_repeated_name_is_numbered_before_its_first_dot() {
        assert_eq!(
            assign_all(&["a.tar.gz", "a.tar.gz"]),
            ["a.tar.gz", "a-1.tar.gz"]
        );
        assert_eq!(assign_all(&[".env", ".env"]), [".env", ".env-1"]);
        assert_eq!(
            assign_all(&["README", "README", "README"]),
            ["README", "README-1", "README-2"]
        );
    }

    #[test]
    fn r_4_numbered_names_are_unique_too() {
        assert_eq!(
            assign_all(&["a.pdf", "a.pdf", "a-1.pdf"]),
            ["a.pdf", "a-1.pdf", "a-1-1.pdf"]
        );
        assert_eq!(
            assign_all(&["a-1.pdf", "a.pdf", "a.pdf"]),
            ["a-1.pdf", "a.pdf", "a-2.pdf"]
        );
    }

    #[test]
    fn r_4_a_file_keeps_its_name_and_reserved_names_are_not_assigned() {
        let mut names = NameAllocator::new();
        names.reserve("a.pdf", "one");
        assert_eq!(names.assign("a.pdf", 0, "two"), "a-1.pdf");
        assert_eq!(names.assign("a.pdf", 0, "one"), "a.pdf");
        assert_eq!(names.assign("a.pdf", 0, "two"), "a-1.pdf");
        assert_eq!(names.assign("a.pdf", 0, "three"), "a-2.pdf");
    }

    #[test]
    fn a_very_long_name_is_cut_and_keeps_its_extension() {
        let long = format!("{}.pdf", "报".repeat(300));
        let shortened = clean_name(&long, 0);
        assert!(shortened.len() <= limits::MAX_NAME_BYTES && shortened.ends_with("报.pdf"));
        assert!(numbered_name(&shortened, 12).len() <= limits::MAX_NAME_BYTES);
        assert!(clean_name(&format!("a.{}", "x".repeat(400)), 0).len() <= limits::MAX_NAME_BYTES);
    }

    proptest! {
        #[test]
        fn long_names_stay_within_a_segment_and_never_collide(stem in "[a报]{80,260}", rest in "(\\.[b文]{0,260}){0,2}") {
            let name = format!("{stem}{rest}");
            let assigned = assign_all(&[name.as_str(); 12]);
            let distinct: std::collections::BTreeSet<_> = assigned.iter().collect();
            prop_assert_eq!(distinct.len(), assigned.len());
            prop_assert!(assigned.iter().all(|name| name.len() <= limits::MAX_NAME_BYTES));
        }

        #[test]
        fn r_4_names_never_collide_and_are_safe(requested in prop::collection::vec("(a|b|\\.env|a-1|a-2|[ab./\\\\ ]{0,4}|.{0,6})(\\.pdf|\\.tar\\.gz|)", 0..24)) {
            let requested: Vec<_> = requested.iter().map(String::as_str).collect();
            let assigned = assign_all(&requested);
            let distinct: std::collections::BTreeSet<_> = assigned.iter().collect();
            prop_assert_eq!(distinct.len(), assigned.len());
            for name in &assigned {
                prop_assert!(!name.is_empty() && name.len() <= limits::MAX_NAME_BYTES);
                prop_assert!(!name.contains(['/', '\\', '\0']) && name != "." && name != "..");
            }
        }
    }
}
