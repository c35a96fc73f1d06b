//! Files of an answer in its text, for clients of `OpenAI`'s API that do not know `custom_content`.

use std::fmt::Write as _;

use dray_agent::message::Attachment;
use dray_tool_files::TurnFiles;
use dray_types::ByteSize;

use crate::config::AnswerFiles;

/// Largest file whose content is put into a text.
const MAX_INLINE_BYTES: ByteSize = ByteSize::mib(4);

/// The text with all files that have an address; `None` for an answer without any.
pub(super) async fn files_text(
    shown: &[Attachment],
    mode: AnswerFiles,
    files: &TurnFiles,
) -> Option<String> {
    let mut text = String::new();
    for file in shown {
        let inline = match mode {
            AnswerFiles::Data => files.data_url(file, MAX_INLINE_BYTES).await,
            AnswerFiles::Links => None,
            AnswerFiles::None => return None,
        };
        if let Some(url) = inline.or_else(|| link_url(file)) {
            // An empty line separates the first file from the text of the answer.
            text.push_str(if text.is_empty() { "\n\n" } else { "\n" });
            write_link(&mut text, file, &url);
        }
    }
    (!text.is_empty()).then_some(text)
}

/// The address of a file that any client can fetch. Paths of DIAL do not count: they need a key of DIAL.
fn link_url(file: &Attachment) -> Option<String> {
    let kind = file.kind.as_deref().unwrap_or_default();
    let is_web = |url: &&String| url.starts_with("https://") || url.starts_with("http://");
    if let Some(url) = file.url.as_ref().filter(is_web) {
        return Some(url.clone());
    }
    // The content of a file from a model is base64 for a picture and text for every other type.
    let data = file.data.as_ref().filter(|data| !data.is_empty())?;
    kind.starts_with("image/")
        .then(|| format!("data:{kind};base64,{data}"))
}

/// A link of Markdown, shown as a picture where it is one.
fn write_link(text: &mut String, file: &Attachment, url: &str) {
    let kind = file.kind.as_deref().unwrap_or_default();
    let mark = if kind.starts_with("image/") { "!" } else { "" };
    let title = file.title.as_deref().filter(|title| !title.is_empty());
    let title = escape_title(title.unwrap_or("file"));
    // A bracket or space would end the address (CommonMark 6.3).
    let url = url
        .replace('(', "%28")
        .replace(')', "%29")
        .replace(' ', "%20");
    let _ = write!(text, "{mark}[{title}]({url})");
}

fn escape_title(title: &str) -> String {
    let mut escaped = String::with_capacity(title.len());
    for character in title.chars().filter(|character| !character.is_control()) {
        if matches!(character, '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: &str, title: &str, url: &str) -> Attachment {
        Attachment {
            kind: Some(kind.to_owned()),
            title: Some(title.to_owned()),
            url: Some(url.to_owned()),
            ..Attachment::default()
        }
    }

    fn link_of(file: &Attachment) -> Option<String> {
        let mut text = String::new();
        write_link(&mut text, file, &link_url(file)?);
        Some(text)
    }

    #[test]
    fn files_are_links_and_pictures_are_pictures() {
        assert_eq!(
            link_of(&file(
                "application/pdf",
                "a [1].pdf",
                "https://s.example/a (1)?x=1"
            ))
            .unwrap(),
            "[a \\[1\\].pdf](https://s.example/a%20%281%29?x=1)"
        );
        assert_eq!(
            link_of(&file("image/png", "", "http://s.example/b")).unwrap(),
            "![file](http://s.example/b)"
        );
        let inline_picture = Attachment {
            kind: Some("image/png".to_owned()),
            data: Some("QQ==".to_owned()),
            ..Attachment::default()
        };
        assert_eq!(
            link_of(&inline_picture).unwrap(),
            "![file](data:image/png;base64,QQ==)"
        );
    }

    #[test]
    fn a_file_without_an_address_for_every_client_gets_no_link() {
        assert_eq!(link_of(&file("text/csv", "a", "files/B/a.csv")), None);
        let text = Attachment {
            data: Some("words".to_owned()),
            ..Attachment::default()
        };
        assert_eq!(link_of(&text), None);
    }
}
