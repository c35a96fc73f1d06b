//! Limits of a conversion, and the budget that counts what it uses (read-attachment 8).
//!
//! Every loop of a converter counts here: elements, bytes of text, bytes inflated, depth. The time limit is
//! checked every 256 elements and every 256 KiB inflated. Sizes that a file claims are never trusted, only used to
//! refuse early.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The resources that one conversion may use (read-attachment 6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Paragraphs, rows, pages, slides and chapters together.
    pub max_elements: u64,
    /// Bytes of extracted text.
    pub max_text_bytes: u64,
    /// Time for the complete conversion, in milliseconds.
    pub wall_ms: u64,
    /// Bytes inflated from all parts of a container together.
    pub max_inflated_bytes: u64,
    /// Bytes inflated from one part of a container.
    pub max_part_bytes: u64,
    /// Bytes of one file of an archive that is read.
    pub max_member_bytes: u64,
    /// Most entries of a ZIP that are read.
    pub max_entries: u64,
    /// Levels of nesting in XML, HTML, JSON, PDF objects and tables.
    pub max_depth: u32,
    /// Address space of the worker process, in bytes.
    pub memory_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_elements: 50_000,
            max_text_bytes: 5_000_000,
            wall_ms: 15_000,
            max_inflated_bytes: 256 << 20,
            max_part_bytes: 64 << 20,
            max_member_bytes: 25 << 20,
            max_entries: 10_000,
            max_depth: 256,
            memory_bytes: 1 << 30,
        }
    }
}

/// The limit that a conversion ran into; the word is the one shown in `_(Stopped: {limit} limit reached; …)_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// [`Limits::max_elements`] was reached, or a container has more entries than it may.
    Element,
    /// [`Limits::max_text_bytes`] or a limit of inflated bytes was reached.
    Size,
    /// [`Limits::wall_ms`] passed; noticed at the next check of the time limit.
    Time,
    /// [`Limits::max_depth`] was reached by nested structures.
    Depth,
    /// [`Limits::memory_bytes`] was reached; only the parent of the worker process can find that out.
    Memory,
    /// An archive unpacks to too many bytes for each packed byte.
    Ratio,
}

impl Limit {
    /// The word for it in sentences.
    pub fn word(self) -> &'static str {
        match self {
            Self::Element => "element",
            Self::Size => "size",
            Self::Time => "time",
            Self::Depth => "depth",
            Self::Memory => "memory",
            Self::Ratio => "compression ratio",
        }
    }
}

/// The kind of damage of a file. A closed list: the words never come from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// The file ends too early.
    Truncated,
    /// The ZIP, OLE2 or PDF structure cannot be read.
    Structure,
    /// The part with the text is missing.
    MissingPart,
    /// XML, JSON or another grammar is broken where it must not be.
    Malformed,
    /// Compressed data cannot be inflated, or yields more than it declared.
    Compression,
}

impl Damage {
    /// The words for `damaged or incomplete ({detail})`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Truncated => "it ends too early",
            Self::Structure => "its structure cannot be read",
            Self::MissingPart => "the part with the text is missing",
            Self::Malformed => "its markup is malformed",
            Self::Compression => "compressed data cannot be unpacked",
        }
    }
}

/// The reason why a conversion ended before the document did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "failure", content = "detail")]
pub enum Failure {
    /// A limit was reached; the text that was written before is kept.
    #[error("{} limit reached", .0.word())]
    Stopped(Limit),
    /// A password is needed.
    #[error("encrypted")]
    Encrypted,
    /// The file is damaged or incomplete.
    #[error("damaged: {}", .0.words())]
    Corrupt(Damage),
    /// The archive has no file of the name that was requested.
    #[error("no such member")]
    NoMember,
    /// The document has no text, such as a scan (read-attachment 7.9).
    #[error("no text")]
    NoText,
    /// No converter for this type.
    #[error("no converter")]
    Unsupported,
    /// Any other failure of a converter.
    #[error("converter failed")]
    Internal,
}

impl From<Limit> for Failure {
    fn from(limit: Limit) -> Self {
        Self::Stopped(limit)
    }
}

/// Elements between two checks of the time limit.
const ELEMENTS_PER_CHECK: u64 = 256;
/// Inflated bytes between two checks of the time limit.
const BYTES_PER_CHECK: u64 = 256 * 1024;

/// The remaining part of the [`Limits`] of one conversion.
///
/// Shared by reference between a format and the writer; single-threaded by design.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    until: Instant,
    elements: Cell<u64>,
    text: Cell<u64>,
    inflated: Cell<u64>,
    inflated_at_check: Cell<u64>,
    depth: Cell<u32>,
}

impl Budget {
    /// Starts the clock: [`Limits::wall_ms`] counts from here.
    pub fn new(limits: Limits) -> Self {
        let until = Instant::now() + Duration::from_millis(limits.wall_ms);
        Self {
            limits,
            until,
            elements: Cell::new(0),
            text: Cell::new(0),
            inflated: Cell::new(0),
            inflated_at_check: Cell::new(0),
            depth: Cell::new(0),
        }
    }

    /// The limits that the budget began with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts one paragraph, row, page, slide, chapter or other piece of work of that size.
    pub fn element(&self) -> Result<(), Limit> {
        let elements = self.elements.get() + 1;
        self.elements.set(elements);
        if elements > self.limits.max_elements {
            return Err(Limit::Element);
        }
        if elements.is_multiple_of(ELEMENTS_PER_CHECK) {
            self.clock()?;
        }
        Ok(())
    }

    /// Counts extracted text against [`Limits::max_text_bytes`].
    pub fn text(&self, bytes: usize) -> Result<(), Limit> {
        let text = self.text.get().saturating_add(bytes as u64);
        self.text.set(text);
        if text > self.limits.max_text_bytes {
            return Err(Limit::Size);
        }
        Ok(())
    }

    /// Bytes of text that may still be extracted.
    pub fn text_left(&self) -> u64 {
        self.limits.max_text_bytes.saturating_sub(self.text.get())
    }

    /// Counts bytes that a decompressor returned.
    pub fn inflated(&self, bytes: usize) -> Result<(), Limit> {
        let inflated = self.inflated.get().saturating_add(bytes as u64);
        self.inflated.set(inflated);
        if inflated > self.limits.max_inflated_bytes {
            return Err(Limit::Size);
        }
        // `inflated_at_check` never exceeds `inflated`, so the difference cannot underflow.
        if inflated - self.inflated_at_check.get() >= BYTES_PER_CHECK {
            self.inflated_at_check.set(inflated);
            self.clock()?;
        }
        Ok(())
    }

    /// Checks the time limit. For loops that count neither elements nor inflated bytes; call it every few hundred
    /// rounds.
    pub fn clock(&self) -> Result<(), Limit> {
        if Instant::now() >= self.until {
            return Err(Limit::Time);
        }
        Ok(())
    }

    /// Enters one level of nesting. [`Budget::leave`] leaves it.
    pub fn enter(&self) -> Result<(), Limit> {
        let depth = self.depth.get() + 1;
        if depth > self.limits.max_depth {
            return Err(Limit::Depth);
        }
        // The depth is set after the check, so a level that was refused needs no `leave`.
        self.depth.set(depth);
        Ok(())
    }

    /// Leaves one level of nesting.
    pub fn leave(&self) {
        self.depth.set(self.depth.get().saturating_sub(1));
    }
}
