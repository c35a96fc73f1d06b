//! Answers of agents: the same text is shown for any chunks of it, only written text is shown, the announced paths are
//! the resolved ones, and names and captions stay valid and within their limits.
//!
//! The first byte chooses which paths exist, the second the size of the chunks; the other bytes are the answer.

#![no_main]

use dray_media_type::kind;
use dray_presentation::{caption, line, media, name};
use libfuzzer_sys::fuzz_target;

fn check_media(choice: u8, chunk_bytes: usize, text: &str) {
    let resolve = |path: &str| {
        let exists = choice == 0 || path.len().is_multiple_of(usize::from(choice));
        exists.then(|| path.to_owned())
    };
    let announced = media::tag_paths(text);
    let whole = media::extract_with(text, |path| {
        assert!(
            announced.iter().any(|known| known == path),
            "{path:?} was not announced"
        );
        resolve(path)
    });
    let mut hold = media::HoldBack::new();
    let mut shown = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut end = rest.floor_char_boundary(chunk_bytes.min(rest.len()));
        if end == 0 {
            end = rest.chars().next().map_or(rest.len(), char::len_utf8);
        }
        let (chunk, after) = rest.split_at(end);
        shown.push_str(&hold.push(chunk, resolve));
        rest = after;
    }
    let last = hold.finish(resolve);
    shown.push_str(&last.text);
    assert_eq!(shown, whole.text);
    assert_eq!(
        (&last.files, &last.notices, last.directives),
        (&whole.files, &whole.notices, whole.directives)
    );
    let mut written = text.chars();
    assert!(
        whole
            .text
            .chars()
            .all(|shown| written.any(|character| character == shown))
    );
    let images = media::remote_images(text);
    for image in &images {
        assert!(text[image.span.clone()].contains(&image.url));
    }
    let spans: Vec<_> = images.into_iter().map(|image| image.span).collect();
    let mut written = text.chars();
    assert!(
        media::cut_spans(text, &spans)
            .chars()
            .all(|shown| written.any(|character| character == shown))
    );
    for path in media::bare_paths(text, |_| true) {
        assert!(text.contains(&path));
    }
}

fn check_names(raw: &[u8]) {
    let cleaned = name::clean_name(raw);
    assert!(
        !cleaned.is_empty()
            && cleaned.len() <= name::MAX_CLEAN_NAME_BYTES
            && !cleaned.contains(['/', '\\', '\0'])
    );
    assert_eq!(name::clean_name(&cleaned), cleaned);
    assert!(name::part_file_name(raw, "nonce").len() <= name::MAX_FILE_NAME_BYTES);
    let path = format!("/workspace/uploads/{}", name::upload_name(raw));
    let upload_line = line::uploaded_line(&cleaned, 1, &path);
    assert!(
        upload_line.starts_with("[User uploaded: ")
            && upload_line.ends_with(&format!(" (1 B) at {path}]"))
            && upload_line.matches(']').count() == 1
            && !upload_line.contains('\n')
    );
    let header = name::attachment_disposition(&cleaned);
    assert!(!header.contains(char::is_control));
    let detected = kind::detect_kind(raw, &cleaned, raw.len() as u64);
    assert_eq!(detected.kind == kind::ContentKind::Empty, raw.is_empty());
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, chunk_bytes, rest @ ..] = bytes else {
        return;
    };
    check_names(rest);
    let text = String::from_utf8_lossy(rest);
    check_media(choice % 4, usize::from(*chunk_bytes).max(1), &text);
    for unit in [
        caption::CaptionUnit::Utf16,
        caption::CaptionUnit::Chars,
        caption::CaptionUnit::Bytes,
    ] {
        let limit = usize::from(*chunk_bytes).max(4);
        for part in caption::split_text(&text, limit, unit) {
            assert!(!part.is_empty() && unit.count(&part) <= limit);
        }
    }
});
