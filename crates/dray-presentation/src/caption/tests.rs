//! Captions, parts of long texts, and mass mentions.

use proptest::prelude::*;

use super::*;

const TELEGRAM_LIMITS: CaptionLimits = CaptionLimits {
    caption: 1024,
    message: 4096,
    unit: CaptionUnit::Utf16,
};

fn pieces(text: &str, limit: usize) -> Vec<String> {
    split_text(text, limit, CaptionUnit::Chars)
}

#[test]
fn units_count_what_their_platform_counts() {
    for (unit, count) in [
        (CaptionUnit::Utf16, 5),
        (CaptionUnit::Chars, 4),
        (CaptionUnit::Bytes, 10),
    ] {
        assert_eq!(unit.count("a😀é報"), count, "{unit:?}");
    }
}

#[test]
fn a_text_within_the_limit_is_the_caption() {
    assert_eq!(
        fit_caption("  hello\n", TELEGRAM_LIMITS),
        CaptionPlacement::Fits("hello".to_owned())
    );
    assert_eq!(fit_caption(" \n", TELEGRAM_LIMITS), CaptionPlacement::None);
    let exact = "😀".repeat(512);
    assert_eq!(
        fit_caption(&exact, TELEGRAM_LIMITS),
        CaptionPlacement::Fits(exact.clone())
    );
    let over = format!("{exact}a");
    assert_eq!(
        fit_caption(&over, TELEGRAM_LIMITS),
        CaptionPlacement::Separate(vec![over])
    );
}

#[test]
fn without_captions_all_text_is_sent_separately() {
    let audio = CaptionLimits {
        caption: 0,
        message: 10,
        unit: CaptionUnit::Chars,
    };
    assert_eq!(
        fit_caption("hi", audio),
        CaptionPlacement::Separate(vec!["hi".to_owned()])
    );
}

#[test]
fn cuts_are_between_paragraphs_then_lines_then_words_then_characters() {
    assert_eq!(
        pieces("one two\nthree\n\nfour five", 16),
        ["one two\nthree", "four five"]
    );
    assert_eq!(
        pieces("one two\n  three four", 12),
        ["one two", "  three four"]
    );
    assert_eq!(pieces("one two three", 8), ["one two", "three"]);
    assert_eq!(pieces("abcdefghij", 4), ["abcd", "efgh", "ij"]);
    assert_eq!(pieces("one two three", 7), ["one two", "three"]);
}

#[test]
fn visible_characters_are_not_split() {
    let family = "👨\u{200D}👩\u{200D}👧";
    assert_eq!(pieces(&format!("ab{family}cd"), 5), ["ab", family, "cd"]);
    assert_eq!(pieces("abcde\u{301}f", 5), ["abcd", "e\u{301}f"]);
    assert_eq!(pieces("🇩🇪🇫🇷🇮🇹", 5), ["🇩🇪🇫🇷", "🇮🇹"]);
    assert_eq!(split_text("aaa😀", 4, CaptionUnit::Utf16), ["aaa", "😀"]);
}

#[test]
fn a_character_that_is_too_long_for_a_message_is_cut() {
    let stacked = format!("e{}", "\u{301}".repeat(20));
    let pieces = pieces(&stacked, 8);
    assert_eq!(pieces.concat(), stacked);
    assert!(pieces.iter().all(|piece| piece.chars().count() <= 8));
}

#[test]
fn splitting_ends_when_the_limit_is_below_one_character() {
    assert_eq!(split_text("😀😀", 0, CaptionUnit::Bytes), ["😀", "😀"]);
    assert_eq!(
        split_text(" \n ", 1, CaptionUnit::Chars),
        Vec::<String>::new()
    );
}

#[test]
fn r_15_mass_mentions_are_disabled() {
    for (text, safe) in [
        ("@everyone", "@\u{200b}everyone"),
        ("hi @Here!", "hi @\u{200b}Here!"),
        ("x@everyone", "x@\u{200b}everyone"),
        (
            "@channel, @all @room",
            "@\u{200b}channel, @\u{200b}all @\u{200b}room",
        ),
        (
            "<!channel> <!here|h>",
            "<\u{200b}!channel> <\u{200b}!here|h>",
        ),
        ("<!subteam^S1>", "<\u{200b}!subteam^S1>"),
    ] {
        assert_eq!(neutralise_mentions(text), safe);
    }
}

#[test]
fn other_text_is_not_changed() {
    for text in [
        "bob@here.com",
        "@roommate",
        "@allison",
        "<!doctype html>",
        "a@b",
        "@",
        "<!",
        "me@all",
    ] {
        assert_eq!(neutralise_mentions(text), text);
    }
}

proptest! {
    #[test]
    fn parts_fit_and_no_visible_text_is_lost(
        text in "([a-z😀é\u{301}🇩\u{200D}]{0,12}[ \n]{0,3}){0,30}",
        limit in 0_usize..40,
        unit in prop::sample::select(vec![CaptionUnit::Utf16, CaptionUnit::Chars, CaptionUnit::Bytes]),
    ) {
        let pieces = split_text(&text, limit, unit);
        for piece in &pieces {
            prop_assert!(!piece.is_empty() && unit.count(piece) <= limit.max(4));
        }
        let visible = |text: &str| text.split_whitespace().collect::<String>();
        prop_assert_eq!(visible(&pieces.concat()), visible(&text));
    }

    #[test]
    fn any_text_is_split(text in "\\PC*", limit in 0_usize..64) {
        let pieces = split_text(&text, limit, CaptionUnit::Utf16);
        prop_assert!(pieces.iter().all(|piece| CaptionUnit::Utf16.count(piece) <= limit.max(4)));
    }

    #[test]
    fn disabling_twice_changes_nothing(text in "[@<!a-z. ]{0,20}(@everyone|@here|<!here>|@room){0,3}[a-z]{0,3}") {
        let once = neutralise_mentions(&text);
        prop_assert_eq!(&neutralise_mentions(&once), &once);
        prop_assert_eq!(once.replace('\u{200b}', ""), text);
        prop_assert!(!once.to_lowercase().contains("@everyone") && !once.contains("<!here"));
    }
}
