//! Writes the content of one file into its slot while it is loaded.

use bytes::Bytes;

use dray_proto::v1;
use dray_types::{Fault, FaultCode};

use super::plan::{ContentForm, PlannedSlot, SlotContent};
use crate::base64::Base64Stream;
use crate::error::ResolveError;
use crate::loader::{FileLoader, LoadError};
use crate::output::ArgumentsOutput;
use crate::reply;
use crate::shown::DisplayName;
use crate::source::FileSource;
use crate::text::{BinaryContent, TextStream};

/// Writes a JSON string in place of the reference, and describes its content.
pub(super) async fn fill_slot(
    output: &mut ArgumentsOutput<'_>,
    loader: &FileLoader,
    slot: &PlannedSlot,
) -> Result<v1::ResolvedFile, LoadError> {
    let (form, target, shown, is_shared) = match &slot.filling {
        // An invalid slot fails here and not in the plan, because failures of earlier slots are reported first.
        SlotContent::Invalid(fault) => return Err(LoadError::Correctable(fault.clone())),
        SlotContent::Url { named, shown } => {
            for part in [quote_bytes(), escape_json(named), quote_bytes()] {
                write_bytes(output, part).await?;
            }
            return Ok(v1::ResolvedFile {
                pointer: slot.pointer.clone(),
                form: "url".to_owned(),
                reference: shown.to_string(),
                ..v1::ResolvedFile::default()
            });
        }
        SlotContent::Content {
            form,
            target,
            shown,
            is_shared,
        } => (*form, target, shown, *is_shared),
    };
    let mut source = if is_shared {
        loader.open(target).await?
    } else {
        loader.open_once(target).await?
    };
    write_bytes(output, quote_bytes()).await?;
    match form {
        ContentForm::Base64 => write_base64(output, &mut source).await?,
        ContentForm::Text => write_text(output, &mut source, shown).await?,
    }
    write_bytes(output, quote_bytes()).await?;
    let summary = source.summary();
    Ok(v1::ResolvedFile {
        pointer: slot.pointer.clone(),
        form: form.as_str().to_owned(),
        reference: shown.to_string(),
        size: summary.size,
        media_type: summary.media_type,
        sha256: summary.sha256.as_bytes().to_vec(),
    })
}

async fn write_base64(
    output: &mut ArgumentsOutput<'_>,
    source: &mut FileSource,
) -> Result<(), LoadError> {
    let mut stream = Base64Stream::default();
    while let Some(chunk) = source.next().await? {
        // 8 more bytes: the group that was carried over from the last chunk, and padding.
        let mut encoded = String::with_capacity(chunk.len() / 3 * 4 + 8);
        stream.push(&chunk, &mut encoded);
        write_bytes(output, encoded.into()).await?;
    }
    let mut last = String::new();
    stream.finish(&mut last);
    write_bytes(output, last.into()).await
}

async fn write_text(
    output: &mut ArgumentsOutput<'_>,
    source: &mut FileSource,
    shown: &DisplayName,
) -> Result<(), LoadError> {
    let binary = |BinaryContent(name)| {
        let fault = Fault::new(
            FaultCode::Unsupported,
            reply::binary_file_message(shown, name),
        );
        LoadError::Correctable(fault.detail("binary"))
    };
    let mut stream = TextStream::default();
    let mut escaped = String::new();
    while let Some(chunk) = source.next().await? {
        // The caller discards the output that was written so far.
        stream.push(&chunk, &mut escaped).map_err(binary)?;
        write_bytes(output, escape_json(&escaped)).await?;
        escaped.clear();
    }
    stream.finish(&mut escaped).map_err(binary)?;
    write_bytes(output, escape_json(&escaped)).await
}

async fn write_bytes(output: &mut ArgumentsOutput<'_>, bytes: Bytes) -> Result<(), LoadError> {
    output
        .write(bytes)
        .await
        .map_err(|error| LoadError::Failed(ResolveError::Store(error)))
}

fn quote_bytes() -> Bytes {
    Bytes::from_static(b"\"")
}

/// The inside of a JSON string literal (RFC 8259 section 7). Chunks can be escaped one by one: no escape depends on
/// the next character.
fn escape_json(text: &str) -> Bytes {
    let literal = Bytes::from(serde_json::to_vec(text).unwrap_or_default());
    literal.slice(1.min(literal.len())..literal.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_in_any_pieces_reads_back(pieces in prop::collection::vec("(?s).{0,20}", 0..6)) {
            let mut literal = vec![b'"'];
            for piece in &pieces {
                literal.extend_from_slice(&escape_json(piece));
            }
            literal.push(b'"');
            let text: String = serde_json::from_slice(&literal).unwrap();
            prop_assert_eq!(text, pieces.concat());
        }
    }
}
