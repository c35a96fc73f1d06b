//! The objects of a document, handed to the engine while the budget lasts.

use std::cell::Cell;
use std::future::ready;

use pdfboss_core::{AsyncObjectSource, BoxFuture, Document, Error, ObjRef, Object, Result, Stream};

use crate::limits::{Budget, Limit};

/// Objects that are handed over between two looks at the clock.
const LOOK: u64 = 64;
/// Strings that one page may show. Each costs the engine about half a kilobyte; a page that a person reads has a few
/// thousand.
const STRINGS: usize = 300_000;

/// A document that stops answering when a limit is reached: the engine then ends as if the rest were not there.
pub(super) struct Metered<'a> {
    document: &'a Document,
    budget: &'a Budget,
    objects: Cell<u64>,
    bytes: Cell<u64>,
    strings: Cell<usize>,
    reached: Cell<Option<Limit>>,
}

impl<'a> Metered<'a> {
    /// For one page, or for one walk through a tree.
    pub(super) fn new(document: &'a Document, budget: &'a Budget) -> Self {
        Self {
            document,
            budget,
            objects: Cell::new(0),
            bytes: Cell::new(0),
            strings: Cell::new(0),
            reached: Cell::new(None),
        }
    }

    /// The limit that was reached.
    pub(super) fn reached(&self) -> Option<Limit> {
        self.reached.get()
    }

    /// Refuses from now on.
    fn stop(&self, limit: Limit) -> Error {
        self.reached.set(Some(limit));
        Error::Other(limit.word().to_owned())
    }

    /// Counts an object.
    fn object(&self) -> Result<()> {
        if let Some(limit) = self.reached.get() {
            return Err(self.stop(limit));
        }
        let objects = self.objects.get() + 1;
        self.objects.set(objects);
        if objects.is_multiple_of(LOOK) {
            self.budget.clock().map_err(|limit| self.stop(limit))?;
        }
        Ok(())
    }

    /// Unpacks a stream and counts what came out.
    fn unpack(&self, stream: &Stream) -> Result<Vec<u8>> {
        self.object()?;
        let data = self.document.stream_data(stream)?;
        self.budget
            .inflated(data.len())
            .map_err(|limit| self.stop(limit))?;
        let bytes = self.bytes.get().saturating_add(data.len() as u64);
        self.bytes.set(bytes);
        let strings = self.strings.get().saturating_add(strings(stream, &data));
        self.strings.set(strings);
        if bytes > self.budget.limits().max_part_bytes {
            return Err(self.stop(Limit::Size));
        }
        if strings > STRINGS {
            return Err(self.stop(Limit::Element));
        }
        Ok(data)
    }
}

/// At most how many strings a content stream can show, by the characters that open one. Streams that are no content,
/// such as fonts, count for nothing.
fn strings(stream: &Stream, data: &[u8]) -> usize {
    let form = stream
        .dict
        .get_name("Subtype")
        .is_none_or(|subtype| subtype.0 == "Form");
    if !form || stream.dict.get("Length1").is_some() {
        return 0;
    }
    data.iter().filter(|b| matches!(b, b'(' | b'<')).count()
}

impl AsyncObjectSource for Metered<'_> {
    fn get(&self, r: ObjRef) -> BoxFuture<'_, Result<Object>> {
        let object = self.object().and_then(|()| self.document.get(r));
        Box::pin(ready(object))
    }

    fn stream_data<'a>(&'a self, s: &'a Stream) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(ready(self.unpack(s)))
    }

    fn resolve<'a>(&'a self, o: &'a Object) -> BoxFuture<'a, Result<Object>> {
        let object = match o {
            Object::Ref(_) => self.object().and_then(|()| self.document.resolve(o)),
            other => Ok(other.clone()),
        };
        Box::pin(ready(object))
    }
}
