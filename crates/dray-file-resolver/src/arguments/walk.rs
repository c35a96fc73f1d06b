//! Walks a text that is known to be JSON and collects the strings that begin like references.
//!
//! It keeps positions instead of values; everything out of scope is skipped.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer as _, Visitor};

use dray_types::reference::{FileReference, ParsedReference};

use super::{
    ArgumentsError, MAX_DEPTH, MAX_POINTER, ReferenceFinding, ReferenceScope, ReferenceSlot,
};

pub(super) struct ArgumentWalker<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    reach: ReferenceScope,
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
    pub(super) fn new(text: &'a str, reach: ReferenceScope) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            reach,
            path: Vec::new(),
            slots: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> Result<Vec<ReferenceSlot>, ArgumentsError> {
        if self.peek() != Some(b'{') {
            return Err(ArgumentsError::NotAnObject);
        }
        self.value()?;
        // Only white space follows: the parser has refused anything else.
        Ok(self.slots)
    }

    fn value(&mut self) -> Result<(), ArgumentsError> {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => {
                let start = self.at;
                let literal = self.literal();
                if self.is_within_reach() {
                    return self.collect(start, literal);
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

    fn object(&mut self) -> Result<(), ArgumentsError> {
        self.enter()?;
        // Elsewhere a repeated name is the tool's matter: the object is passed on as received
        // (docs/decisions/resolver-arguments.md).
        let is_inspected = self.reach == ReferenceScope::Nested || self.path.is_empty();
        let mut names = HashSet::new();
        while self.peek() == Some(b'"') {
            let name = match decode_literal(self.literal()) {
                Ok(name) => name,
                // Only for comparison and for the pointer; the bytes of the name are copied as they are.
                Err(lossy) => Cow::Owned(lossy),
            };
            // Readers disagree on which of two equal members counts.
            let is_repeated = is_inspected && !names.insert(name.clone());
            self.path.push(PathStep::Member(name));
            if is_repeated {
                let pointer = self.pointer();
                return Err(ArgumentsError::DuplicateMember { pointer });
            }
            self.skip(b':');
            self.value()?;
            self.path.pop();
            self.skip(b',');
        }
        self.leave(b'}');
        Ok(())
    }

    fn array(&mut self) -> Result<(), ArgumentsError> {
        self.enter()?;
        let mut index = 0;
        while !matches!(self.peek(), None | Some(b']')) {
            self.path.push(PathStep::Element(index));
            self.value()?;
            self.path.pop();
            self.skip(b',');
            index += 1;
        }
        self.leave(b']');
        Ok(())
    }

    fn enter(&mut self) -> Result<(), ArgumentsError> {
        self.at += 1;
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
    fn is_within_reach(&self) -> bool {
        match self.reach {
            ReferenceScope::Nested => true,
            ReferenceScope::TopLevel => matches!(
                self.path.as_slice(),
                [PathStep::Member(_)] | [PathStep::Member(_), PathStep::Element(_)]
            ),
        }
    }

    fn collect(&mut self, start: usize, literal: &str) -> Result<(), ArgumentsError> {
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
        let pointer = self.pointer();
        // Each level adds to the pointer, so long names at many levels would add up.
        if pointer.len() > MAX_POINTER {
            return Err(ArgumentsError::LongName);
        }
        self.slots.push(ReferenceSlot {
            range: start..self.at,
            parameter,
            pointer,
            finding,
        });
        Ok(())
    }

    /// Formats the current path as a JSON pointer (RFC 6901 section 3).
    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.path {
            pointer.push('/');
            match step {
                PathStep::Member(name) => {
                    // In this order: the escape itself contains a tilde.
                    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                }
                PathStep::Element(index) => pointer.push_str(&index.to_string()),
            }
        }
        pointer
    }

    /// Steps over the string literal that begins here, and returns it with its quotes.
    fn literal(&mut self) -> &'a str {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.byte() {
            self.at += 1;
            match byte {
                b'"' => break,
                // The escaped byte may be a quote. Longer escapes contain no quotes.
                b'\\' => self.at += 1,
                _ => {}
            }
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_while(&mut self, passes: impl Fn(u8) -> bool) {
        while self.byte().is_some_and(&passes) {
            self.at += 1;
        }
    }

    /// Returns the next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        self.byte()
    }

    /// Steps over the next byte that is not white space if it is `wanted`.
    fn skip(&mut self, wanted: u8) {
        if self.peek() == Some(wanted) {
            self.at += 1;
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
    // As bytes: half a surrogate pair is an error in text.
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
