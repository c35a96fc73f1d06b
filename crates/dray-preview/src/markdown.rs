//! Markdown as HTML: `CommonMark` with tables, without the HTML of the document.
//!
//! Raw HTML is shown as text. [`MarkdownLinks`] decides which links are allowed, only pictures of the preview are
//! shown, and this module writes all attributes. In addition, the policy of the page allows no script.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;

use maud::html;
use pulldown_cmark::html::write_html_fmt;
use pulldown_cmark::{CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};

/// Most bytes of HTML; the rest of the document is left out.
const MAX_HTML_BYTES: usize = 4 << 20;

/// Resolves the links and pictures of a document.
pub(crate) trait MarkdownLinks {
    /// The `href` of a link and whether it leads out of the preview; `None` if it may not be a link.
    fn link(&self, target: &str) -> Option<LinkTarget>;
    /// The `src` of a picture; `None` for pictures outside the preview.
    fn picture(&self, target: &str) -> Option<String>;
}

/// Where a link of a document leads, which decides whether the page may follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkTarget {
    /// A heading of the same document, with its `#`.
    Heading(String),
    /// Another file of the preview, as an absolute path.
    Preview(String),
    /// An address outside the preview, or a mail address.
    Outside(String),
}

/// A document as HTML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RenderedMarkdown {
    pub(crate) html: String,
    /// Whether the end was left out because of its size.
    pub(crate) is_cut: bool,
}

/// Renders a document, in a time proportional to its text. Call it on a thread that may block.
pub(crate) fn render(markdown: &str, links: &dyn MarkdownLinks) -> RenderedMarkdown {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS;
    let mut rewriter = EventRewriter::new(links);
    for event in Parser::new_ext(markdown, options) {
        rewriter.push(event);
    }
    let written = Cell::new(0);
    let mut output = CountedText {
        text: String::new(),
        written: &written,
    };
    let count = rewriter.events.len();
    let written_events = Cell::new(0);
    // The text is cut between two events, so that no tag is cut.
    let events = rewriter
        .events
        .into_iter()
        .take_while(|_| written.get() < MAX_HTML_BYTES)
        .inspect(|_| written_events.set(written_events.get() + 1));
    // Writing to a `String` never fails.
    let _ = write_html_fmt(&mut output, events);
    RenderedMarkdown {
        html: output.text,
        is_cut: written_events.get() < count,
    }
}

struct CountedText<'a> {
    text: String,
    written: &'a Cell<usize>,
}

impl fmt::Write for CountedText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        self.written.set(self.text.len());
        Ok(())
    }
}

/// Replaces the events of a document by safe ones.
struct EventRewriter<'a> {
    links: &'a dyn MarkdownLinks,
    events: Vec<Event<'a>>,
    /// For each open link, whether a tag was written.
    open_links: Vec<bool>,
    /// The open pictures; the text inside one is its description.
    pictures: Vec<String>,
    description: String,
    /// The index of the open heading in `events`, and its text.
    heading: Option<(usize, String)>,
    ids: HashMap<String, u32>,
}

impl<'a> EventRewriter<'a> {
    fn new(links: &'a dyn MarkdownLinks) -> Self {
        Self {
            links,
            events: Vec::new(),
            open_links: Vec::new(),
            pictures: Vec::new(),
            description: String::new(),
            heading: None,
            ids: HashMap::new(),
        }
    }

    fn push(&mut self, event: Event<'a>) {
        if !self.pictures.is_empty() {
            return self.push_in_picture(&event);
        }
        match event {
            Event::Html(text) | Event::InlineHtml(text) => self.text(Event::Text(text)),
            Event::Start(Tag::HtmlBlock) => self.events.push(Event::Start(Tag::Paragraph)),
            Event::End(TagEnd::HtmlBlock) => self.events.push(Event::End(TagEnd::Paragraph)),
            // The policy of the page allows no style in an attribute.
            Event::Start(Tag::Table(columns)) => {
                let columns = vec![pulldown_cmark::Alignment::None; columns.len()];
                self.events.push(Event::Start(Tag::Table(columns)));
            }
            Event::Start(Tag::Heading { .. }) => {
                self.heading = Some((self.events.len(), String::new()));
                self.events.push(event);
            }
            Event::End(TagEnd::Heading(_)) => {
                self.name_heading();
                self.events.push(event);
            }
            Event::Start(Tag::Link {
                link_type,
                dest_url,
                title,
                ..
            }) => self.open_link(link_type, &dest_url, &title),
            Event::End(TagEnd::Link) => {
                if self.open_links.pop() == Some(true) {
                    self.push_html("</a>".to_owned());
                }
            }
            Event::Start(Tag::Image { dest_url, .. }) => self.pictures.push(dest_url.into_string()),
            Event::Text(_) | Event::Code(_) => self.text(event),
            event => self.events.push(event),
        }
    }

