//! Pictures whose text is to be recognised: they leave a note in the text, which the caller replaces.

use serde::{Deserialize, Serialize};

use super::Markdown;
use crate::limits::Limit;

/// Most bytes of all pictures of one document together.
const MAX_IMAGE_BYTES: usize = 32 << 20;

/// A picture that may contain text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picture {
    /// The picture's page in the document; `None` for a file that is a picture.
    pub page: Option<u32>,
    /// Offset of the start of its note in the Markdown, in bytes.
    pub start: usize,
    /// Offset of the end of its note in the Markdown, in bytes.
    pub end: usize,
    /// Image files, from the top to the bottom of the page; empty if the document has more pictures than the limit.
    #[serde(skip)]
    pub images: Vec<Vec<u8>>,
}

/// Pictures of a document that is being written.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    found: Vec<Picture>,
    max: usize,
    bytes: usize,
}

impl Pictures {
    pub(super) fn into_found(self) -> Vec<Picture> {
        self.found
    }
}

impl Markdown {
    /// Returns the images of at most this many pages; by default of none.
    #[must_use]
    pub fn with_pictures(mut self, max: u32) -> Self {
        self.pictures.max = usize::try_from(max).unwrap_or(usize::MAX);
        self
    }

    /// Whether any pictures are requested.
    pub fn wants_pictures(&self) -> bool {
        self.pictures.max > 0
    }

    /// Whether the images of another picture would be kept.
    pub fn accepts_images(&self) -> bool {
        self.pictures.found.len() < self.pictures.max && self.pictures.bytes < MAX_IMAGE_BYTES
    }

    /// Writes the note of a picture and keeps its images.
    ///
    /// # Errors
    ///
    /// The limit of elements or of text.
    pub fn picture(&mut self, page: Option<u32>, images: Vec<Vec<u8>>) -> Result<(), Limit> {
        let description = match page {
            Some(page) => format!("page {page} is a picture"),
            None => "this file is a picture".to_owned(),
        };
        let bytes: usize = images.iter().map(Vec::len).sum();
        let has_room =
            self.accepts_images() && self.pictures.bytes.saturating_add(bytes) <= MAX_IMAGE_BYTES;
        self.note(&description)?;
        let end = self.out.len();
        if has_room {
            self.pictures.bytes += bytes;
        }
        self.pictures.found.push(Picture {
            page,
            // Only the end is certain: a blank line and prefixes of quotes and items may precede the note.
            start: end.saturating_sub(description.len() + "_()_".len()),
            end,
            images: if has_room { images } else { Vec::new() },
        });
        Ok(())
    }
}
