//! The frame around the text of a file. No body closes it, no path writes a second line, no dangerous character is
//! left, and a second call of `defang` changes nothing.
//!
//! The bytes before the first NUL are the path; the rest is the body.

#![no_main]

use dray_reading::defang::defang;
use dray_reading::frame::{TextOrigin, frame, header};
use dray_reading::message::{escape_path, hint, quote_for_shell};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let (path, body) = text.split_once('\0').unwrap_or(("a", &text));
    let body = defang(body);
    assert_eq!(defang(&body), body);
    let dangerous = |character: char| {
        (character.is_control() && character != '\n' && character != '\t')
            || matches!(character, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{200B}' | '\u{FEFF}' | '\u{E0000}'..='\u{E007F}' | '\u{2028}' | '\u{2029}')
    };
    assert!(!body.contains(dangerous));

    let shown = escape_path(path);
    assert!(shown.chars().count() <= 300);
    assert!(!shown.contains(['\n', '`', '[', ']']) && !shown.contains(dangerous));
    let head = header(path, "text/plain", TextOrigin::Range(path));
    let framed = frame(&head, &body).expect("the system has random numbers");
    let (before, rest) = framed.split_once('\n').expect("a frame has lines");
    assert_eq!(before, head);
    let nonce = rest
        .strip_prefix("--BEGIN ")
        .and_then(|rest| rest.get(..16))
        .expect("a nonce");
    assert_eq!(framed.matches(nonce).count(), 2);
    assert!(framed.ends_with(&format!("\n--END {nonce}--")));

    // A shell reads the quoted word as the text.
    let word = quote_for_shell(&shown);
    let plain = word
        .strip_prefix('\'')
        .and_then(|word| word.strip_suffix('\''));
    assert_eq!(
        plain.map_or(word.clone(), |quoted| quoted.replace(r"'\''", "'")),
        shown
    );
    assert!(
        hint(
            path,
            "application/pdf",
            dray_reading::message::Cause::Internal
        )
        .lines()
        .count()
            == 4
    );
});