    fn text(&mut self, event: Event<'a>) {
        if let (Some((_, heading)), Event::Text(text) | Event::Code(text)) =
            (&mut self.heading, &event)
        {
            heading.push_str(text);
        }
        self.events.push(event);
    }

    fn push_in_picture(&mut self, event: &Event<'a>) {
        match event {
            Event::Start(Tag::Image { dest_url, .. }) => self.pictures.push(dest_url.to_string()),
            Event::End(TagEnd::Image) => {
                let target = self.pictures.pop().unwrap_or_default();
                // A picture in the description of another one is a part of that text.
                if self.pictures.is_empty() {
                    self.picture(&target);
                }
            }
            Event::Text(text) | Event::Code(text) => self.description.push_str(text),
            Event::SoftBreak | Event::HardBreak => self.description.push(' '),
            _ => {}
        }
    }

    fn picture(&mut self, target: &str) {
        let description = std::mem::take(&mut self.description);
        match self.links.picture(target) {
            Some(source) => self.push_html(html! { img src=(source) alt=(description); }.0),
            // No resource is loaded from outside: another server would learn when the document is viewed.
            None if description.is_empty() => self.events.push(Event::Text("[picture]".into())),
            None => self.events.push(Event::Text(description.into())),
        }
    }

    fn open_link(&mut self, link_type: LinkType, target: &str, title: &str) {
        let target = match link_type {
            LinkType::Email => self.links.link(&format!("mailto:{target}")),
            _ => self.links.link(target),
        };
        let title = (!title.is_empty()).then_some(title);
        let tag = match &target {
            None => None,
            Some(LinkTarget::Heading(href)) => Some(html! { a href=(href) title=[title] {} }),
            // The frame around this page navigates, so that the whole window shows the other file.
            Some(LinkTarget::Preview(href)) => {
                Some(html! { a href=(href) target="_top" title=[title] {} })
            }
            Some(LinkTarget::Outside(href)) => Some(
                html! { a href=(href) target="_blank" rel="noopener noreferrer" title=[title] {} },
            ),
        };
        self.open_links.push(tag.is_some());
        if let Some(tag) = tag {
            let opened = tag.0.strip_suffix("</a>").unwrap_or_default().to_owned();
            self.push_html(opened);
        }
    }

    /// HTML that this module writes, as opposed to HTML of the document.
    fn push_html(&mut self, html: String) {
        self.events.push(Event::InlineHtml(CowStr::from(html)));
    }

    /// Gives the heading that just ended the name by which links refer to it.
    fn name_heading(&mut self) {
        let Some((event_index, text)) = self.heading.take() else {
            return;
        };
        let slug = heading_slug(&text);
        let uses = self.ids.entry(slug.clone()).or_default();
        let name = match *uses {
            0 => slug,
            count => format!("{slug}-{count}"),
        };
        *uses += 1;
        if let Some(Event::Start(Tag::Heading {
            id, classes, attrs, ..
        })) = self.events.get_mut(event_index)
            && !name.is_empty()
        {
            *id = Some(name.into());
            classes.clear();
            attrs.clear();
        }
    }
}

/// The name of a heading in links, in the form of code hosting sites: lower case, words joined by `-`.
fn heading_slug(text: &str) -> String {
    let permitted = text
        .trim()
        .chars()
        .filter(|character| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_'));
    permitted
        .flat_map(char::to_lowercase)
        .map(|character| if character == ' ' { '-' } else { character })
        .collect()
}

#[cfg(test)]
mod tests;
