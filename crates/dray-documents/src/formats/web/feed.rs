//! RSS and Atom: title, link, date and text of each entry (read-attachment 7.4).

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::{write_html, xml};
use crate::formats::collapse_white_space;
use crate::limits::{Budget, Failure, Limit};
use crate::markdown::{Inline, Markdown};

/// Events between two checks of the time limit.
const EVENTS_PER_CHECK: u32 = 1024;

/// A feed: its own fields, and its entries.
#[derive(Debug, Default)]
pub(super) struct Feed {
    about: Entry,
    entries: Vec<Entry>,
}

/// An entry, or the feed's own fields. The first value of each field counts.
#[derive(Debug, Default)]
struct Entry {
    title: String,
    link: String,
    date: String,
    summary: String,
    content: String,
}

/// Reads a feed; `None` if it is malformed, nested too deep or has neither title nor entries.
pub(super) fn read_feed(text: &str, budget: &Budget) -> Result<Option<Feed>, Limit> {
    let max_depth = usize::try_from(budget.limits().max_depth).unwrap_or(usize::MAX);
    let mut reader = Reader::from_str(text.trim_start_matches('\u{FEFF}').trim_start());
    reader.config_mut().allow_dangling_amp = true;
    let mut feed = Feed::default();
    let mut depth = 0;
    // The depth of the open entry.
    let mut entry_depth: Option<usize> = None;
    let mut events = 0;
    loop {
        events += 1;
        if events >= EVENTS_PER_CHECK {
            events = 0;
            budget.clock()?;
        }
        let Ok(event) = reader.read_event() else {
            return Ok(None);
        };
        match event {
            Event::Start(tag) => {
                let name = tag.local_name();
                // Only direct children count: deeper ones of the same name belong to other vocabularies.
                let is_in_place = entry_depth.map_or(depth <= 2, |entry| depth == entry + 1);
                if matches!(name.as_ref(), "item" | "entry") && entry_depth.is_none() {
                    budget.element()?;
                    feed.entries.push(Entry::default());
                    entry_depth = Some(depth);
                } else if is_in_place && is_field(name.as_ref()) {
                    let Ok(inner) = reader.read_text(tag.name()) else {
                        return Ok(None);
                    };
                    feed.current(entry_depth.is_some()).take(&tag, &inner);
                    continue;
                }
                depth += 1;
                if depth > max_depth {
                    return Ok(None);
                }
            }
            Event::Empty(tag) if is_field(tag.local_name().as_ref()) => {
                feed.current(entry_depth.is_some()).take(&tag, "");
            }
            Event::End(_) => {
                depth = depth.saturating_sub(1);
                entry_depth = entry_depth.filter(|entry| *entry < depth);
            }
            Event::Eof => break,
            _ => {}
        }
    }
    let is_known = depth == 0 && !(feed.entries.is_empty() && feed.about.title.is_empty());
    Ok(is_known.then_some(feed))
}

/// Whether the text of an element is shown.
fn is_field(name: &str) -> bool {
    matches!(
        name,
        "title"
            | "link"
            | "pubDate"
            | "date"
            | "published"
            | "updated"
            | "description"
            | "summary"
            | "subtitle"
            | "encoded"
            | "content"
    )
}

impl Feed {
    fn current(&mut self, entry: bool) -> &mut Entry {
        match self.entries.last_mut() {
            Some(last) if entry => last,
            _ => &mut self.about,
        }
    }

    /// Writes the title, link and text of the feed and of each entry.
    pub(super) fn write(&self, out: &mut Markdown) -> Result<(), Failure> {
        out.heading(1, &inline_line(&self.about.title))?;
        self.about.write(out)?;
        for entry in &self.entries {
            let title = if entry.title.is_empty() {
                "(untitled)"
            } else {
                &entry.title
            };
            out.heading(2, &inline_line(title))?;
            entry.write(out)?;
        }
        Ok(())
    }
}

impl Entry {
    /// Reads a field from its element; of several elements for one field, the first counts.
    fn take(&mut self, tag: &BytesStart<'_>, inner: &str) {
        let attribute = |name: &str| {
            let found = tag.try_get_attribute(name).ok().flatten()?;
            Some(decode_element(&found.value))
        };
        let field = match tag.local_name().as_ref() {
            "title" => &mut self.title,
            "pubDate" | "date" | "published" | "updated" => &mut self.date,
            "description" | "summary" | "subtitle" => &mut self.summary,
            "encoded" | "content" => &mut self.content,
            "link" => {
                // Other relations are the feed's own address, pages of comments and enclosures.
                let is_other_relation = attribute("rel").is_some_and(|rel| rel != "alternate");
                let link = attribute("href").unwrap_or_else(|| decode_element(inner));
                if self.link.is_empty() && !is_other_relation {
                    link.trim().clone_into(&mut self.link);
                }
                return;
            }
            _ => return,
        };
        if field.is_empty() {
            // XHTML is markup inside the element; HTML is escaped text.
            let kind = attribute("type");
            let text = match kind.as_deref() {
                Some("xhtml") => inner.to_owned(),
                _ => decode_element(inner),
            };
            let is_markup = matches!(kind.as_deref(), Some("html" | "xhtml"));
            // A title is one line of text, so its markup is left out.
            *field = if is_markup && tag.local_name().as_ref() == "title" {
                decode_element(&text)
            } else {
                text
            };
        }
    }

