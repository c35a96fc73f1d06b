//! Gives the objects of a document to the engine until a limit is reached.

use std::cell::{Cell, RefCell};
use std::future::ready;

use pdfboss_core::{AsyncObjectSource, BoxFuture, Document, Error, ObjRef, Object, Result, Stream};

use super::visibility::MarkedStreams;
use crate::limits::{Budget, Limit};

/// Objects that are returned between two checks of the time limit.
const OBJECTS_PER_CHECK: u64 = 64;
/// Most strings that one page may show. Each costs the engine about half a kilobyte; a page that a person reads has a
/// few thousand.
const MAX_STRINGS: usize = 100_000;
/// Most marked-content sequences of one page.
const MAX_MARKED_SEQUENCES: usize = 300_000;
/// Deepest nesting of the graphics states of a page.
const MAX_STATE_DEPTH: usize = 10_000;

/// A document that returns no more objects after a limit: the engine then ends as if the remaining objects did not
/// exist.
pub(super) struct MeteredDocument<'a> {
    document: &'a Document,
    budget: &'a Budget,
    objects: Cell<u64>,
    bytes: Cell<u64>,
    strings: Cell<usize>,
    marks: Cell<usize>,
    reached: Cell<Option<Limit>>,
    refusing: Cell<bool>,
    /// Content streams that were read before, with marks.
    marked: RefCell<MarkedStreams>,
}

impl<'a> MeteredDocument<'a> {
    /// A source for one page, or for one walk through a tree; its counters begin at zero.
    pub(super) fn new(document: &'a Document, budget: &'a Budget) -> Self {
        Self {
            document,
            budget,
            objects: Cell::new(0),
            bytes: Cell::new(0),
            strings: Cell::new(0),
            marks: Cell::new(0),
            reached: Cell::new(None),
            refusing: Cell::new(false),
            marked: RefCell::default(),
        }
    }

    /// Returns these content streams instead of those of the document. They were counted when they were read.
    pub(super) fn with_marked_streams(mut self, streams: MarkedStreams) -> Self {
        self.marked = RefCell::new(streams);
        self
    }

    /// An object, resolved; `None` if it cannot be read.
    pub(super) fn fetch(&self, object: &Object) -> Option<Object> {
        match object {
            Object::Ref(_) => {
                self.object().ok()?;
                self.document.resolve(object).ok()
            }
            other => Some(other.clone()),
        }
    }

    /// The data of a picture or of its colours, unpacked as far as this module supports it; `None` if it cannot be
    /// read.
    pub(super) fn picture(&self, stream: &Stream) -> Option<Vec<u8>> {
        self.unpack(stream).ok()
    }

    /// Whether the time limit was reached; then no more objects are returned.
    pub(super) fn is_out_of_time(&self) -> bool {
        match self.budget.clock() {
            Ok(()) => false,
            Err(limit) => {
                self.stop(limit);
                true
            }
        }
    }

    /// The limit that was reached.
    pub(super) fn reached(&self) -> Option<Limit> {
        self.reached.get()
    }

    /// Records the limit; all later requests for objects fail.
    fn stop(&self, limit: Limit) -> Error {
        self.reached.set(Some(limit));
        self.refusing.set(true);
        Error::Other(limit.word().to_owned())
    }

    /// Counts an object, and refuses it once a limit was reached.
    fn object(&self) -> Result<()> {
        // The engine continues after an error; from here on it gets no more data.
        if self.refusing.get() {
            return Err(Error::Other("a limit was reached".to_owned()));
        }
        let objects = self.objects.get() + 1;
        self.objects.set(objects);
        if objects.is_multiple_of(OBJECTS_PER_CHECK) {
            self.budget.clock().map_err(|limit| self.stop(limit))?;
        }
        Ok(())
    }

    /// Unpacks a stream and counts the unpacked bytes.
    fn unpack(&self, stream: &Stream) -> Result<Vec<u8>> {
        self.object()?;
        // Already counted when the walk read it; a second count would halve the limit of a page.
        if let Some(marked) = self.marked.borrow_mut().take(stream) {
            return Ok(marked);
        }
        let mut data = self.document.stream_data(stream)?;
        self.budget
            .inflated(data.len())
            .map_err(|limit| self.stop(limit))?;
        let bytes = self.bytes.get().saturating_add(data.len() as u64);
        self.bytes.set(bytes);
        // The limit is for one page; the budget counts the unpacked bytes of all pages.
        if bytes > self.budget.limits().max_part_bytes {
            return Err(self.stop(Limit::Size));
        }
        if is_content(stream) {
            self.cut_at_limit(&mut data);
        }
        Ok(data)
    }

    /// Cuts a content stream off where it exceeds the limits of a page on text or nesting. The part before the cut is
    /// shown.
    fn cut_at_limit(&self, data: &mut Vec<u8>) {
        // A scan of bytes, not of operators: brackets inside strings count too, which only ends a page earlier.
        let mut states = 0_usize;
        let mut cut = None;
        for (offset, bytes) in data.windows(3).enumerate() {
            let limit = match bytes {
                [b'(' | b'<', ..] => {
                    count_exceeds(&self.strings, MAX_STRINGS).then_some(Limit::Element)
                }
                [b'B', b'M' | b'D', b'C'] => {
                    count_exceeds(&self.marks, MAX_MARKED_SEQUENCES).then_some(Limit::Element)
                }
                [_, b'q', end] if end.is_ascii_whitespace() => {
                    states += 1;
                    (states > MAX_STATE_DEPTH).then_some(Limit::Depth)
                }
                [_, b'Q', end] if end.is_ascii_whitespace() => {
                    states = states.saturating_sub(1);
                    None
                }
                _ => None,
            };
            if let Some(limit) = limit {
                cut = Some((offset, limit));
                break;
            }
        }
        if let Some((offset, limit)) = cut {
            // Only this stream ends here. Objects to which its beginning refers are still returned, so the flag to
            // refuse is not set.
            data.truncate(offset);
            self.reached.set(Some(limit));
        }
    }
}

/// Adds one to a counter. Returns whether the counter exceeds its limit.
fn count_exceeds(count: &Cell<usize>, limit: usize) -> bool {
    count.set(count.get() + 1);
    count.get() > limit
}

/// Whether a stream holds operators that may show text: of a page, or of a form that a page draws.
fn is_content(stream: &Stream) -> bool {
    let form = stream
        .dict
        .get_name("Subtype")
        .is_none_or(|subtype| subtype.0 == "Form");
    // Font programs have no subtype either, but a length of their first part.
    form && stream.dict.get("Length1").is_none()
}

impl AsyncObjectSource for MeteredDocument<'_> {
    fn get(&self, reference: ObjRef) -> BoxFuture<'_, Result<Object>> {
        let object = self.object().and_then(|()| self.document.get(reference));
        Box::pin(ready(object))
    }

    fn stream_data<'a>(&'a self, stream: &'a Stream) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(ready(self.unpack(stream)))
    }

    fn resolve<'a>(&'a self, object: &'a Object) -> BoxFuture<'a, Result<Object>> {
        let resolved = match object {
            Object::Ref(_) => self.object().and_then(|()| self.document.resolve(object)),
            other => Ok(other.clone()),
        };
        Box::pin(ready(resolved))
    }
}
