//! HTML and XML (read-attachment 7.4, 7.5).

mod charset;
mod feed;
mod html;
mod xml;

pub(crate) use charset::decode_page as page_text;
pub(crate) use html::write_html;

use super::text::{payload, source};
use super::{ConversionHint, Convert, Converter};
use crate::container::Input;
use crate::limits::Failure;
use crate::markdown::Markdown;

/// One media type for each converter, with its extension.
pub(super) const SAMPLES: &[(&str, &str)] = &[
    ("text/html", "html"),
    ("image/svg+xml", "svg"),
    ("application/rss+xml", "rss"),
    ("application/xml", "xml"),
];

/// The converter of this family for a media type.
pub(super) fn converter(hint: &ConversionHint) -> Option<Converter> {
    let (name, convert): (_, Convert) = match hint.mime.as_str() {
        "text/html" | "application/xhtml+xml" => ("html", convert_page),
        "image/svg+xml" => ("svg", convert_svg),
        "application/rss+xml" | "application/atom+xml" => ("feed", feed_or_xml),
        "application/xml" | "text/xml" => ("xml", plain_xml),
        mime if mime.ends_with("+xml") => ("xml", plain_xml),
        _ => return None,
    };
    Some(Converter { name, convert })
}

/// The file as text with `\n` line ends, decoded with the encoding that it declares.
fn read_text(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &Markdown,
) -> Result<String, Failure> {
    let bytes = source::read_bytes(input, out.budget())?;
    let text = charset::decode_page(&bytes, hint.encoding.as_deref()).into_owned();
    out.budget().clock()?;
    Ok(source::line_feeds(text))
}

/// Converts an HTML page. A page whose text only scripts would create has another note than an empty file.
fn convert_page(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let text = read_text(input, hint, out)?;
    write_html(&text, out)?;
    if out.is_empty() && !text.trim().is_empty() {
        return Err(Failure::NoText);
    }
    Ok(())
}

/// XML of any vocabulary, indented in a fence.
fn plain_xml(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    xml::write_xml(&read_text(input, hint, out)?, out)
}

/// A feed by its entries; as XML when it has none.
fn feed_or_xml(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let text = read_text(input, hint, out)?;
    match feed::read_feed(&text, out.budget())? {
        Some(feed) => feed.write(out),
        None => xml::write_xml(&text, out),
    }
}

/// A drawing without payloads, otherwise unchanged.
fn convert_svg(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let text = read_text(input, hint, out)?;
    if !text.trim().is_empty() {
        out.code("xml", &payload::without_payloads(&text))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::formats::text::testing::{convert_bytes, test_hint};
    use crate::limits::{Failure, Limits};

    #[test]
    fn a_page_without_text_is_distinguished_from_an_empty_file() {
        let failure = |source: &[u8]| {
            let conversion =
                convert_bytes(&test_hint("text/html", "html"), source, Limits::default());
            assert_eq!(conversion.markdown, "");
            conversion.failure
        };
        assert_eq!(
            failure(b"<div id=app></div><script>x()</script>"),
            Some(Failure::NoText)
        );
        assert_eq!(failure(b" \n"), None);
        assert_eq!(failure(b""), None);
    }
}
