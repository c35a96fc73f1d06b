//! What a worker writes: a mark, the length of a JSON header, the header, then the Markdown as it is.

use dray_documents::formats::Converted;

const MARK: &[u8; 8] = b"drayconv";

/// The bytes of an answer.
pub(super) fn write(mut converted: Converted) -> Vec<u8> {
    let markdown = std::mem::take(&mut converted.markdown);
    let header = serde_json::to_vec(&converted).unwrap_or_default();
    let mut bytes = Vec::with_capacity(header.len() + markdown.len() + 24);
    bytes.extend_from_slice(MARK);
    bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&(markdown.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(markdown.as_bytes());
    bytes
}

/// An answer that is whole; nothing for anything else.
pub(super) fn read(bytes: &[u8]) -> Option<Converted> {
    let rest = bytes.strip_prefix(MARK)?;
    let (header, rest) = length(rest)?;
    let (markdown, rest) = length(rest)?;
    let (header, rest) = rest.split_at_checked(header)?;
    if rest.len() != markdown {
        return None;
    }
    let mut converted: Converted = serde_json::from_slice(header).ok()?;
    std::str::from_utf8(rest)
        .ok()?
        .clone_into(&mut converted.markdown);
    Some(converted)
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    Some((usize::try_from(u64::from_le_bytes(*length)).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_answers_are_read() {
        let converted = Converted {
            converter: "csv".into(),
            markdown: "| ä |\n".into(),
            parts: Vec::new(),
            parts_seen: 0,
            stopped: None,
            failure: None,
            warnings: vec!["w".into()],
            member: None,
        };
        let bytes = write(converted.clone());
        assert_eq!(read(&bytes), Some(converted));
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(read(&[bytes, vec![0]].concat()), None);
        assert_eq!(read(&[MARK.as_slice(), &[0xFF; 32]].concat()), None);
    }
}
