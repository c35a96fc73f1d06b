//! Compressed streams: gzip, xz, Zstandard, unpacked within the budget and within a ratio.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::classify::mime;
use crate::container::{Input, exceeds_ratio};
use crate::limits::{Budget, Damage, Failure, Limit};

/// Most memory that a dictionary or window may take; the strongest presets of `xz` and `zstd --ultra` need less.
const MAX_WINDOW_BYTES: u64 = 128 << 20;
/// Bytes per read of the file.
const CHUNK_BYTES: usize = 64 << 10;

/// The compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompressionFormat {
    Gzip,
    Xz,
    Zstandard,
}

impl CompressionFormat {
    /// The compression format of a media type; `None` for any other type.
    pub(super) fn of(mime: &str) -> Option<Self> {
        Some(match mime {
            mime::GZIP => Self::Gzip,
            mime::XZ => Self::Xz,
            mime::ZSTANDARD => Self::Zstandard,
            _ => return None,
        })
    }

    /// The name that the converter has in records and logs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstandard => "zstd",
        }
    }
}

/// A stream of bytes from a file. Every unpacked byte is counted in the budget.
pub(super) struct Stream<'a> {
    reader: Box<dyn Read + 'a>,
    /// Bytes that were peeked at and not consumed.
    ahead: Vec<u8>,
    /// Bytes read from the file.
    packed: Rc<Cell<u64>>,
    /// Unpacked bytes.
    unpacked: u64,
    /// Greatest ratio of unpacked to packed bytes; `None` for a file that is not compressed.
    max_ratio: Option<u64>,
    budget: Rc<Budget>,
}

impl<'a> Stream<'a> {
    /// The bytes of a file as they are.
    pub(super) fn plain(input: &'a mut dyn Input, budget: &Rc<Budget>) -> Self {
        Self {
            reader: Box::new(BufReader::with_capacity(CHUNK_BYTES, input)),
            ahead: Vec::new(),
            packed: Rc::default(),
            unpacked: 0,
            max_ratio: None,
            budget: Rc::clone(budget),
        }
    }

