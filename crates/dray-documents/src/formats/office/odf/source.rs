//! Finds the XML of an ODF document: in a package, or in one flat file.

use std::io::{Read as _, SeekFrom};
use std::rc::Rc;

use crate::container::{Container, Input};
use crate::formats::office::xml::{Event, Xml, decode_part};
use crate::limits::{Budget, Damage, Failure, Limit};

/// An open document in one of its two forms.
#[derive(Debug)]
pub(in crate::formats) enum Source<'a> {
    /// A ZIP with the parts of the document.
    Package(Container<'a>),
    /// One file of XML.
    Flat(Vec<u8>),
}

impl<'a> Source<'a> {
    /// Opens a document. A file whose first characters are markup is read as one flat file.
    ///
    /// # Errors
    ///
    /// [`Failure::Encrypted`] if the manifest declares it; otherwise those of [`Container::open`].
    pub(in crate::formats) fn open(
        input: &'a mut dyn Input,
        budget: &Rc<Budget>,
    ) -> Result<Self, Failure> {
        if let Some(bytes) = read_flat(input, budget)? {
            return Ok(Self::Flat(bytes));
        }
        let mut container = Container::open(input, budget)?;
        if let Some(manifest) = container.part("META-INF/manifest.xml")?
            && is_encrypted(&manifest, budget)?
        {
            return Err(Failure::Encrypted);
        }
        Ok(Self::Package(container))
    }

    /// The part with the text.
    ///
    /// # Errors
    ///
    /// [`Damage::MissingPart`]; otherwise those of [`Container::part`].
    pub(in crate::formats) fn content(&mut self) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Package(container) => container.needed("content.xml"),
            Self::Flat(bytes) => Ok(std::mem::take(bytes)),
        }
    }

    /// The part with the common styles; a flat file has them beside the text.
    pub(in crate::formats) fn styles(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        match self {
            Self::Package(container) => container.part("styles.xml"),
            Self::Flat(_) => Ok(None),
        }
    }
}

/// All bytes of a file that is XML.
fn read_flat(input: &mut dyn Input, budget: &Rc<Budget>) -> Result<Option<Vec<u8>>, Failure> {
    let corrupt = |_| Failure::Corrupt(Damage::Structure);
    input.seek(SeekFrom::Start(0)).map_err(corrupt)?;
    let mut bytes = Vec::new();
    (&mut *input)
        // Enough for a mark and the first sign of markup in any encoding.
        .take(64)
        .read_to_end(&mut bytes)
        .map_err(corrupt)?;
    let text = decode_part(&bytes);
    if !text.trim_start().starts_with('<') {
        return Ok(None);
    }
    let max = budget.limits().max_part_bytes;
    (&mut *input)
        .take(max)
        .read_to_end(&mut bytes)
        .map_err(corrupt)?;
    if bytes.len() as u64 > max {
        return Err(Failure::Stopped(Limit::Size));
    }
    Ok(Some(bytes))
}

/// Whether a manifest names an encrypted entry.
fn is_encrypted(manifest: &[u8], budget: &Rc<Budget>) -> Result<bool, Failure> {
    let text = decode_part(manifest);
    let mut xml = Xml::new(&text, budget);
    loop {
        match xml.next() {
            Ok(Event::Open(e)) if e.name() == "encryption-data" => return Ok(true),
            // A damaged manifest does not prevent reading the content.
            Ok(Event::End) | Err(Failure::Corrupt(_)) => return Ok(false),
            Ok(_) => {}
            Err(failure) => return Err(failure),
        }
    }
}
