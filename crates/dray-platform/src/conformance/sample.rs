//! Files of every kind, as small as their formats allow, and sources that fail while they are read.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_media_type::kind::{HEAD_BYTES, detect_kind};
use dray_types::Sha256Digest;
use futures_util::{StreamExt as _, stream};

use crate::delivery::{ByteSource, ByteStream, OutgoingFile};
use crate::error::{ErrorKind, PlatformError};

/// Bytes of one chunk of a stream.
const CHUNK_BYTES: usize = 64 * 1024;

/// Bytes in memory, which can be opened any number of times.
#[derive(Clone, Debug)]
pub struct MemorySource(pub Bytes);

#[async_trait]
impl ByteSource for MemorySource {
    async fn open(&self) -> Result<ByteStream, PlatformError> {
        Ok(chunked_stream(self.0.clone()))
    }
}

fn chunked_stream(bytes: Bytes) -> ByteStream {
    stream::unfold(bytes, |mut rest| async move {
        let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
        (!chunk.is_empty()).then_some((Ok(chunk), rest))
    })
    .boxed()
}

/// A source that returns only the first bytes. Then reading fails, or the stream ends without an error.
#[derive(Clone, Debug)]
struct BrokenSource {
    bytes: Bytes,
    fails: bool,
}

#[async_trait]
impl ByteSource for BrokenSource {
    async fn open(&self) -> Result<ByteStream, PlatformError> {
        let end = self.fails.then(|| {
            Err(PlatformError::new(
                ErrorKind::Source,
                "the stored bytes are gone",
            ))
        });
        Ok(chunked_stream(self.bytes.clone())
            .chain(stream::iter(end))
            .boxed())
    }
}

/// A file with these bytes. Its kind is detected as for a real one.
pub fn memory_file(name: &str, bytes: impl Into<Bytes>) -> OutgoingFile {
    let bytes = bytes.into();
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let head = bytes.get(..bytes.len().min(HEAD_BYTES)).unwrap_or_default();
    OutgoingFile {
        name: name.to_owned(),
        size,
        sha256: Sha256Digest::of(&bytes),
        detected: detect_kind(head, name, size),
        source: Arc::new(MemorySource(bytes)),
        file_id: None,
    }
}

/// A binary file of this size, with different bytes at every position: a lost or repeated chunk changes its digest.
pub fn binary_file(name: &str, size: usize) -> OutgoingFile {
    memory_file(name, patterned_bytes(size))
}

