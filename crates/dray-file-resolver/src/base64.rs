//! Standard base64 of a stream (quickapps 30.3, R7; RFC 4648 section 4): with padding, without line breaks.
//!
//! The encoder keeps at most two bytes between chunks, so memory does not grow with the file.

use base64_simd::STANDARD;

/// Encodes chunks of any size. The text is the same as for one chunk with all bytes.
#[derive(Debug, Default)]
pub struct Base64Stream {
    carry: Vec<u8>,
}

impl Base64Stream {
    /// Appends to `out` the groups that are complete with `chunk`.
    pub fn push(&mut self, chunk: &[u8], out: &mut String) {
        let mut rest = chunk;
        if !self.carry.is_empty() {
            let missing = (3 - self.carry.len()).min(chunk.len());
            let (head, after) = chunk.split_at_checked(missing).unwrap_or((chunk, &[]));
            self.carry.extend_from_slice(head);
            rest = after;
            if self.carry.len() < 3 {
                return;
            }
            STANDARD.encode_append(&self.carry, out);
            self.carry.clear();
        }
        let whole = rest.len() - rest.len() % 3;
        // Only the end of the file may have padding, so incomplete groups wait for the next chunk.
        let (groups, tail) = rest.split_at_checked(whole).unwrap_or((rest, &[]));
        STANDARD.encode_append(groups, out);
        self.carry.extend_from_slice(tail);
    }

    /// Appends the last group with its padding.
    pub fn finish(self, out: &mut String) {
        STANDARD.encode_append(&self.carry, out);
    }
}

#[cfg(test)]
mod tests {
    use ::base64::Engine as _;
    use proptest::prelude::*;

    use super::*;

    fn encode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> String {
        let mut stream = Base64Stream::default();
        let mut out = String::new();
        for chunk in chunks {
            stream.push(chunk, &mut out);
        }
        stream.finish(&mut out);
        out
    }

    #[test]
    fn encodes_the_vectors_of_rfc_4648_section_10() {
        for (content, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode([content.as_bytes()]), expected);
            assert_eq!(encode(content.as_bytes().chunks(1)), expected);
        }
    }

    proptest! {
        #[test]
        fn any_chunking_equals_one_shot_of_another_encoder(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..20)) {
            let whole = pieces.concat();
            prop_assert_eq!(encode(pieces.iter().map(Vec::as_slice)), ::base64::engine::general_purpose::STANDARD.encode(&whole));
        }
    }
}
