//! `data:` payloads within Markdown: they never reach the output (read-attachment 7).

use std::borrow::Cow;

/// Bytes within which the media type of a payload must end.
const MAX_HEAD_BYTES: usize = 256;

/// Removes `data:` URLs that are targets of links or images. Of other `data:` URLs it removes the base64 payload.
pub(crate) fn without_payloads(text: &str) -> Cow<'_, str> {
    const DATA_SCHEME: &str = "data:";
    const BASE64_MARKER: &str = ";base64,";
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(DATA_SCHEME) {
        let (before, url) = rest.split_at(at);
        out.push_str(before);
        // The search covers only the text nearby: otherwise a text with many `data:` would be read to its end from each
        // of them.
        let near = url
            .get(..url.floor_char_boundary(MAX_HEAD_BYTES))
            .unwrap_or(url);
        let head = near
            .find(|character: char| {
                !(character.is_ascii_alphanumeric() || "/;:=+.-_".contains(character))
            })
            .unwrap_or(near.len());
        let comma = url.get(head..).is_some_and(|tail| tail.starts_with(','));
        let payload = head + usize::from(comma);
        let encoded = url
            .get(..payload)
            .is_some_and(|head| head.ends_with(BASE64_MARKER));
        let (kept, end) = if out.ends_with("](") && comma {
            out.truncate(out.len() - 1);
            (0, url.find([')', '\n']).unwrap_or(url.len()))
        } else if encoded {
            let tail = url.get(payload..).unwrap_or_default();
            let end = tail
                .find(|character: char| {
                    !(character.is_ascii_alphanumeric() || "+/=%-_".contains(character))
                })
                .unwrap_or(tail.len());
            (payload, payload + end)
        } else {
            // The word in a sentence, or a short URL outside of a link, is not changed.
            (DATA_SCHEME.len(), DATA_SCHEME.len())
        };
        out.push_str(url.get(..kept).unwrap_or_default());
        rest = url.get(end..).unwrap_or_default();
        if kept == 0 {
            rest = rest.strip_prefix(')').unwrap_or(rest);
        }
    }
    if out.is_empty() && rest.len() == text.len() {
        return text.into();
    }
    out.push_str(rest);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::without_payloads;

    #[test]
    fn targets_and_other_payloads_are_removed() {
        for (text, shown) in [
            ("no payload", "no payload"),
            ("![a](data:image/png;base64,AA==)b", "![a]b"),
            ("[a](data:text/html,<b>)b", "[a]b"),
            (
                "<img src=\"data:image/gif;base64,R0lG+/=\" alt=x>",
                "<img src=\"data:image/gif;base64,\" alt=x>",
            ),
            (
                "[x]: data:image/png;base64,AAAA\nb",
                "[x]: data:image/png;base64,\nb",
            ),
            ("the data: 1, 2", "the data: 1, 2"),
            ("![a](data:image/png;base64,AA", "![a]"),
            ("metadata:data:,", "metadata:data:,"),
        ] {
            assert_eq!(without_payloads(text), shown);
        }
    }

    #[test]
    fn schemes_without_end_are_read_in_linear_time() {
        let text = "data:".repeat(20_000);
        assert_eq!(without_payloads(&text), text);
    }
}
