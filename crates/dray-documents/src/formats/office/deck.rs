//! A slide of a presentation in any format.

use super::blocks::{Block, Sink, lines_of_blocks};
use crate::formats::collapse_white_space;
use crate::limits::Failure;
use crate::markdown::{Inline, ListMarker, Markdown, Style, Unit};

/// A text frame, table, chart or picture of a slide.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) title: bool,
    /// Distance from the top and from the left, if known.
    pub(super) position: Option<(i64, i64)>,
    pub(super) blocks: Vec<Block>,
}

/// One slide with all of its visible content.
#[derive(Debug, Default)]
pub(super) struct Slide {
    /// The number of the slide in the presentation, from 1.
    pub(super) number: u32,
    pub(super) hidden: bool,
    pub(super) shapes: Vec<Shape>,
    pub(super) notes: Vec<Block>,
    /// Comments, each as author and text.
    pub(super) comments: Vec<(String, String)>,
}

impl Slide {
    /// Writes the slide if it is selected: the title, then all other shapes from top to bottom and left to right.
    pub(super) fn write(mut self, out: &mut Markdown) -> Result<(), Failure> {
        let title = self
            .shapes
            .iter()
            .position(|shape| shape.title && !shape.blocks.is_empty())
            .map(|index| slide_heading(self.shapes.remove(index).blocks))
            .filter(|title| !title.is_blank());
        let plain = title.as_ref().map(Inline::to_plain);
        if !out.part(Unit::Slide, self.number, plain.as_deref())? {
            return Ok(());
        }
        let mut name = format!("Slide {}", self.number);
        if self.hidden {
            name.push_str(" (hidden)");
        }
        out.heading(2, &Inline::plain(&name))?;
        if let Some(title) = &title {
            out.heading(3, title)?;
        }
        // The sort is stable: shapes with the same position keep the order of the file, and so do shapes without a
        // known position.
        self.shapes
            .sort_by_key(|shape| shape.position.unwrap_or((i64::MAX, i64::MAX)));
        let mut sink = Sink::default();
        for block in self.shapes.into_iter().flat_map(|shape| shape.blocks) {
            sink.put(block, out)?;
        }
        write_notes(self.notes, out)?;
        write_plain_comments(&self.comments, out)
    }
}

fn slide_heading(blocks: Vec<Block>) -> Inline {
    let mut title = Inline::new();
    for line in lines_of_blocks(blocks) {
        if !title.is_blank() {
            title.text(" ", Style::default());
        }
        title.append(line);
    }
    title
}

/// Notes as a block quote that begins with `Notes:`.
fn write_notes(notes: Vec<Block>, out: &mut Markdown) -> Result<(), Failure> {
    let lines = lines_of_blocks(notes);
    if lines.is_empty() {
        return Ok(());
    }
    out.open_quote();
    let mut prefix = Some("Notes: ");
    let mut written = Ok(());
    for line in lines {
        let mut text = Inline::plain(prefix.take().unwrap_or_default());
        text.append(line);
        written = out.paragraph(&text);
        if written.is_err() {
            break;
        }
    }
    out.close();
    Ok(written?)
}

/// Writes comments, each as author and plain text, with [`write_comments`].
pub(in crate::formats) fn write_plain_comments(
    comments: &[(String, String)],
    out: &mut Markdown,
) -> Result<(), Failure> {
    let as_line = |(author, text): &(String, String)| {
        (author.clone(), Inline::plain(&collapse_white_space(text)))
    };
    write_comments(comments.iter().map(as_line), out)
}

/// Writes comments, each as author and text: `- {author}: {text}` under their own heading. Blank ones are left out.
pub(super) fn write_comments(
    comments: impl Iterator<Item = (String, Inline)>,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let mut comments = comments.filter(|(_, text)| !text.is_blank()).peekable();
    if comments.peek().is_none() {
        return Ok(());
    }
    out.heading(3, &Inline::plain("Comments"))?;
    for (author, text) in comments {
        let mut line = Inline::new();
        let author = author.trim();
        if !author.is_empty() {
            line.text(&format!("{author}: "), Style::default());
        }
        line.append(text);
        out.item(0, ListMarker::Bullet, &line)?;
    }
    Ok(())
}
