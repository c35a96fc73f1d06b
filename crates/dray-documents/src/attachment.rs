//! Files that a document carries. They are listed and not read: each is a separate file for the caller.

use crate::formats::collapse_white_space;
use crate::limits::Limit;
use crate::markdown::{Inline, ListMarker, Markdown};

/// An attached file, which is never opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttachedFile {
    pub(crate) name: String,
    pub(crate) mime: String,
    /// Bytes, decoded; `None` if it is not a file.
    pub(crate) size: Option<u64>,
}

impl AttachedFile {
    fn line(&self) -> Inline {
        let name = collapse_white_space(&self.name);
        let name = if name.is_empty() { "(no name)" } else { &name };
        let mut details = vec![collapse_white_space(&self.mime)];
        if let Some(size) = self.size {
            details.push(format!("{size} bytes"));
        }
        details.retain(|detail| !detail.is_empty());
        Inline::plain(&if details.is_empty() {
            name.to_owned()
        } else {
            format!("{name} ({})", details.join(", "))
        })
    }
}

/// Writes the list of attachments, if there are any.
pub(crate) fn write_attachments(
    attachments: &[AttachedFile],
    out: &mut Markdown,
) -> Result<(), Limit> {
    if attachments.is_empty() {
        return Ok(());
    }
    out.heading(3, &Inline::plain("Attachments"))?;
    attachments
        .iter()
        .try_for_each(|attachment| out.item(0, ListMarker::Bullet, &attachment.line()))
}
