//! Walks a text that is known to be JSON and collects the strings that begin like references.
//!
//! The walker keeps positions instead of values, and skips everything out of scope.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer as _, Visitor};

use dray_agent::json_pointer::escape_segment;
use dray_types::reference::{FileReference, ParsedReference};

use super::{
    ArgumentsError, MAX_DEPTH, MAX_POINTER_BYTES, ReferenceFinding, ReferenceScope, ReferenceSlot,
};

pub(super) struct ArgumentWalker<'a> {
    text: &'a str,
    offset: usize,
    depth: usize,
    scope: ReferenceScope,
    path: Vec<PathStep<'a>>,
    slots: Vec<ReferenceSlot>,
}

/// One step of the path from the root to a value.
enum PathStep<'a> {
    Member(Cow<'a, str>),
    Element(usize),
}

/// The text of a string literal; `Err` contains it with U+FFFD for invalid parts.
type Decoded<'a> = Result<Cow<'a, str>, String>;

impl<'a> ArgumentWalker<'a> {
    pub(super) fn new(text: &'a str, scope: ReferenceScope) -> Self {
        Self {
            text,
            offset: 0,
            depth: 0,
            scope,
            path: Vec::new(),
            slots: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Result<Vec<ReferenceSlot>, ArgumentsError> {
        if self.peek() != Some(b'{') {
            return Err(ArgumentsError::NotAnObject);
        }
        self.walk_value()?;
        // Only white space follows: the parser has refused anything else.
        Ok(self.slots)
    }

    fn walk_value(&mut self) -> Result<(), ArgumentsError> {
        match self.peek() {
            Some(b'{') => self.walk_object(),
            Some(b'[') => self.walk_array(),
            Some(b'"') => {
                let start = self.offset;
                let literal = self.take_literal();
                if self.is_in_scope() {
                    return self.collect_slot(start, literal);
                }
                Ok(())
            }
            _ => {
                // Numbers and literals have no delimiter inside, so their end is the next one.
                self.skip_while(|byte| !matches!(byte, b',' | b']' | b'}'));
                Ok(())
            }
        }
    }

    fn walk_object(&mut self) -> Result<(), ArgumentsError> {
        self.enter()?;
        // The tool decides about repeated names in objects out of scope: those are passed on as received
        // (docs/decisions/resolver-arguments.md).
        let is_inspected = self.scope == ReferenceScope::Nested || self.path.is_empty();
        let mut names = HashSet::new();
        while self.peek() == Some(b'"') {
            let name = match decode_literal(self.take_literal()) {
                Ok(name) => name,
                // The text is only for comparison and for the pointer; the bytes of the name are copied as they are.
                Err(lossy) => Cow::Owned(lossy),
            };
            // JSON readers disagree on which of two members with the same name counts.
            let is_repeated = is_inspected && !names.insert(name.clone());
            self.path.push(PathStep::Member(name));
            if is_repeated {
                let pointer = self.json_pointer();
                return Err(ArgumentsError::DuplicateMember { pointer });
            }
            self.skip(b':');
            self.walk_value()?;
            self.path.pop();
            self.skip(b',');
        }
        self.leave(b'}');
        Ok(())
    }

    fn walk_array(&mut self) -> Result<(), ArgumentsError> {
        self.enter()?;
        let mut index = 0;
        while !matches!(self.peek(), None | Some(b']')) {
            self.path.push(PathStep::Element(index));
            self.walk_value()?;
            self.path.pop();
            self.skip(b',');
            index += 1;
        }
        self.leave(b']');
        Ok(())
    }

    fn enter(&mut self) -> Result<(), ArgumentsError> {
        self.offset += 1;
        self.depth += 1;
        // The walk is recursive, so the depth bounds the stack.
        if self.depth > MAX_DEPTH {
            return Err(ArgumentsError::TooDeep);
        }
        Ok(())
    }

    fn leave(&mut self, closing: u8) {
        self.skip(closing);
        self.depth -= 1;
    }

    /// Returns whether the string at the current path may be a reference.
    fn is_in_scope(&self) -> bool {
        match self.scope {
            ReferenceScope::Nested => true,
            ReferenceScope::TopLevel => matches!(
                self.path.as_slice(),
                [PathStep::Member(_)] | [PathStep::Member(_), PathStep::Element(_)]
            ),
        }
    }

    fn collect_slot(&mut self, start: usize, literal: &str) -> Result<(), ArgumentsError> {
        let decoded = decode_literal(literal);
        let text = match &decoded {
            Ok(text) => text.as_ref(),
            Err(lossy) => lossy.as_str(),
        };
        let finding = match (FileReference::parse(text), &decoded) {
            (ParsedReference::Plain, _) => return Ok(()),
            (ParsedReference::MissingPrefix, _) => ReferenceFinding::MissingPrefix,
            (ParsedReference::Reference(_), Err(_)) => ReferenceFinding::BrokenUnicode,
            (ParsedReference::Reference(FileReference { form, target }), Ok(_)) => {
                ReferenceFinding::Reference {
                    form,
                    target: target.to_owned(),
                }
            }
        };
        let parameter = match self.path.first() {
            Some(PathStep::Member(name)) => name.clone().into_owned(),
            _ => String::new(),
        };
        let pointer = self.json_pointer();
        // Each level adds to the pointer, so long names at many levels would add up.
        if pointer.len() > MAX_POINTER_BYTES {
            return Err(ArgumentsError::LongName);
        }
        self.slots.push(ReferenceSlot {
            range: start..self.offset,
            parameter,
            pointer,
            finding,
        });
        Ok(())
    }

    /// Formats the current path as a JSON pointer (RFC 6901 section 3).
    fn json_pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.path {
            pointer.push('/');
            match step {
                PathStep::Member(name) => {
                    pointer.push_str(&escape_segment(name));
                }
                PathStep::Element(index) => pointer.push_str(&index.to_string()),
            }
        }
        pointer
    }

    /// Steps over the string literal that begins here, and returns it with its quotes.
    fn take_literal(&mut self) -> &'a str {
        let start = self.offset;
        self.offset += 1;
        while let Some(byte) = self.current_byte() {
            self.offset += 1;
            match byte {
                b'"' => break,
                // The escaped byte may be a quote. Longer escapes contain no quotes.
                b'\\' => self.offset += 1,
                _ => {}
            }
        }
        self.text.get(start..self.offset).unwrap_or_default()
    }

    fn current_byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn skip_while(&mut self, passes: impl Fn(u8) -> bool) {
        while self.current_byte().is_some_and(&passes) {
            self.offset += 1;
        }
    }

    /// Returns the next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        self.current_byte()
    }

    /// Steps over the next byte that is not white space if it is `expected`.
    fn skip(&mut self, expected: u8) {
        if self.peek() == Some(expected) {
            self.offset += 1;
        }
    }
}

/// Decodes the text of a string literal.
fn decode_literal(literal: &str) -> Decoded<'_> {
    let inner = literal
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or_default();
    // Most strings have no escape and need no copy.
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    // The literal is read as bytes, because half a surrogate pair is an error in text.
    let bytes = serde_json::Deserializer::from_str(literal)
        .deserialize_bytes(ByteVisitor)
        .unwrap_or_default();
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Cow::Owned(text)),
        Err(broken) => Err(String::from_utf8_lossy(broken.as_bytes()).into_owned()),
    }
}

/// Reads a string literal as bytes, which accepts single surrogates that text would refuse.
struct ByteVisitor;

impl Visitor<'_> for ByteVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_str<E>(self, text: &str) -> Result<Vec<u8>, E> {
        Ok(text.as_bytes().to_vec())
    }
}
