//! A PDF that does not begin at the first byte (read-attachment 5.1).

/// Whether a PDF begins within the first 1024 bytes, with a version. In a text file an object must follow, too, because
/// a program that searches for PDF files is not a PDF.
pub(super) fn is_late_pdf(head: &[u8], is_text: bool) -> bool {
    let window = head.get(..1024).unwrap_or(head);
    let begins =
        |bytes: &[u8]| bytes.starts_with(b"%PDF-") && bytes.get(5).is_some_and(u8::is_ascii_digit);
    let Some(start) =
        (0..window.len()).find(|start| begins(window.get(*start..).unwrap_or_default()))
    else {
        return false;
    };
    let rest = head.get(start..).unwrap_or_default();
    !is_text || rest.windows(6).any(|six| six == b" 0 obj")
}
