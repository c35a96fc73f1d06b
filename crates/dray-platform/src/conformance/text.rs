//! What is said with the files.

use dray_content::caption;

use super::report::{expect_equal, expect_true};
use super::{CaseContext, CaseEnd, VisibleMessage, sample};

/// All texts in the order they are seen, as one.
fn joined_text(seen: &[VisibleMessage]) -> String {
    let texts: Vec<&str> = seen
        .iter()
        .map(|message| message.text.as_str())
        .filter(|text| !text.is_empty())
        .collect();
    texts.join("\n")
}

/// Without white space, which may change where a text is cut.
fn without_white_space(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Words of this many units in all, in paragraphs.
fn sample_text(length: usize) -> String {
    let text: String = (0..)
        .flat_map(|number| {
            let end = if number % 40 == 39 { "\n\n" } else { " " };
            format!("word{number}{end}").into_bytes()
        })
        .map(char::from)
        .take(length.saturating_sub(1))
        .collect();
    // The last character is not a space, so that nothing is trimmed.
    format!("{text}.")
}

pub(super) async fn a_text_alone_arrives(world: &CaseContext<'_>) -> Result<(), CaseEnd> {
    world.deliver(&world.delivery("hello", Vec::new())).await?;
    let seen = world.seen().await;
    expect_equal("text", joined_text(&seen).as_str(), "hello")?;
    expect_equal("files", world.seen_files().await.len(), 0)
}

pub(super) async fn a_short_text_comes_with_the_file_or_before_it(
    world: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    for file in sample::every_kind() {
        let world = world.anew().await;
        let delivery = world.delivery("Here it is.", vec![file]);
        world.arrives(&delivery).await?;
        let seen = world.seen().await;
        expect_equal("text", joined_text(&seen).as_str(), "Here it is.")?;
        let first = seen.first().map(|message| message.text.as_str());
        expect_equal("the text is not last", first, Some("Here it is."))?;
    }
    Ok(())
}

pub(super) async fn a_long_text_comes_whole_and_before_the_file(
    world: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let limits = world.limits().await?;
    let longest = limits.text.min(60_000);
    for length in [limits.caption.min(60_000) + 1, longest + 1, longest * 2 + 7] {
        let world = world.anew().await;
        let text = sample_text(length);
        let delivery = world.delivery(&text, vec![sample::binary_file("data.bin", 100)]);
        world.arrives(&delivery).await?;
        let seen = world.seen().await;
        expect_equal(
            "text",
            without_white_space(&joined_text(&seen)),
            without_white_space(&text),
        )?;
        for message in &seen {
            let found = world.traits.unit.count(&message.text);
            let most = if message.files.is_empty() {
                limits.text
            } else {
                limits.caption.max(limits.text)
            };
            expect_true(found <= most, format_args!("{found} units in one message"))?;
        }
        let file = seen.iter().position(|message| !message.files.is_empty());
        let last_text = seen.iter().rposition(|message| !message.text.is_empty());
        expect_true(last_text <= file, "the file comes after the text")?;
    }
    Ok(())
}

pub(super) async fn a_text_of_exactly_the_limit_arrives(
    world: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let limits = world.limits().await?;
    for length in [
        limits.caption.clamp(1, 60_000),
        limits.text.clamp(1, 60_000),
    ] {
        let world = world.anew().await;
        let text = sample_text(length);
        let delivery = world.delivery(&text, vec![sample::binary_file("data.bin", 100)]);
        world.arrives(&delivery).await?;
        expect_equal(
            "text",
            without_white_space(&joined_text(&world.seen().await)),
            without_white_space(&text),
        )?;
    }
    Ok(())
}

pub(super) async fn text_is_shown_as_it_was_written(
    world: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    for text in [
        "*not bold* _not_ `code` [x](y) ~z~ __u__ ||s||",
        "a <b>&amp; </b> \"quoted\" \\ back",
        "дві мови 你好 👩‍👩‍👧‍👦 e\u{301}",
        "first line\nsecond line\n\nanother paragraph",
        "a = 'b'; -- {\"c\": [1, 2]}",
    ] {
        let world = world.anew().await;
        world.deliver(&world.delivery(text, Vec::new())).await?;
        let shown = joined_text(&world.seen().await);
        expect_equal("text", shown.as_str(), text)?;
        let world = world.anew().await;
        let delivery = world.delivery(text, vec![sample::binary_file("data.bin", 100)]);
        world.arrives(&delivery).await?;
        let shown = joined_text(&world.seen().await);
        expect_equal("text with a file", shown.as_str(), text)?;
    }
    Ok(())
}

pub(super) async fn mass_mentions_call_nobody(world: &CaseContext<'_>) -> Result<(), CaseEnd> {
    if !world.traits.people {
        return Err(CaseEnd::Skip("programs read this platform's texts"));
    }
    let text = "Dear @everyone, @here, @channel and @room: <!channel> <!here>";
    for files in [Vec::new(), vec![sample::binary_file("data.bin", 100)]] {
        let world = world.anew().await;
        world.deliver(&world.delivery(text, files)).await?;
        let shown = joined_text(&world.seen().await);
        expect_equal("text", shown.as_str(), &caption::neutralise_mentions(text))?;
    }
    Ok(())
}
