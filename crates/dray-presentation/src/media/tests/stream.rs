//! Streams: the shown text of an answer does not depend on its chunks.

use proptest::prelude::*;

use super::*;

/// Paths that exist in these tests.
const EXISTING_PATHS: [&str; 6] = [
    "/a.png",
    "/b c.pdf",
    "/d",
    "~/e.md",
    "/报告.pdf",
    "/it's.txt",
];

fn resolve(path: &str) -> Option<String> {
    EXISTING_PATHS.contains(&path).then(|| path.to_owned())
}

/// Returns the joined text of all chunks, and the files.
fn streamed<'text>(chunks: impl Iterator<Item = &'text str>) -> MediaExtraction {
    let mut hold = HoldBack::new();
    let mut shown = String::new();
    for chunk in chunks {
        shown.push_str(&hold.push(chunk, resolve));
    }
    let rest = hold.finish(resolve);
    MediaExtraction {
        text: shown + &rest.text,
        ..rest
    }
}

/// Splits a text into characters.
fn characters(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices()
        .filter_map(|(at, character)| text.get(at..at + character.len_utf8()))
}

#[test]
fn a_partial_tag_is_never_shown() {
    let text = "Look: **MEDIA:/a.png** and\n[[as_document]]more `MEDIA:/d` MEDIA:\n/b c.pdf end";
    let mut hold = HoldBack::new();
    let mut shown = String::new();
    for chunk in characters(text) {
        shown.push_str(&hold.push(chunk, resolve));
        assert!(!shown.contains(['M', '[', '*', '`', '/']), "{shown:?}");
    }
    let found = hold.finish(resolve);
    assert_eq!(found.files, ["/a.png", "/d", "/b c.pdf"]);
    assert_eq!(shown + &found.text, "Look:  and\nmore   end");
}

#[test]
fn text_without_a_tag_shows_immediately() {
    let mut hold = HoldBack::new();
    assert_eq!(hold.push("Hello wor", resolve), "Hello wor");
    assert_eq!(hold.push("ld and m", resolve), "ld and");
    assert_eq!(hold.push("ore *", resolve), " more");
    assert_eq!(hold.push("x", resolve), " *x");
    assert_eq!(hold.push("\n\n\n", resolve), "");
    assert_eq!(hold.push("y", resolve), "\n\ny");
    assert_eq!(hold.finish(resolve).text, "");
}

#[test]
fn a_directive_does_not_hold_the_rest_of_its_line() {
    let mut hold = HoldBack::new();
    assert_eq!(
        hold.push("[[audio_as_voice]]Listen now", resolve),
        "Listen now"
    );
    assert!(hold.finish(resolve).directives.audio_as_voice);
}

#[test]
fn a_caller_may_ask_for_paths_before_it_decides() {
    let mut hold = HoldBack::new();
    hold.feed("a MEDIA:/a.png b");
    assert!(hold.undecided().is_empty());
    assert_eq!(hold.take(resolve), "a");
    hold.feed("\nnext MEDIA:/d");
    assert_eq!(hold.undecided(), ["/a.png", "/a.png b"]);
    assert_eq!(hold.take(resolve), "  b\nnext");
    assert_eq!(hold.undecided_at_end(), ["/d"]);
    assert_eq!(hold.finish(resolve).files, ["/a.png", "/d"]);
}

/// Parts of texts in which several rules apply.
fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("MEDIA:".to_owned()),
        1 => Just("media: ".to_owned()),
        4 => prop::sample::select(&EXISTING_PATHS[..]).prop_map(str::to_owned),
        2 => prop::sample::select(vec!["/x.png", "/no such.pdf", "/y.bak", "/tmp/z.pngSome", "C:\\q.txt"]).prop_map(str::to_owned),
        3 => prop::sample::select(vec!["`", "``", "```", "\"", "'", "*", "**", "_", "~~~"]).prop_map(str::to_owned),
        3 => prop::sample::select(vec!["\n", "\n\n", "\n\n\n\n", " ", "\t", "\r\n", "\u{3000}"]).prop_map(str::to_owned),
        2 => prop::sample::select(vec!["[[as_document]]", "[[audio_as_voice]]", "[[", "[", "{", "}", "]", "\": \"", "{\""]).prop_map(str::to_owned),
        2 => prop::sample::select(vec![".", ",", "!", "。", "…", "<|eos|>", ">", "> ", "|", "#1"]).prop_map(str::to_owned),
        3 => "[a-zA-Zé报 ]{1,6}",
        1 => "\\PC{0,4}",
    ]
}

fn message() -> impl Strategy<Value = String> {
    prop::collection::vec(fragment(), 0..24).prop_map(|segments| segments.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_chunks_show_the_same_text(text in message(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let whole = extract_with(&text, resolve);
        prop_assert_eq!(&streamed(characters(&text)), &whole);
        let mut places: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let chunks = places.windows(2).map(|pair| &text[pair[0]..pair[1]]);
        prop_assert_eq!(&streamed(chunks), &whole);
    }

    #[test]
    fn existing_files_are_sent_and_only_tags_are_cut(text in message()) {
        let found = extract_with(&text, resolve);
        for file in &found.files {
            prop_assert!(EXISTING_PATHS.contains(&file.as_str()));
        }
        prop_assert_eq!(found.text.trim(), &found.text);
        // The remaining text is a part of the message, in order.
        let mut rest = text.chars();
        for character in found.text.chars() {
            prop_assert!(rest.any(|written| written == character), "{:?} from {:?}", found.text, text);
        }
    }

    #[test]
    fn only_the_returned_paths_determine_the_result(text in message()) {
        let asked = tag_paths(&text);
        let found = extract_media(&text, |path| {
            assert!(asked.iter().any(|known| known == path), "{path} was not to be asked for");
            EXISTING_PATHS.contains(&path)
        });
        prop_assert_eq!(found, extract_with(&text, resolve));
    }

    #[test]
    fn spans_are_in_the_text_and_tags_do_not_overlap(text in message()) {
        let mut minimum = 0;
        for tag in scan_tags(&text).0 {
            prop_assert!(!tag.candidates.is_empty() && tag.candidates.len() <= MAX_CANDIDATES);
            for candidate in &tag.candidates {
                prop_assert!(text.get(candidate.span.clone()).is_some_and(|cut| cut.contains(&candidate.path)));
                prop_assert!(candidate.span.start >= minimum && candidate.span.contains(&tag.start));
            }
            let last = tag.candidates.last().map_or(0, |shortest| shortest.span.start);
            minimum = tag.start.max(last) + "MEDIA:".len();
        }
    }

    #[test]
    fn any_text_is_accepted(text in "\\PC*") {
        prop_assert_eq!(streamed(characters(&text)), extract_with(&text, resolve));
        bare_paths(&text, |_| true);
        remote_images(&text);
    }
}
