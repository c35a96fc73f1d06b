//! XML, feeds and drawings; entities that must not expand.

use std::fmt::Write as _;

use crate::formats::text::testing::{
    convert_bytes, convert_to_markdown, convert_until_limit, test_hint,
};
use crate::limits::{Limit, Limits};

fn xml(source: &str) -> String {
    convert_to_markdown("application/xml", "xml", source.as_bytes())
}

#[test]
fn elements_are_indented_and_text_is_kept_in_its_element() {
    assert_eq!(
        xml(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><?style x?>\n<a  x='1'\r\n y=\"&quot;\"><b>one &amp; two</b><c/>\
             <d></d><!-- note -->mixed <e>x</e> tail<f><![CDATA[1 < 2 & ]]>&#233;&#x41;</f></a>\n"
        ),
        "```xml\n<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<?style x?>\n<a  x='1'  y=\"&quot;\">\n  <b>one & two</b>\n  \
         <c/>\n  <d></d>\n  <!-- note -->\n  mixed\n  <e>x</e>\n  tail\n  <f>1 < 2 & éA</f>\n</a>\n```\n"
    );
}

#[test]
fn malformed_documents_are_shown_unchanged() {
    for source in [
        "<a><b></a>",
        "<a>",
        "</a>",
        "<a/><b/>",
        "text",
        "<a/>text",
        "<a x=1></a",
        "<a x='1></a>",
        "<a><!-- </a>",
        "<",
    ] {
        let conversion = convert_bytes(
            &test_hint("application/xml", "xml"),
            source.as_bytes(),
            Limits::default(),
        );
        assert_eq!(conversion.markdown, format!("```xml\n{source}\n```\n"));
        assert_eq!(
            conversion.warnings,
            ["the XML is malformed and shown as it is"]
        );
    }
    assert_eq!(xml(" \n"), "");
}

#[test]
fn entity_bombs_are_not_expanded() {
    let mut source = String::from("<?xml version='1.0'?><!DOCTYPE lolz [<!ENTITY lol 'lol'>");
    for level in 1..10 {
        let _ = write!(source, "<!ENTITY lol{level} '{}'>", "&lol;".repeat(10));
    }
    source.push_str("]><lolz>&lol9;</lolz>");
    assert_eq!(
        xml(&source),
        "```xml\n<?xml version='1.0'?>\n<lolz>&lol9;</lolz>\n```\n"
    );
}

#[test]
fn external_entities_are_not_fetched() {
    assert_eq!(
        xml("<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>&x;</a>"),
        "```xml\n<a>&x;</a>\n```\n"
    );
}

#[test]
fn documents_nested_too_deeply_are_shown_unchanged() {
    let source = "<a>".repeat(100_000);
    let conversion = convert_bytes(
        &test_hint("application/xml", "xml"),
        source.as_bytes(),
        Limits::default(),
    );
    assert_eq!(conversion.markdown, format!("```xml\n{source}\n```\n"));
    assert_eq!(
        conversion.warnings,
        ["the XML is nested too deeply and shown as it is"]
    );
    let feed = convert_bytes(
        &test_hint("application/rss+xml", "rss"),
        source.as_bytes(),
        Limits::default(),
    );
    assert_eq!(feed.markdown, conversion.markdown);
}

#[test]
fn indentation_does_not_grow_past_the_limit() {
    let source = format!(
        "{}{}{}",
        "<a>".repeat(250),
        "<b/>".repeat(20_000),
        "</a>".repeat(250)
    );
    let (text, limit) = convert_until_limit("application/xml", "xml", source.as_bytes());
    assert_eq!(limit, Limit::Size);
    assert!(text.len() < 5_100_000 && text.ends_with("\n```\n"));
}

#[test]
fn many_attributes_are_read_in_linear_time() {
    let mut source = String::from("<a");
    for at in 0..50_000 {
        let _ = write!(source, " a{at}='1'");
    }
    source.push_str("/>");
    assert!(xml(&source).len() > 500_000);
}

#[test]
fn the_declared_encoding_is_used() {
    let source = b"<?xml version='1.0' encoding='iso-8859-1'?><a>\xE9</a>";
    assert!(convert_to_markdown("text/xml", "xml", source).contains("<a>é</a>"));
    let wide: Vec<u8> = "\u{FEFF}<a>é</a>"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(
        convert_to_markdown("text/xml", "xml", &wide),
        "```xml\n<a>é</a>\n```\n"
    );
}

#[test]
fn drawings_are_shown_as_they_are_without_payloads() {
    assert_eq!(
        convert_to_markdown(
            "image/svg+xml",
            "svg",
            b"<svg><image href=\"data:image/png;base64,AAAA\"/><text>t</text>\n</svg>\n"
        ),
        "```xml\n<svg><image href=\"data:image/png;base64,\"/><text>t</text>\n</svg>\n```\n"
    );
}
