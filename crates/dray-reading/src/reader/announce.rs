//! Describes staged files to a model before it reads any (read-attachment 14).

use std::io::Read as _;

use dray_documents::classify::Kind;
use dray_documents::{encoding, formats};
use tokio_util::sync::CancellationToken;

use super::prepare::{KindGate, PreparedFile};
use super::{Reader, log};
use crate::defang::defang;
use crate::frame::{announced, frame};
use crate::message::{self, Cause, escape_path};
use crate::record::Code;

/// Support for images by the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vision {
    /// A multimodal model is configured.
    Yes,
    /// No multimodal model is configured; the block of an image says that it cannot be seen.
    No,
}

impl Reader {
    /// One block for each staged file that may be read, in order. A refused file has no block; the reason is logged.
    /// Blocks the thread while it reads.
    ///
    /// `staged` are paths as the model must write them.
    pub fn announce(&self, staged: &[String], vision: Vision) -> Vec<String> {
        let blocks = staged.iter().filter_map(|path| {
            let block = self.block(path, vision);
            block.inspect_err(|code| log::skipped(path, *code)).ok()
        });
        blocks.collect()
    }

    fn block(&self, path: &str, vision: Vision) -> Result<String, Code> {
        let opened = self
            .roots
            .open(Some(path))
            .map_err(|refusal| refusal.code)?;
        let steps = self.prepare_steps(
            self.policy.clone(),
            KindGate::Any,
            &CancellationToken::new(),
        );
        let prepared = steps
            .prepare(path, opened.file, opened.size)
            .map_err(|record| record.error_code.unwrap_or(Code::Internal))?;
        let escaped = escape_path(path);
        let (mime, size) = (prepared.class.mime, prepared.size);
        Ok(match prepared.class.kind {
            Kind::Text => return self.text_block(path, prepared),
            Kind::Document if prepared.class.encrypted => {
                message::hint(path, mime, Cause::Encrypted)
            }
            Kind::Document if formats::converter(&prepared.class.hint()).is_none() => {
                message::shell_hint(path, mime)
            }
            Kind::Document => format!(
                "[Attached document: {escaped} ({mime})]\nNot inlined. Read it with `read_attachment` (file_path: {escaped}); the result is Markdown framed as untrusted data. Do not assume contents you have not read."
            ),
            Kind::Archive if formats::is_archive(&prepared.class.hint()) => format!(
                "[Attached archive: {escaped} ({mime})]\nNot expanded. List it with `read_attachment` (file_path: {escaped}) and read one of its files with `member`, or use a shell and extract only what is needed."
            ),
            Kind::Archive => format!(
                "[Attached archive: {escaped} ({mime})]\nNot expanded. List it with a shell and extract only what is needed."
            ),
            Kind::Image if vision == Vision::No => format!(
                "[Attached image: {escaped} ({mime})]\nIt cannot be seen: no multimodal model is configured."
            ),
            Kind::Image => format!("[Attached image: {escaped} ({mime})]"),
            Kind::Binary => format!(
                "[Attached binary file: {escaped} ({mime}, {size} bytes)]\nNot inlined. Inspect it via the shell."
            ),
        })
    }

    /// A text, or as much of it as the budget allows.
    fn text_block(&self, path: &str, prepared: PreparedFile) -> Result<String, Code> {
        let (mime, total) = (prepared.class.mime, prepared.size);
        let budget = self.policy.inline_text_budget_bytes;
        let mut bytes = Vec::new();
        let limit = u64::try_from(budget).unwrap_or(u64::MAX);
        prepared
            .file
            // Up to four more bytes, so that a character at the limit is complete, or detected as cut.
            .take(limit.saturating_add(4))
            .read_to_end(&mut bytes)
            .map_err(|_| Code::Unreadable)?;
        let encoding = prepared.class.encoding;
        let text = defang(&encoding::decode_text(&bytes, encoding));
        // Legacy encodings grow when they become UTF-8.
        let is_truncated = total > limit || text.len() > budget;
        let body = if prepared.blank {
            message::EMPTY_FILE_NOTE
        } else {
            text.get(..text.floor_char_boundary(budget))
                .unwrap_or(&text)
        };
        // A cut inside a character decodes to U+FFFD.
        let body = if is_truncated {
            body.trim_end_matches(char::REPLACEMENT_CHARACTER)
        } else {
            body
        };
        let header = announced(path, mime, is_truncated.then_some((budget, total)));
        let framed = frame(&header, body).map_err(|_| Code::Internal)?;
        if !is_truncated {
            return Ok(framed);
        }
        let escaped = escape_path(path);
        Ok(format!(
            "{framed}\nThe rest of {escaped} is not inlined. Read it with `read_attachment` (file_path: {escaped}, range: bytes {budget}-)."
        ))
    }
}
