//! `multipart/form-data` read while it comes: files are counted and digested, not held.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf as _, BytesMut};
use dray_types::Sha256Digest;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use sha2::{Digest as _, Sha256};

use super::form::{FormData, FormUpload};
use super::state::SharedState;

/// How much of a file is kept to look at.
const KEPT_HEAD_BYTES: usize = 64 * 1024;

/// Longest header of a part or value of a field.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// The body is not what it must be, or broke.
#[derive(Debug)]
pub(super) struct MalformedForm;

/// A body with what was read ahead of it.
pub(super) struct FormReader {
    body: Incoming,
    ahead: BytesMut,
    shared: Arc<SharedState>,
}

impl FormReader {
    pub(super) fn new(body: Incoming, shared: Arc<SharedState>) -> Self {
        Self {
            body,
            ahead: BytesMut::new(),
            shared,
        }
    }

    /// Reads more; false at the end.
    pub(super) async fn more(&mut self) -> Result<bool, MalformedForm> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.map_err(|_| MalformedForm)?.into_data() {
                let length = u64::try_from(data.len()).unwrap_or_default();
                self.shared.received.fetch_add(length, Ordering::SeqCst);
                self.ahead.extend_from_slice(&data);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Everything there is, up to a limit.
    pub(super) async fn all(mut self) -> Result<Vec<u8>, MalformedForm> {
        while self.more().await? {
            if self.ahead.len() > MAX_HEADER_BYTES {
                return Err(MalformedForm);
            }
        }
        Ok(self.ahead.to_vec())
    }

    /// Reads the rest and forgets it.
    pub(super) async fn skip(mut self) -> Result<(), MalformedForm> {
        while self.more().await? {
            self.ahead.clear();
        }
        Ok(())
    }

    /// Gives everything before `mark` to `sink`, in pieces, and steps over the mark.
    async fn until(
        &mut self,
        mark: &[u8],
        sink: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<(), MalformedForm> {
        loop {
            if let Some(at) = find_mark(&self.ahead, mark) {
                sink(self.ahead.get(..at).unwrap_or_default());
                self.ahead.advance(at + mark.len());
                return Ok(());
            }
            let sure = self.ahead.len().saturating_sub(mark.len() - 1);
            sink(self.ahead.get(..sure).unwrap_or_default());
            self.ahead.advance(sure);
            if !self.more().await? {
                return Err(MalformedForm);
            }
        }
    }

    async fn short(&mut self, mark: &[u8]) -> Result<String, MalformedForm> {
        let mut text = Vec::new();
        self.until(mark, &mut |piece| text.extend_from_slice(piece))
            .await?;
        if text.len() > MAX_HEADER_BYTES {
            return Err(MalformedForm);
        }
        String::from_utf8(text).map_err(|_| MalformedForm)
    }

    /// The whole form.
    pub(super) async fn form(mut self, boundary: &str) -> Result<FormData, MalformedForm> {
        let mut form = FormData::default();
        let mark = format!("\r\n--{boundary}");
        // The first boundary has no line before it.
        self.ahead.extend_from_slice(b"\r\n");
        self.until(mark.as_bytes(), &mut |_| {}).await?;
        loop {
            while self.ahead.len() < 2 {
                if !self.more().await? {
                    return Err(MalformedForm);
                }
            }
            if self.ahead.starts_with(b"--") {
                self.skip().await?;
                return Ok(form);
            }
            let head = self.short(b"\r\n\r\n").await?;
            let name = disposition_parameter(&head, "name").ok_or(MalformedForm)?;
            match disposition_parameter(&head, "filename") {
                None => {
                    let value = self.short(mark.as_bytes()).await?;
                    form.fields.insert(name, value);
                }
                Some(file_name) => {
                    let upload = self.upload(mark.as_bytes(), file_name).await?;
                    form.files.insert(name, upload);
                }
            }
        }
    }

    async fn upload(&mut self, mark: &[u8], name: String) -> Result<FormUpload, MalformedForm> {
        let mut digest = Sha256::new();
        let (mut head, mut size) = (Vec::new(), 0);
        self.until(mark, &mut |piece| {
            digest.update(piece);
            size += u64::try_from(piece.len()).unwrap_or_default();
            let room = KEPT_HEAD_BYTES.saturating_sub(head.len()).min(piece.len());
            head.extend_from_slice(piece.get(..room).unwrap_or_default());
        })
        .await?;
        Ok(FormUpload {
            name,
            size,
            sha256: Sha256Digest::from_bytes(digest.finalize().into()),
            head,
        })
    }
}

/// Where `mark` begins. It begins with a carriage return.
fn find_mark(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    while !rest.is_empty() {
        rest.skip_until(b'\r').ok()?;
        // What was skipped ends with the byte looked for, or is everything.
        let start = (bytes.len() - rest.len()).checked_sub(1)?;
        if bytes.get(start..)?.starts_with(mark) {
            return Some(start);
        }
    }
    None
}

/// A quoted parameter of `Content-Disposition`, as the server reads it: UTF-8, `%22`, `%0D`, `%0A` undone.
fn disposition_parameter(head: &str, name: &str) -> Option<String> {
    let line = head.lines().find(|line| {
        line.to_ascii_lowercase()
            .starts_with("content-disposition:")
    })?;
    let (_, after) = line.split_once(&format!("; {name}=\""))?;
    let (value, _) = after.split_once('"')?;
    Some(
        value
            .replace("%22", "\"")
            .replace("%0D", " ")
            .replace("%0A", " "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_among_other_line_ends() {
        assert_eq!(find_mark(b"a\rb\r\n--x", b"\r\n--x"), Some(3));
        assert_eq!(find_mark(b"a\r\n--", b"\r\n--x"), None);
        assert_eq!(find_mark(b"", b"\r\n--x"), None);
        assert_eq!(find_mark(b"a\r", b"\r\n--x"), None);
        assert_eq!(find_mark(b"\r\n--x", b"\r\n--x"), Some(0));
        assert_eq!(find_mark(b"none", b"\r\n--x"), None);
    }

    #[test]
    fn parameters_are_told_apart() {
        let head = "Content-Disposition: form-data; name=\"a\"; filename=\"b%22 ё.txt\"\r\nX: y";
        assert_eq!(disposition_parameter(head, "name").as_deref(), Some("a"));
        assert_eq!(
            disposition_parameter(head, "filename").as_deref(),
            Some("b\" ё.txt")
        );
        assert_eq!(disposition_parameter("Content-Type: x", "name"), None);
    }
}
