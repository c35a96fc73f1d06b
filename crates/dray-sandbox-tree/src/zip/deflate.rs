//! One member's content, compressed or not, and its checksum.

use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// Bytes of output per call.
const OUTPUT_STEP_BYTES: usize = 32 * 1024;

/// A deflate stream with the checksum and the size of its content.
#[derive(Debug)]
pub(super) struct DeflateStream {
    stream: Compress,
    crc: Crc,
    size: u64,
}

impl DeflateStream {
    pub(super) fn new(compress: bool) -> Self {
        let level = if compress {
            Compression::default()
        } else {
            Compression::none()
        };
        Self {
            stream: Compress::new(level, false),
            crc: Crc::new(),
            size: 0,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.crc.update(bytes);
        self.size += bytes.len() as u64;
        let before = self.stream.total_in();
        loop {
            let used = usize::try_from(self.stream.total_in() - before).unwrap_or(bytes.len());
            let rest = bytes.get(used..).unwrap_or_default();
            if rest.is_empty() {
                return;
            }
            self.step(rest, FlushCompress::None, out);
        }
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        while self.step(&[], FlushCompress::Finish, out) != Status::StreamEnd {}
    }

    fn step(&mut self, bytes: &[u8], flush: FlushCompress, out: &mut Vec<u8>) -> Status {
        out.reserve(OUTPUT_STEP_BYTES);
        // With memory for input and output this cannot fail: the state of the stream is always valid.
        self.stream
            .compress_vec(bytes, out, flush)
            .unwrap_or(Status::StreamEnd)
    }

    pub(super) fn crc(&self) -> u32 {
        self.crc.sum()
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn packed(&self) -> u64 {
        self.stream.total_out()
    }
}

/// Whether compressing this sample makes it smaller by more than a tenth.
pub(super) fn helps(sample: &[u8]) -> bool {
    let mut out = Vec::new();
    let mut trial = DeflateStream {
        stream: Compress::new(Compression::fast(), false),
        crc: Crc::new(),
        size: 0,
    };
    trial.feed(sample, &mut out);
    trial.finish(&mut out);
    out.len() < sample.len() / 10 * 9
}