    /// The unpacked bytes of a compressed file: all of its members, streams and frames in order.
    pub(super) fn unpacked(
        input: &'a mut dyn Input,
        format: CompressionFormat,
        max_ratio: u64,
        budget: &Rc<Budget>,
    ) -> Self {
        let packed = Rc::<Cell<u64>>::default();
        let counted = CountingReader {
            input,
            read: Rc::clone(&packed),
        };
        let source = BufReader::with_capacity(CHUNK_BYTES, counted);
        let reader: Box<dyn Read + 'a> = match format {
            CompressionFormat::Gzip => Box::new(MultiGzDecoder::new(source)),
            CompressionFormat::Xz => {
                // The size of the dictionary is a claim of the file, and the library would set that much memory
                // aside.
                let kib = u32::try_from(MAX_WINDOW_BYTES / 1024).unwrap_or(u32::MAX);
                Box::new(lzma_rust2::XzReader::new_mem_limit(source, true, kib))
            }
            CompressionFormat::Zstandard => Box::new(ZstandardFrames::new(source)),
        };
        Self {
            reader,
            ahead: Vec::new(),
            packed,
            unpacked: 0,
            max_ratio: Some(max_ratio),
            budget: Rc::clone(budget),
        }
    }

    /// Up to this many bytes without taking them; fewer at the end of the stream.
    pub(super) fn peek(&mut self, length: usize) -> Result<&[u8], Failure> {
        let mut chunk = [0; 512];
        while self.ahead.len() < length {
            let read_bytes = chunk.len().min(length - self.ahead.len());
            let read = self.advance(chunk.get_mut(..read_bytes).unwrap_or_default())?;
            if read == 0 {
                break;
            }
            self.ahead
                .extend_from_slice(chunk.get(..read).unwrap_or_default());
        }
        Ok(&self.ahead)
    }

    /// Some of the next bytes; 0 at the end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        if self.ahead.is_empty() {
            return self.advance(into);
        }
        let length = into.len().min(self.ahead.len());
        for (to, from) in into.iter_mut().zip(self.ahead.drain(..length)) {
            *to = from;
        }
        Ok(length)
    }

    /// Fills a buffer; fewer bytes at the end of the stream.
    pub(super) fn fill(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read(rest)? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }

    /// The next bytes, at most `length`; memory grows with the received bytes, not with `length`.
    pub(super) fn take(&mut self, length: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        self.each(length, |chunk| bytes.extend_from_slice(chunk))?;
        Ok(bytes)
    }

    /// Skips the next bytes, at most `length`. Returns how many there were.
    pub(super) fn skip(&mut self, length: u64) -> Result<u64, Failure> {
        self.each(length, |_| {})
    }

    fn each(&mut self, length: u64, mut chunk: impl FnMut(&[u8])) -> Result<u64, Failure> {
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut remaining = length;
        while remaining > 0 {
            let read_bytes = usize::try_from(remaining)
                .unwrap_or(CHUNK_BYTES)
                .min(CHUNK_BYTES);
            let read = self.read(buffer.get_mut(..read_bytes).unwrap_or_default())?;
            if read == 0 {
                break;
            }
            chunk(buffer.get(..read).unwrap_or_default());
            remaining -= read as u64;
        }
        Ok(length - remaining)
    }

    /// Reads bytes from the decompressor and counts them.
    fn advance(&mut self, into: &mut [u8]) -> Result<usize, Failure> {
        let read = loop {
            match self.reader.read(into) {
                Ok(read) => break read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(read_failure(&error)),
            }
        };
        self.budget.inflated(read)?;
        self.unpacked = self.unpacked.saturating_add(read as u64);
        // Read-ahead bytes in the buffer count as packed, so the limit on the ratio is less strict at the start of a
        // file.
        if let Some(max_ratio) = self.max_ratio
            && exceeds_ratio(self.unpacked, self.packed.get(), max_ratio)
        {
            return Err(Failure::Stopped(Limit::Ratio));
        }
        Ok(read)
    }
}

fn read_failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Failure::Corrupt(Damage::Truncated),
        io::ErrorKind::OutOfMemory => Failure::Stopped(Limit::Memory),
        _ => Failure::Corrupt(Damage::Compression),
    }
}

/// Counts the bytes that are read from a file.
struct CountingReader<'a> {
    input: &'a mut dyn Input,
    read: Rc<Cell<u64>>,
}

impl Read for CountingReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into)?;
        self.read.set(self.read.get().saturating_add(read as u64));
        Ok(read)
    }
}

/// The frames of a Zstandard file (RFC 8878, 3): compressed frames in order, skippable frames ignored.
struct ZstandardFrames<R> {
    source: R,
    frame: FrameDecoder,
    is_open: bool,
}

impl<R: BufRead> ZstandardFrames<R> {
    fn new(source: R) -> Self {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(MAX_WINDOW_BYTES);
        Self {
            source,
            frame,
            is_open: false,
        }
    }

    /// Opens the next frame. Returns whether there is one.
    fn open(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.frame.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.source).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(FrameDecoderError::WindowSizeTooBig { .. }) => {
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: BufRead> Read for ZstandardFrames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_open {
                if !self.open()? {
                    return Ok(0);
                }
                self.is_open = true;
            }
            while self.frame.can_collect() == 0 && !self.frame.is_finished() {
                // Blocks are decoded one at a time: otherwise a complete frame would be in memory before its first byte
                // is counted.
                let one = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.frame.decode_blocks(&mut self.source, one);
                if let Err(error) = decoded {
                    // The decoder wraps the end-of-file error in its own errors.
                    let ended = self.source.fill_buf()?.is_empty();
                    return Err(if ended {
                        io::ErrorKind::UnexpectedEof.into()
                    } else {
                        io::Error::other(error)
                    });
                }
            }
            if self.frame.can_collect() > 0 {
                return self.frame.read(into);
            }
            self.is_open = false;
        }
    }
}