    fn write(&self, out: &mut Markdown) -> Result<(), Failure> {
        if !self.link.is_empty() {
            let mut link = Inline::new();
            link.begin_link(&self.link);
            link.end_link();
            out.paragraph(&link)?;
        }
        out.paragraph(&inline_line(&self.date))?;
        let text = if self.content.trim().is_empty() {
            &self.summary
        } else {
            &self.content
        };
        if text.contains(['<', '&']) {
            write_html(text, out)
        } else {
            out.paragraph(&Inline::plain(text.trim()))
                .map_err(Failure::from)
        }
    }
}

/// One line of text; titles may contain markup, too.
fn inline_line(text: &str) -> Inline {
    Inline::plain(&collapse_white_space(text))
}

/// The text in an element: references resolved, CDATA as text, tags left out.
fn decode_element(inner: &str) -> String {
    let mut reader = Reader::from_str(inner);
    reader.config_mut().allow_dangling_amp = true;
    // The text is a fragment: its start and end tags need not match.
    reader.config_mut().check_end_names = false;
    let mut text = String::new();
    loop {
        match reader.read_event() {
            Ok(Event::Text(part)) => text.push_str(&part),
            Ok(Event::CData(part)) => text.push_str(&part),
            Ok(Event::GeneralRef(reference)) => text.push_str(&xml::resolve_reference(&reference)),
            Ok(Event::Eof) | Err(_) => return text,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::text::testing::convert_to_markdown;

    #[test]
    fn entries_of_rss_have_title_link_date_and_text() {
        let source = "<?xml version='1.0'?><rss version='2.0' xmlns:c='x'><channel><title>News &amp; more</title>\
            <link>https://a.example/</link><description>All of it</description><image><title>logo</title></image>\
            <item><title>One</title><link>https://a.example/1</link><pubDate>Mon, 03 Mar 2031</pubDate>\
            <description>&lt;p&gt;Some &lt;b&gt;text&lt;/b&gt;&lt;/p&gt;</description></item>\
            <item><title><![CDATA[Two < 3]]></title><description>short</description>\
            <c:encoded><![CDATA[<p>long</p><img src='data:image/png;base64,AAAA'>]]></c:encoded></item></channel></rss>";
        assert_eq!(
            convert_to_markdown("application/rss+xml", "xml", source.as_bytes()),
            "# News & more\n\n[https://a.example/](https://a.example/)\n\nAll of it\n\n## One\n\n\
             [https://a.example/1](https://a.example/1)\n\nMon, 03 Mar 2031\n\nSome **text**\n\n## Two < 3\n\nlong\n"
        );
    }

    #[test]
    fn titles_with_markup_are_shown_as_text() {
        let source = "<feed xmlns='http://www.w3.org/2005/Atom'><title type='html'>A &amp;amp; &lt;i&gt;B&lt;/i&gt;</title>\
            <entry><title type='xhtml'><div xmlns='http://www.w3.org/1999/xhtml'>Q <b>1</b></div></title></entry>\
            <entry><title>a &lt;b&gt;</title></entry></feed>";
        assert_eq!(
            convert_to_markdown("application/atom+xml", "xml", source.as_bytes()),
            "# A & B\n\n## Q 1\n\n## a \\<b>\n"
        );
    }

    #[test]
    fn entries_of_atom_have_title_link_date_and_text() {
        let source = "<feed xmlns='http://www.w3.org/2005/Atom'><title>F</title><entry><title>E</title>\
            <link rel='edit' href='https://a.example/edit'/><link href='https://a.example/e?a=1&amp;b=2'/>\
            <updated>2031-03-03T00:00:00Z</updated><summary>s</summary>\
            <content type='xhtml'><div xmlns='http://www.w3.org/1999/xhtml'><h3>x</h3>y</div></content></entry></feed>";
        assert_eq!(
            convert_to_markdown("application/atom+xml", "atom", source.as_bytes()),
            "# F\n\n## E\n\n[https://a.example/e?a=1&b=2](https://a.example/e?a=1&b=2)\n\n2031-03-03T00:00:00Z\n\n\
             ### x\n\ny\n"
        );
    }

    #[test]
    fn xml_that_is_not_a_feed_is_converted_as_xml() {
        assert_eq!(
            convert_to_markdown("application/rss+xml", "rss", b"<rss><x/></rss>"),
            "```xml\n<rss>\n  <x/>\n</rss>\n```\n"
        );
        assert_eq!(
            convert_to_markdown(
                "application/rss+xml",
                "rss",
                b"<rss><channel><title>T</title>"
            ),
            "```xml\n<rss><channel><title>T</title>\n```\n"
        );
    }
}
