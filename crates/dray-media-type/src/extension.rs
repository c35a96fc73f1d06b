//! The extension of a file name.

/// Most bytes of a text after a dot that counts as an extension.
const MAX_EXTENSION_BYTES: usize = 24;

/// The extension of a name in lower case without its dot: `gz` of `a.TAR.GZ`. Empty without one.
pub fn extension_of(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let dotted = extension_start(last).and_then(|at| last.get(at + 1..));
    dotted.unwrap_or_default().to_ascii_lowercase()
}

/// The byte offset of the dot of the last extension. `name` has no directories.
pub fn extension_start(name: &str) -> Option<usize> {
    let at = name.rfind('.').filter(|at| *at > 0)?;
    let extension = name.get(at + 1..)?;
    let fits = !extension.is_empty()
        && extension.len() <= MAX_EXTENSION_BYTES
        && !extension
            .contains(|character: char| character.is_whitespace() || character.is_control());
    fits.then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_belongs_to_the_last_segment() {
        assert_eq!(extension_of("/x.d/a.B.GZ"), "gz");
        for name in [
            "/x.d/a",
            ".profile",
            "a.",
            "a.b c",
            "a.0123456789012345678901234",
        ] {
            assert_eq!(extension_of(name), "", "{name}");
        }
    }
}
