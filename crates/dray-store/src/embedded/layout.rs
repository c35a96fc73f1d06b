//! The paths in the served directory. Keys become paths that cannot leave it (path traversal).
//!
//! ```text
//! lock                          held by the process that serves the directory
//! endpoint.json                 its port and credentials
//! tmp/<uuid>                    files being written; emptied at start
//! objects/<bucket>/<key>@       one file per object; each component of the key is encoded
//! uploads/<bucket>/<uuid>/      one multipart upload: `upload` and one file per part
//! ```
//!
//! Only its owner can read it: directories have mode 0700, files 0600.

use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use uuid::Uuid;

/// Bytes that are not escaped in file names: none of them has a meaning in a path.
const UNESCAPED_BYTES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Ends the name of every object's file. It never occurs in an encoded component, so the object `a` and the objects
/// below `a/` cannot collide.
const OBJECT_FILE_SUFFIX: char = '@';

/// Longest name of a file in bytes that every file system takes.
const MAX_FILE_NAME_BYTES: usize = 255;

/// The paths of one served directory.
#[derive(Clone, Debug)]
pub(super) struct DirectoryLayout {
    root: PathBuf,
}

impl DirectoryLayout {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(super) fn identity(&self) -> PathBuf {
        self.root.join("endpoint.json")
    }

    pub(super) fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub(super) fn objects(&self) -> PathBuf {
        self.root.join("objects")
    }

    pub(super) fn uploads(&self) -> PathBuf {
        self.root.join("uploads")
    }

    pub(super) fn bucket(&self, bucket: &str) -> PathBuf {
        self.objects().join(encode_component(bucket))
    }

    pub(super) fn bucket_uploads(&self, bucket: &str) -> PathBuf {
        self.uploads().join(encode_component(bucket))
    }

    pub(super) fn upload(&self, bucket: &str, id: Uuid) -> PathBuf {
        self.bucket_uploads(bucket).join(id.to_string())
    }

    /// The path of an object's file; `None` when its name is too long for any file system.
    pub(super) fn object(&self, bucket: &str, key: &str) -> Option<PathBuf> {
        let mut path = self.bucket(bucket);
        let mut components = key.split('/').peekable();
        while let Some(component) = components.next() {
            let mut name = encode_component(component);
            if components.peek().is_none() {
                name.push(OBJECT_FILE_SUFFIX);
            }
            if name.len() > MAX_FILE_NAME_BYTES {
                return None;
            }
            path.push(name);
        }
        Some(path)
    }
}

/// Encodes one component of a key as the name of a file. A name of dots alone, or an empty name, would refer to another
/// directory.
fn encode_component(component: &str) -> String {
    let encoded = utf8_percent_encode(component, UNESCAPED_BYTES).to_string();
    // For `.`, `..` and the empty name. The leading percent sign distinguishes them from encoded bytes.
    if encoded.bytes().all(|byte| byte == b'.') {
        return format!("%{}", encoded.replace('.', "%2E"));
    }
    encoded
}

/// Decodes the name of a file or directory: a component of a key, and whether it is an object.
pub(super) fn decode_name(name: &str) -> Option<(String, bool)> {
    let (encoded, is_object) = match name.strip_suffix(OBJECT_FILE_SUFFIX) {
        Some(encoded) => (encoded, true),
        None => (name, false),
    };
    if let Some(dots) = encoded
        .strip_prefix('%')
        .filter(|rest| rest.is_empty() || rest.starts_with("%2E"))
    {
        return Some((dots.replace("%2E", "."), is_object));
    }
    let component = percent_decode_str(encoded).decode_utf8().ok()?;
    Some((component.into_owned(), is_object))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(key: &str) -> Vec<String> {
        let path = DirectoryLayout::new(Path::new("/r"))
            .object("bucket", key)
            .unwrap();
        let relative = path.strip_prefix("/r/objects/bucket").unwrap();
        relative
            .components()
            .map(|component| match component {
                std::path::Component::Normal(name) => name.to_str().unwrap().to_owned(),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn keys_cannot_leave_the_bucket() {
        assert_eq!(names("cas/t/ab/cd"), ["cas", "t", "ab", "cd@"]);
        assert_eq!(names("../../x"), ["%%2E%2E", "%%2E%2E", "x@"]);
        assert_eq!(names("a//b/"), ["a", "%", "b", "%@"]);
        assert_eq!(names("a@/%2E\0"), ["a%40", "%252E%00@"]);
    }

    #[test]
    fn names_too_long_for_a_file_are_refused() {
        let layout = DirectoryLayout::new(Path::new("/r"));
        assert!(layout.object("bucket", &"x".repeat(254)).is_some());
        assert!(layout.object("bucket", &"x".repeat(255)).is_none());
    }

    proptest! {
        #[test]
        fn every_key_is_read_back(key in "(\\PC|[./@%]){0,18}") {
            let decoded: Vec<_> = names(&key).iter().map(|name| decode_name(name).unwrap()).collect();
            let (last, before) = decoded.split_last().unwrap();
            prop_assert!(last.1);
            prop_assert!(before.iter().all(|(_, is_object)| !is_object));
            let components: Vec<_> = decoded.iter().map(|(text, _)| text.as_str()).collect();
            prop_assert_eq!(components.join("/"), key);
        }
    }
}
