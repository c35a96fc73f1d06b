//! Names of entries that lead out of the directory that they belong to (zip slip, path traversal).

/// Bytes of the longest name of an entry.
pub const MAX_NAME_BYTES: usize = 4096;
/// Most bytes of one part of a name: the limit of Linux for a file name.
pub const MAX_PART_BYTES: usize = 255;

/// A name that leaves its directory, or that no file can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of an entry cannot be used")]
pub struct UnsafeName;

/// Returns the parts of a name that does not leave its directory; no parts for the directory itself (`.`, `./`).
///
/// # Errors
/// The name is absolute, has an empty part or `..`, contains a NUL, or is too long.
pub fn relative_parts(name: &[u8]) -> Result<Vec<&[u8]>, UnsafeName> {
    // A NUL would end the name for the kernel, so a check of the rest would be about another name.
    if name.is_empty()
        || name.len() > MAX_NAME_BYTES
        || name.contains(&0)
        || name.first() == Some(&b'/')
    {
        return Err(UnsafeName);
    }
    // The slash that ends the name of a directory.
    let name = name.strip_suffix(b"/").unwrap_or(name);
    let mut parts = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"." => {}
            // Such a name is refused and not normalised: `a//b` and `a/../b` mean different things to different
            // unpackers.
            b"" | b".." => return Err(UnsafeName),
            part if part.len() > MAX_PART_BYTES => return Err(UnsafeName),
            part => parts.push(part),
        }
    }
    Ok(parts)
}

/// Like [`relative_parts`], for a name that stays in its directory on every system: a drive letter would lead elsewhere
/// on Windows.
///
/// # Errors
/// The errors of [`relative_parts`], and names with a drive letter.
pub fn safe_parts(name: &[u8]) -> Result<Vec<&[u8]>, UnsafeName> {
    let parts = relative_parts(name)?;
    match parts.first() {
        // `C:x` is relative to the current directory of drive C on Windows.
        Some([letter, b':', ..]) if letter.is_ascii_alphabetic() => Err(UnsafeName),
        _ => Ok(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_names_are_refused() {
        for name in [
            b"".as_slice(),
            b"/etc/passwd",
            b"//x",
            b"..",
            b"../x",
            b"a/../x",
            b"a/..",
            b"./..",
            b"a//b",
            b"a/\0b",
            b"C:",
            b"c:\\windows",
            b"C:/x",
            b"./C:x",
            "x".repeat(256).as_bytes(),
            "x/".repeat(2049).as_bytes(),
        ] {
            assert_eq!(safe_parts(name), Err(UnsafeName), "{}", name.escape_ascii());
        }
        assert_eq!(relative_parts(b"C:x").unwrap(), [b"C:x"]);
        assert_eq!(relative_parts(b"../x"), Err(UnsafeName));
        assert_eq!(safe_parts(b"./"), Ok(vec![]));
        assert_eq!(safe_parts(b"./a/./b/"), Ok(vec![b"a".as_slice(), b"b"]));
        assert_eq!(safe_parts(b"...").unwrap(), [b"..."]);
        assert_eq!(safe_parts(b"\xff\\..").unwrap(), [b"\xff\\.."]);
    }
}
