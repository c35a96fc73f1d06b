//! The common parts of mails and their output: a list of headers, the body, a list of attachments.

pub(super) use crate::attachment::AttachedFile;
use crate::attachment::write_attachments;
use crate::formats::{collapse_white_space, rtf, web};
use crate::limits::Failure;
use crate::markdown::{Inline, ListMarker, Markdown, Style};

/// Deepest nesting of quotes that is distinguished.
const MAX_QUOTE_DEPTH: usize = 8;

/// A person or a list of persons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) name: String,
    pub(super) address: String,
}

/// A body in one of the formats of mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Plain(String),
    Html(String),
    Rtf(Vec<u8>),
}

impl Body {
    /// Whether the body has no visible content.
    pub(super) fn is_blank(&self) -> bool {
        match self {
            Self::Plain(text) | Self::Html(text) => text.trim().is_empty(),
            // A document of RTF without text still has bytes; the converter finds that out.
            Self::Rtf(bytes) => bytes.is_empty(),
        }
    }
}

/// A mail, as read from its format.
#[derive(Clone, Debug, Default)]
pub(super) struct MailMessage {
    pub(super) from: Vec<Address>,
    pub(super) to: Vec<Address>,
    pub(super) cc: Vec<Address>,
    pub(super) date: String,
    pub(super) subject: String,
    pub(super) bodies: Vec<Body>,
    pub(super) attachments: Vec<AttachedFile>,
}

impl MailMessage {
    /// Writes headers, bodies and the list of attachments.
    pub(super) fn write(&self, out: &mut Markdown) -> Result<(), Failure> {
        for (label, addresses) in [("From", &self.from), ("To", &self.to), ("Cc", &self.cc)] {
            if !addresses.is_empty() {
                let mut line = labelled_line(label);
                for (index, address) in addresses.iter().enumerate() {
                    if index > 0 {
                        line.text(", ", Style::default());
                    }
                    address.write(&mut line);
                }
                out.item(0, ListMarker::Bullet, &line)?;
            }
        }
        // The date is shown as text, because a header may have any date, and no calculation depends on it.
        for (label, text) in [("Date", &self.date), ("Subject", &self.subject)] {
            // A folded or hostile header must not start a new line in the list.
            let text = collapse_white_space(text);
            if !text.is_empty() {
                let mut line = labelled_line(label);
                line.text(&text, Style::default());
                out.item(0, ListMarker::Bullet, &line)?;
            }
        }
        for body in &self.bodies {
            match body {
                Body::Plain(text) => write_plain_body(text, out)?,
                Body::Html(source) => web::write_html(source, out)?,
                Body::Rtf(bytes) => rtf::write_rtf(bytes, out)?,
            }
        }
        Ok(write_attachments(&self.attachments, out)?)
    }
}

impl Address {
    /// `Name <address>`; other text is not changed.
    fn write(&self, line: &mut Inline) {
        let name = collapse_white_space(&self.name);
        let address = self.address.trim();
        // Allows only characters that cannot close the brackets, so that a plain address is written without escapes.
        let is_plain_address = address.contains('@')
            && address
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"@._+-=/!#$%&'^{}~?".contains(&byte));
        line.text(&name, Style::default());
        // Many programs repeat the address as the name.
        if address.is_empty() || address == name {
            return;
        }
        match (name.is_empty(), is_plain_address) {
            (true, _) => line.text(address, Style::default()),
            (false, true) => line.raw(&format!(" <{address}>")),
            (false, false) => line.text(&format!(" <{address}>"), Style::default()),
        }
    }
}

fn labelled_line(label: &str) -> Inline {
    Inline::plain(&format!("{label}: "))
}

/// A plain body: paragraphs with their lines, and quoted replies as quotes.
fn write_plain_body(text: &str, out: &mut Markdown) -> Result<(), Failure> {
    let mut open = 0;
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines() {
        let (level, rest) = quote_depth(line);
        // A paragraph never continues across a change of the quote depth.
        if level != open || rest.trim().is_empty() {
            end_paragraph(&mut lines, out)?;
        }
        // A blank line with the quote sign belongs to the quote. A blank line without the sign ends it.
        while open > level {
            out.close();
            open -= 1;
        }
        while open < level {
            out.open_quote();
            open += 1;
        }
        if !rest.trim().is_empty() {
            lines.push(rest);
        }
    }
    end_paragraph(&mut lines, out)?;
    // A text may end within a quote; the containers of the writer must be closed in any case.
    for _ in 0..open {
        out.close();
    }
    Ok(())
}

fn end_paragraph(lines: &mut Vec<&str>, out: &mut Markdown) -> Result<(), Failure> {
    if !lines.is_empty() {
        let text = std::mem::take(lines).join("\n");
        out.paragraph(&Inline::plain(&text))?;
    }
    Ok(())
}

/// The quote depth of a line, and its text.
fn quote_depth(line: &str) -> (usize, &str) {
    let mut level = 0;
    let mut rest = line;
    // Lines of thousands of `>` would nest as many containers.
    while level < MAX_QUOTE_DEPTH
        && let Some(after_sign) = rest.strip_prefix('>')
    {
        level += 1;
        rest = after_sign.strip_prefix(' ').unwrap_or(after_sign);
    }
    (level, rest)
}
