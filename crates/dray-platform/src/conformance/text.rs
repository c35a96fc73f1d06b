//! Cases about the text of a delivery.

use dray_conformance::{CaseEnd, expect_equal, expect_true};
use dray_presentation::caption;

use super::{CaseContext, VisibleMessage, sample};

/// All texts in their visible order, joined by line ends.
fn joined_text(visible: &[VisibleMessage]) -> String {
    let texts: Vec<&str> = visible
        .iter()
        .map(|message| message.text.as_str())
        .filter(|text| !text.is_empty())
        .collect();
    texts.join("\n")
}

/// Removes white space, which may change where a text is divided.
fn without_white_space(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Words of `length` ASCII characters in all, in paragraphs: the same length in every unit.
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

pub(super) async fn a_text_alone_arrives(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    context
        .deliver(&context.delivery("hello", Vec::new()))
        .await?;
    let visible = context.visible_messages().await;
    expect_equal("text", joined_text(&visible).as_str(), "hello")?;
    expect_equal("files", context.visible_files().await.len(), 0)
}

pub(super) async fn a_short_text_arrives_with_the_file_or_before_it(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    for file in sample::every_kind() {
        let context = context.with_new_chat().await;
        let delivery = context.delivery("Here it is.", vec![file]);
        context.arrives(&delivery).await?;
        let visible = context.visible_messages().await;
        expect_equal("text", joined_text(&visible).as_str(), "Here it is.")?;
        // The text comes before the file or with it, never after it.
        let first = visible.first().map(|message| message.text.as_str());
        expect_equal("the text is not last", first, Some("Here it is."))?;
    }
    Ok(())
}

pub(super) async fn a_long_text_arrives_complete_and_before_the_file(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let limits = context.limits().await?;
    // Some platforms have no practical limit of text.
    let longest = limits.text.min(60_000);
    // Just above a caption, just above a message, and more than two messages.
    for length in [limits.caption.min(60_000) + 1, longest + 1, longest * 2 + 7] {
        let context = context.with_new_chat().await;
        let text = sample_text(length);
        let delivery = context.delivery(&text, vec![sample::binary_file("data.bin", 100)]);
        context.arrives(&delivery).await?;
        let visible = context.visible_messages().await;
        expect_equal(
            "text",
            without_white_space(&joined_text(&visible)),
            without_white_space(&text),
        )?;
        for message in &visible {
            let units = context.traits.unit.count(&message.text);
            let limit = if message.files.is_empty() {
                limits.text
            } else {
                limits.caption.max(limits.text)
            };
            expect_true(units <= limit, format_args!("{units} units in one message"))?;
        }
        let file = visible.iter().position(|message| !message.files.is_empty());
        let last_text = visible.iter().rposition(|message| !message.text.is_empty());
        // `None` (no text or no file) is less than any position.
        expect_true(last_text <= file, "the file comes after the text")?;
    }
    Ok(())
}

pub(super) async fn a_text_of_exactly_the_limit_arrives(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    // A platform without captions reports 0, and empty text is not sent.
    let limits = context.limits().await?;
    for length in [
        limits.caption.clamp(1, 60_000),
        limits.text.clamp(1, 60_000),
    ] {
        let context = context.with_new_chat().await;
        let text = sample_text(length);
        let delivery = context.delivery(&text, vec![sample::binary_file("data.bin", 100)]);
        context.arrives(&delivery).await?;
        expect_equal(
            "text",
            without_white_space(&joined_text(&context.visible_messages().await)),
            without_white_space(&text),
        )?;
    }
    Ok(())
}

pub(super) async fn text_is_shown_as_it_was_written(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    for text in [
        "*not bold* _not_ `code` [x](y) ~z~ __u__ ||s||",
        "a <b>&amp; </b> \"quoted\" \\ back",
        "дві мови 你好 👩‍👩‍👧‍👦 e\u{301}",
        "first line\nsecond line\n\nanother paragraph",
        "a = 'b'; -- {\"c\": [1, 2]}",
    ] {
        let context = context.with_new_chat().await;
        context.deliver(&context.delivery(text, Vec::new())).await?;
        let text_shown = joined_text(&context.visible_messages().await);
        expect_equal("text", text_shown.as_str(), text)?;
        // The second pass is about captions, which often have a separate grammar.
        let context = context.with_new_chat().await;
        let delivery = context.delivery(text, vec![sample::binary_file("data.bin", 100)]);
        context.arrives(&delivery).await?;
        let text_shown = joined_text(&context.visible_messages().await);
        expect_equal("text with a file", text_shown.as_str(), text)?;
    }
    Ok(())
}

pub(super) async fn mass_mentions_notify_no_one(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    if !context.traits.people {
        return Err(CaseEnd::Skip("programs read this platform's texts"));
    }
    // Mentions that notify all members of a chat on some platform.
    let text = "Dear @everyone, @here, @channel and @room: <!channel> <!here>";
    for files in [Vec::new(), vec![sample::binary_file("data.bin", 100)]] {
        let context = context.with_new_chat().await;
        context.deliver(&context.delivery(text, files)).await?;
        let text_shown = joined_text(&context.visible_messages().await);
        expect_equal(
            "text",
            text_shown.as_str(),
            &caption::neutralise_mentions(text),
        )?;
    }
    Ok(())
}
