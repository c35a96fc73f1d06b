//! Entries as the tool describes them.

use dray_sandbox::{Entry, Error, ErrorKind, FileKind, Metadata, SandboxPath};
use serde::Deserialize;

/// One entry. The tool reports owners by name only, so entries have no user and group ids.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct ToolEntry {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    size: u64,
    mode: u32,
    #[serde(default)]
    modified_time: f64,
    #[serde(default)]
    symlink_target: Option<String>,
}

fn malformed_entry(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::Protocol, "the file tool sent an invalid entry").caused_by(error)
}

impl ToolEntry {
    pub(super) fn parse(response: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(response).map_err(malformed_entry)
    }

    pub(super) fn parse_all(response: &[u8]) -> Result<Vec<Self>, Error> {
        serde_json::from_slice(response).map_err(malformed_entry)
    }

    pub(super) fn kind(&self) -> FileKind {
        match self.kind.as_str() {
            "directory" => FileKind::Directory,
            "symlink" => FileKind::Symlink,
            // The tool reports special files as files too; the mode distinguishes them, if it has type bits.
            "file" if self.mode & 0o170_000 != 0 => FileKind::from_st_mode(self.mode),
            "file" => FileKind::File,
            _ => FileKind::Other,
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    pub(super) fn target(&self) -> Option<&str> {
        self.symlink_target.as_deref()
    }

    fn mtime_ns(&self) -> Option<i128> {
        // Zero stands for a missing field.
        let is_valid = self.modified_time.is_finite() && self.modified_time > 0.0;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a float out of range becomes the nearest integer of the range"
        )]
        is_valid.then_some((self.modified_time * 1e9) as i128)
    }

    pub(super) fn metadata(self, path: &SandboxPath, real_path: SandboxPath) -> Metadata {
        Metadata {
            path: path.clone(),
            real_path,
            kind: self.kind(),
            size: self.size,
            mode: self.mode & 0o7777,
            uid: None,
            gid: None,
            mtime_ns: self.mtime_ns(),
            link_target: self.symlink_target.map(String::into_bytes),
            links: None,
            identity: None,
        }
    }

    pub(super) fn entry(self, directory: &SandboxPath) -> Result<Entry, Error> {
        // A hostile sandbox could name a path outside the directory.
        let path = directory.join(&self.name).map_err(|error| {
            Error::new(ErrorKind::Protocol, "an entry has another parent directory")
                .caused_by(error)
        })?;
        Ok(Entry {
            path,
            kind: self.kind(),
            size: self.size,
            mode: self.mode & 0o7777,
            mtime_ns: self.mtime_ns(),
            link_target: self.symlink_target.map(String::into_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK_ENTRY: &[u8] = br#"{"name":"l","path":"/w/l","type":"symlink","size":4,"mode":511,"permissions":"rwxrwxrwx",
        "owner":"root","group":"root","modified_time":1700000000.5,"symlink_target":"file"}"#;

    #[test]
    fn an_entry_has_only_the_fields_that_the_tool_reports() {
        let path = SandboxPath::new("/w/l").unwrap();
        let link = ToolEntry::parse(LINK_ENTRY)
            .unwrap()
            .metadata(&path, path.clone());
        assert_eq!(
            (link.kind, link.size, link.mode),
            (FileKind::Symlink, 4, 0o777)
        );
        assert_eq!(link.mtime_ns, Some(1_700_000_000_500_000_000));
        assert_eq!(link.link_target.as_deref(), Some(b"file".as_slice()));
        assert_eq!((link.uid, link.identity, link.links), (None, None, None));
    }

    #[test]
    fn entries_other_than_files_directories_and_links_are_special() {
        let of = |kind: &str, mode: u32| {
            let text = format!(r#"{{"name":"x","type":"{kind}","size":0,"mode":{mode}}}"#);
            ToolEntry::parse(text.as_bytes()).unwrap().kind()
        };
        assert_eq!(of("file", 0o644), FileKind::File);
        assert_eq!(of("file", 0o100_644), FileKind::File);
        assert_eq!(of("file", 0o010_644), FileKind::Fifo);
        assert_eq!(of("other", 0o644), FileKind::Other);
    }

    #[test]
    fn entries_outside_of_their_directory_are_refused() {
        let directory = SandboxPath::new("/w").unwrap();
        for name in ["../etc", "..", "", "a/b"] {
            let text = format!(r#"[{{"name":"{name}","type":"file","size":0,"mode":420}}]"#);
            let found = ToolEntry::parse_all(text.as_bytes()).unwrap().remove(0);
            assert_eq!(
                found.entry(&directory).unwrap_err().kind(),
                ErrorKind::Protocol
            );
        }
        assert_eq!(
            ToolEntry::parse(b"[]").unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }
}
