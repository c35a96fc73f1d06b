//! Files of this machine as attachments: `data:` URLs with a media type that is detected from the content.

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_agent::message::Attachment;
use dray_media_type::kind;
use dray_presentation::{name, size};
use dray_types::FaultCode;

use super::chat_failure;
use crate::outcome::CommandFailure;

/// Most bytes of an attached file. The message carries it as base64, which is a third larger.
pub(super) const MAX_FILE_BYTES: u64 = 10 << 20;

/// Reads a file of at most [`MAX_FILE_BYTES`] into an attachment.
pub(super) fn read_attachment(file: &Path) -> Result<Attachment, CommandFailure> {
    let read_error = || CommandFailure::local(format!("cannot read {}", file.display()));
    let metadata = std::fs::metadata(file).map_err(read_error())?;
    // Only regular files are read: opening a named pipe would wait for a writer.
    if !metadata.is_file() {
        return Err(CommandFailure::Usage(format!(
            "{} is not a file that can be attached",
            file.display()
        )));
    }
    let mut bytes = Vec::new();
    let mut opened = std::fs::File::open(file)
        .map_err(read_error())?
        .take(MAX_FILE_BYTES + 1);
    opened.read_to_end(&mut bytes).map_err(read_error())?;
    // The file may have grown or shrunk since its length was read.
    let length = (bytes.len() as u64).max(metadata.len());
    if length > MAX_FILE_BYTES {
        return Err(chat_failure(
            FaultCode::TooLarge,
            "too_large",
            format!(
                "{} has {}.",
                file.display(),
                size::over_limit(length, MAX_FILE_BYTES)
            ),
            "Attach a smaller file, or a part of it.",
        ));
    }
    let own = file.file_name().unwrap_or_default();
    // The title has no directories: the agent must not learn where the file was.
    let title = name::clean_name(own.as_encoded_bytes());
    let head = bytes.get(..kind::HEAD_BYTES).unwrap_or(&bytes);
    let media_type = kind::detect_kind(head, &title, length).media_type;
    Ok(Attachment {
        kind: Some(media_type.to_owned()),
        title: Some(title),
        url: Some(format!(
            "data:{media_type};base64,{}",
            STANDARD.encode(&bytes)
        )),
        ..Attachment::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_decides_the_media_type() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("note.bin");
        std::fs::write(&file, b"%PDF-1.7\n%more").unwrap();
        let attachment = read_attachment(&file).unwrap();
        assert_eq!(attachment.kind.as_deref(), Some("application/pdf"));
        assert_eq!(attachment.title.as_deref(), Some("note.bin"));
        assert_eq!(
            attachment.url.as_deref(),
            Some("data:application/pdf;base64,JVBERi0xLjcKJW1vcmU=")
        );
    }

    #[test]
    fn refuses_a_large_file_a_directory_and_a_missing_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("large");
        let large = std::fs::File::create(&file).unwrap();
        large.set_len(MAX_FILE_BYTES + 1).unwrap();
        assert!(matches!(
            read_attachment(&file),
            Err(CommandFailure::Fault(_))
        ));
        large.set_len(MAX_FILE_BYTES + (2 << 20)).unwrap();
        let refused = read_attachment(&file).unwrap_err().to_string();
        assert!(refused.contains("12 MB of 10 MB"), "{refused}");
        large.set_len(MAX_FILE_BYTES).unwrap();
        assert!(read_attachment(&file).is_ok());
        assert!(matches!(
            read_attachment(directory.path()),
            Err(CommandFailure::Usage(_))
        ));
        let none = read_attachment(&directory.path().join("none"));
        assert!(matches!(none, Err(CommandFailure::Local { .. })));
    }
}
