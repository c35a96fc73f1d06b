//! Cases about targets: threads, replies, missing chats, and credentials.

use dray_conformance::{CaseEnd, expect_equal, expect_true};

use super::expect::expect_error;
use super::{CaseContext, sample};
use crate::delivery::DeliveryTarget;
use crate::error::{ErrorKind, SendOutcome};

pub(super) async fn a_thread_is_kept(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    let Some(thread) = context.traits.thread else {
        return Err(CaseEnd::Skip("this platform has no threads"));
    };
    let mut delivery = context.delivery("words", vec![sample::binary_file("data.bin", 100)]);
    thread.clone_into(&mut delivery.target.thread);
    context.arrives(&delivery).await?;
    for message in context.visible_messages().await {
        expect_equal("thread", message.thread.as_str(), thread)?;
    }
    Ok(())
}

pub(super) async fn a_reply_is_kept(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    if !context.traits.replies {
        return Err(CaseEnd::Skip("this platform has no replies"));
    }
    context
        .deliver(&context.delivery("first", Vec::new()))
        .await?;
    let Some(first) = context.visible_messages().await.into_iter().next() else {
        return Err(CaseEnd::fail("no message is visible"));
    };
    let mut delivery = context.delivery("", vec![sample::binary_file("data.bin", 100)]);
    delivery.target.reply_to.clone_from(&first.message_id);
    context.arrives(&delivery).await?;
    // All messages after the first one.
    let replies = context.visible_messages().await.split_off(1);
    expect_true(!replies.is_empty(), "the reply is visible")?;
    for message in replies {
        expect_equal(
            "reply",
            message.reply_to.as_str(),
            first.message_id.as_str(),
        )?;
    }
    Ok(())
}

/// Sends a text and a file to a target; both must be refused with an error of this kind.
async fn expect_refusal(
    context: &CaseContext<'_>,
    target: &DeliveryTarget,
    kind: ErrorKind,
) -> Result<(), CaseEnd> {
    for (message, files) in [
        ("words", Vec::new()),
        ("", vec![sample::binary_file("data.bin", 100)]),
    ] {
        let mut delivery = context.delivery(message, files);
        delivery.target = target.clone();
        // A platform that requests limits may already fail here.
        let limits = match context.platform.limits(target).await {
            Ok(limits) => limits,
            Err(error) => {
                expect_error(Err::<(), _>(error), kind, SendOutcome::NotSent)?;
                continue;
            }
        };
        let steps = context.platform.plan(&delivery, &limits);
        let Some(step) = steps.first() else {
            return Err(CaseEnd::fail("no step"));
        };
        let result = context.attempt(&delivery, step, &context.key()).await?;
        expect_error(result, kind, SendOutcome::NotSent)?;
    }
    Ok(())
}

pub(super) async fn a_chat_that_does_not_exist_is_not_found(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let Some(nowhere) = context.fixture.unknown_target() else {
        return Err(CaseEnd::Skip("this platform accepts every address"));
    };
    expect_refusal(context, &nowhere, ErrorKind::NotFound).await
}

pub(super) async fn wrong_credentials_are_reported(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    // The chat of the right platform, so that only the credentials are wrong.
    let Some(platform) = context.fixture.with_wrong_credentials() else {
        return Err(CaseEnd::Skip("this platform has no credentials"));
    };
    let other = context.with(platform, context.target.clone());
    expect_refusal(&other, &context.target, ErrorKind::Auth).await?;
    context.expect_nothing_visible().await
}

pub(super) async fn an_unreachable_server_is_transient_and_nothing_was_sent(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let Some(platform) = context.fixture.with_unreachable_server() else {
        return Err(CaseEnd::Skip("this platform needs no network"));
    };
    let other = context.with(platform, context.target.clone());
    expect_refusal(&other, &context.target, ErrorKind::Transient).await?;
    context.expect_nothing_visible().await
}
