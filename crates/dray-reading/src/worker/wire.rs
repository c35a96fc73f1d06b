//! The output of a worker: a mark, the length of a JSON header, the header, the Markdown, and the unchanged images.

use dray_documents::formats::Converted;
use serde::{Deserialize, Serialize};

const WIRE_MAGIC: &[u8; 8] = b"drayconv";

/// The header before the bytes.
#[derive(Serialize, Deserialize)]
struct FrameHeader {
    converted: Converted,
    /// Bytes of each image of each picture.
    images: Vec<Vec<usize>>,
}

/// Encodes a result.
pub(super) fn write(mut converted: Converted) -> Vec<u8> {
    let markdown = std::mem::take(&mut converted.markdown);
    let pictures = converted.pictures.iter_mut();
    let images: Vec<Vec<Vec<u8>>> = pictures
        .map(|picture| std::mem::take(&mut picture.images))
        .collect();
    let lengths = images
        .iter()
        .map(|images| images.iter().map(Vec::len).collect());
    let header = FrameHeader {
        converted,
        images: lengths.collect(),
    };
    // An empty header cannot be read back, so the parent sees a failed worker.
    let header = serde_json::to_vec(&header).unwrap_or_default();
    let mut bytes = Vec::with_capacity(header.len() + markdown.len() + 24);
    bytes.extend_from_slice(WIRE_MAGIC);
    bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&(markdown.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(markdown.as_bytes());
    images
        .iter()
        .flatten()
        .for_each(|image| bytes.extend_from_slice(image));
    bytes
}

/// Decodes a complete result; `None` for other bytes.
pub(super) fn read(bytes: &[u8]) -> Option<Converted> {
    let rest = bytes.strip_prefix(WIRE_MAGIC)?;
    let (header, rest) = length(rest)?;
    let (markdown, rest) = length(rest)?;
    // Lengths come from a process that a document may control: each is checked against the received bytes, and none
    // determines the size of an allocation.
    let (header, rest) = rest.split_at_checked(header)?;
    let (markdown, mut rest) = rest.split_at_checked(markdown)?;
    let FrameHeader {
        mut converted,
        images,
    } = serde_json::from_slice(header).ok()?;
    if images.len() != converted.pictures.len() {
        return None;
    }
    for (picture, lengths) in converted.pictures.iter_mut().zip(images) {
        for length in lengths {
            let (image, after) = rest.split_at_checked(length)?;
            picture.images.push(image.to_vec());
            rest = after;
        }
    }
    if !rest.is_empty() {
        return None;
    }
    std::str::from_utf8(markdown)
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
    use dray_documents::markdown::{Picture, SearchLines};

    #[test]
    fn only_complete_results_are_read() {
        let converted = Converted {
            converter: "csv".into(),
            markdown: "| ä |\n".into(),
            parts: Vec::new(),
            parts_seen: 0,
            stopped: None,
            failure: None,
            warnings: vec!["w".into()],
            member: None,
            pictures: vec![Picture {
                page: Some(1),
                start: 0,
                end: 3,
                images: vec![b"one".to_vec(), b"two".to_vec()],
            }],
            omitted: 1,
            selected_rows: 0,
            search_lines: vec![SearchLines {
                first: 1,
                count: 1,
                rows: vec![9],
            }],
        };
        let bytes = write(converted.clone());
        assert_eq!(read(&bytes), Some(converted));
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(read(&[bytes, vec![0]].concat()), None);
        assert_eq!(read(&[WIRE_MAGIC.as_slice(), &[0xFF; 32]].concat()), None);
    }
}