/// Bytes without repetitions that are not text.
pub fn patterned_bytes(size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 8);
    // Neither text nor any known format.
    bytes.extend([0, 0xFF, 0xFE]);
    let mut number = 0_u64;
    while bytes.len() < size {
        // The constants are those of SplitMix64, which spreads a counter over all bits.
        number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (number ^ (number >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bytes.extend_from_slice(&(mixed ^ (mixed >> 32)).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// A file of which only the first `readable` of its `size` bytes can be read; then reading fails.
pub fn failing_file(name: &str, size: usize, readable: usize) -> OutgoingFile {
    broken_file(name, size, readable, true)
}

/// A file whose stream ends without an error after `readable` of its `size` bytes.
pub fn truncated_file(name: &str, size: usize, readable: usize) -> OutgoingFile {
    broken_file(name, size, readable, false)
}

fn broken_file(name: &str, size: usize, readable: usize, fails: bool) -> OutgoingFile {
    let bytes = patterned_bytes(size);
    let readable = Bytes::copy_from_slice(bytes.get(..readable).unwrap_or_default());
    OutgoingFile {
        source: Arc::new(BrokenSource {
            bytes: readable,
            fails,
        }),
        ..memory_file(name, bytes)
    }
}

/// A PNG header of this width and height; `salt` makes it another file. It has no pixels.
pub fn png_file(name: &str, width: u32, height: u32, salt: u64) -> OutgoingFile {
    let mut bytes = b"\x89PNG\r\n\x1A\n\0\0\0\x0DIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend(b"\x08\x02\0\0\0");
    bytes.extend(salt.to_le_bytes());
    memory_file(name, bytes)
}

/// A JPEG of 640 × 480 without pixels; `salt` makes it another file.
pub fn jpeg_file(name: &str, salt: u64) -> OutgoingFile {
    let mut bytes = b"\xFF\xD8\xFF\xE0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0".to_vec();
    bytes.extend(b"\xFF\xC0\0\x11\x08\x01\xE0\x02\x80\x03\x01\x22\0\x02\x11\x01\x03\x11\x01");
    bytes.extend(salt.to_le_bytes());
    bytes.extend(b"\xFF\xD9");
    memory_file(name, bytes)
}

/// An animated GIF: it has the `NETSCAPE2.0` extension, which repeats the animation.
pub fn gif_file(name: &str) -> OutgoingFile {
    let mut bytes = b"GIF89a\x10\0\x10\0\0\0\0\x21\xFF\x0BNETSCAPE2.0\x03\x01\0\0\0".to_vec();
    bytes.extend(b"\x2C\0\0\0\0\x10\0\x10\0\0\x02\x02\x44\x01\0\x3B");
    memory_file(name, bytes)
}

/// A still WebP: its extended header does not announce an animation. It has no pixels.
pub fn webp_file(name: &str) -> OutgoingFile {
    let mut bytes = b"RIFF\x1A\0\0\0WEBPVP8X\x0A\0\0\0\0\0\0\0".to_vec();
    bytes.extend(b"\x7F\x02\0\xDF\x01\0");
    memory_file(name, bytes)
}

/// An MP4 whose sample description names H.264.
pub fn mp4_file(name: &str) -> OutgoingFile {
    let mut bytes = b"\0\0\0\x18ftypisom\0\0\0\0isomavc1".to_vec();
    bytes.extend(b"\0\0\0\x20stsd\0\0\0\0\0\0\0\x01\0\0\0\x10avc1\0\0\0\0\0\0\0\0");
    memory_file(name, bytes)
}

/// An MP3 with an empty tag and the header of one frame.
pub fn mp3_file(name: &str) -> OutgoingFile {
    memory_file(
        name,
        b"ID3\x04\0\0\0\0\0\0\xFF\xFB\x90\x64\0\0\0\0".as_slice(),
    )
}

/// MPEG-4 audio: only the brand of its first box.
pub fn m4a_file(name: &str) -> OutgoingFile {
    memory_file(name, b"\0\0\0\x14ftypM4A \0\0\0\0isom".as_slice())
}

/// Opus in Ogg, one channel, the first page only.
pub fn opus_file(name: &str) -> OutgoingFile {
    let mut bytes = b"OggS\0\x02\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x01\x13".to_vec();
    bytes.extend(b"OpusHead\x01\x01\0\0\x80\xBB\0\0\0\0\0");
    memory_file(name, bytes)
}

/// One file of every kind that some platform treats specially.
pub fn every_kind() -> Vec<OutgoingFile> {
    vec![
        png_file("picture.png", 640, 480, 1),
        jpeg_file("photo.jpg", 1),
        png_file("banner.png", 9_000, 90, 1),
        gif_file("moving.gif"),
        webp_file("still.webp"),
        mp4_file("film.mp4"),
        memory_file(
            "film.mkv",
            b"\x1A\x45\xDF\xA3\x8B\x42\x82\x88matroska".as_slice(),
        ),
        mp3_file("song.mp3"),
        m4a_file("song.m4a"),
        opus_file("speech.ogg"),
        memory_file(
            "sound.wav",
            b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".as_slice(),
        ),
        memory_file("report.pdf", b"%PDF-1.7\n%\xE2\xE3\xCF\xD3\n".as_slice()),
        memory_file(
            "bundle.zip",
            b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".as_slice(),
        ),
        memory_file("drawing.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>"),
        memory_file("page.html", "<!doctype html><title>t</title>"),
        memory_file("notes.md", "# Notes\n\nNothing yet.\n"),
        memory_file("table.csv", "a,b\n1,2\n"),
        memory_file("no-extension", "just text\n"),
        memory_file(
            "program.png",
            b"\x7FELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".as_slice(),
        ),
        binary_file("data.bin", 100_000),
    ]
}
