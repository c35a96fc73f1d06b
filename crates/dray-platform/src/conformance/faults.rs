//! Cases about faults: the errors of a platform, and the visible messages.

use std::time::Duration;

use dray_conformance::{CaseEnd, expect_equal, expect_true};
use dray_types::ErrorChain;

use super::expect::expect_error;
use super::watch::SentByteCounter;
use super::{CaseContext, PlatformFault, sample};
use crate::delivery::{ConfirmedFile, OutgoingFile, SendStep};
use crate::error::{ErrorKind, PlatformError, SendOutcome};
use crate::platform::{
    DuplicateProtection, OutgoingDelivery, Platform, ReconcileResult, SendRequest,
};

/// A size in bytes that exceeds the buffers between two sockets, so that the server can close before all bytes are
/// sent.
const BEYOND_BUFFERS: u64 = 24 << 20;

async fn prepare_delivery(
    context: &CaseContext<'_>,
    file: OutgoingFile,
) -> Result<(OutgoingDelivery, SendStep, String), CaseEnd> {
    let delivery = context.delivery("", vec![file]);
    let step = context.only_step(&delivery).await?;
    Ok((delivery, step, context.key()))
}

/// Checks that no message is visible after a fault, and that the same step then succeeds, once.
async fn expect_retry_succeeds(
    context: &CaseContext<'_>,
    delivery: &OutgoingDelivery,
    step: &SendStep,
) -> Result<(), CaseEnd> {
    context.expect_nothing_visible().await?;
    // The second attempt has another key: the first attempt must not count as the message.
    context.attempt(delivery, step, &context.key()).await??;
    expect_equal("visible files", context.visible_files().await.len(), 1)
}

pub(super) async fn a_rate_limit_is_reported_exactly(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    // One delay below and one above the minute from which callers queue the delivery instead of waiting.
    for wait in [Duration::from_secs(7), Duration::from_secs(5821)] {
        let context = context.with_new_chat().await;
        let (delivery, step, key) =
            prepare_delivery(&context, sample::binary_file("data.bin", 100)).await?;
        context.script(PlatformFault::RateLimit(wait)).await?;
        let result = context.attempt(&delivery, &step, &key).await?;
        let error = expect_error(result, ErrorKind::RateLimited, SendOutcome::NotSent)?;
        expect_equal("delay", error.retry_after(), Some(wait))?;
        expect_retry_succeeds(&context, &delivery, &step).await?;
    }
    Ok(())
}

pub(super) async fn a_failure_after_the_body_is_ambiguous(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let (delivery, step, key) =
        prepare_delivery(context, sample::binary_file("data.bin", 100)).await?;
    context.script(PlatformFault::FailAfterBody).await?;
    let result = context.attempt(&delivery, &step, &key).await?;
    let outcome = if context.traits.failures_are_ambiguous {
        SendOutcome::Ambiguous
    } else {
        SendOutcome::NotSent
    };
    expect_error(result, ErrorKind::Transient, outcome)?;
    expect_retry_succeeds(context, &delivery, &step).await
}

/// Uses the platform's protection against duplicates, and returns its confirmations.
async fn settle_ambiguous(
    platform: &dyn Platform,
    mut send: SendRequest<'_>,
) -> Result<Vec<ConfirmedFile>, CaseEnd> {
    send.repeated = true;
    let ambiguity = platform.ambiguity();
    // The same key again must return the message that exists.
    if let DuplicateProtection::Resend(_) | DuplicateProtection::ResendAlways = ambiguity {
        return Ok(platform.send(send, &SentByteCounter::default()).await?);
    }
    match (ambiguity, platform.reconcile(send).await?) {
        (DuplicateProtection::Reconcile, ReconcileResult::Sent(confirmed)) => Ok(confirmed),
        (DuplicateProtection::Unknown, ReconcileResult::Unknown) => Ok(Vec::new()),
        (_, other) => Err(CaseEnd::fail(format_args!("{ambiguity:?}, but {other:?}"))),
    }
}

pub(super) async fn a_lost_response_is_ambiguous_and_its_message_is_shown_once(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let (delivery, step, key) =
        prepare_delivery(context, sample::binary_file("data.bin", 100)).await?;
    context.script(PlatformFault::LoseResponse).await?;
    let counter = SentByteCounter::default();
    let mut send = SendRequest {
        delivery: &delivery,
        step: &step,
        prepared: "",
        key: &key,
        repeated: false,
    };
    // The case prepares the request itself instead of calling `attempt`, because the same request is needed for the
    // second part.
    let prepared = context.platform.prepare(send, &counter).await?;
    send.prepared = &prepared;
    let result = context.platform.send(send, &counter).await;
    expect_error(result, ErrorKind::Transient, SendOutcome::Ambiguous)?;
    // The message is visible, although the platform got no confirmation.
    expect_equal("visible files", context.visible_files().await.len(), 1)?;
    let confirmed = settle_ambiguous(&*context.platform, send).await?;
    let visible = context.visible_messages().await;
    // Only one message is still visible: settling must not show it again.
    expect_equal("visible files", context.visible_files().await.len(), 1)?;
    for confirmed in confirmed {
        let message = visible
            .iter()
            .find(|message| message.message_id == confirmed.message_id);
        expect_true(
            message.is_some(),
            format_args!("{confirmed:?} is not visible"),
        )?;
    }
    Ok(())
}

pub(super) async fn a_connection_closed_in_the_body_sent_nothing(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let size = BEYOND_BUFFERS.min(context.limits().await?.of(crate::Route::Document));
    let size = usize::try_from(size).map_err(CaseEnd::fail)?;
    let (delivery, step, key) =
        prepare_delivery(context, sample::binary_file("data.bin", size)).await?;
    context.script(PlatformFault::CloseDuringBody).await?;
    let result = context.attempt(&delivery, &step, &key).await?;
    expect_error(result, ErrorKind::Transient, SendOutcome::NotSent)?;
    expect_retry_succeeds(context, &delivery, &step).await
}

pub(super) async fn a_refusal_for_size_is_reported(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let (delivery, step, key) =
        prepare_delivery(context, sample::binary_file("data.bin", 100_000)).await?;
    context.script(PlatformFault::TooLarge).await?;
    let result = context.attempt(&delivery, &step, &key).await?;
    expect_error(result, ErrorKind::TooLarge, SendOutcome::NotSent)?;
    expect_retry_succeeds(context, &delivery, &step).await
}

/// Checks that a result is an error after which sending again is not safe.
fn expect_undelivered(result: Result<Vec<ConfirmedFile>, PlatformError>) -> Result<(), CaseEnd> {
    match result {
        Ok(confirmed) => Err(CaseEnd::fail(format_args!("delivered: {confirmed:?}"))),
        Err(error) => expect_true(
            error.send_outcome() != SendOutcome::NotSent,
            format_args!(
                "the error claims that nothing was sent: {}",
                ErrorChain(&error)
            ),
        ),
    }
}

pub(super) async fn a_success_without_the_file_does_not_count_as_a_delivery(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let (delivery, step, key) =
        prepare_delivery(context, sample::binary_file("data.bin", 100)).await?;
    context.script(PlatformFault::ForgetFiles).await?;
    expect_undelivered(context.attempt(&delivery, &step, &key).await?)
}

pub(super) async fn an_unreadable_response_does_not_count_as_a_delivery(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let (delivery, step, key) =
        prepare_delivery(context, sample::binary_file("data.bin", 100)).await?;
    context.script(PlatformFault::Gibberish).await?;
    expect_undelivered(context.attempt(&delivery, &step, &key).await?)
}

pub(super) async fn bytes_that_cannot_be_read_show_nothing(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    // The file fails at the first byte, in the middle, and at the last byte.
    for readable in [0, 70_000, 199_999] {
        let file = sample::failing_file("data.bin", 200_000, readable);
        let (delivery, step, key) = prepare_delivery(context, file).await?;
        let result = context.attempt(&delivery, &step, &key).await?;
        expect_error(result, ErrorKind::Source, SendOutcome::NotSent)?;
        context.expect_nothing_visible().await?;
    }
    // The failures must leave the connection and the chat usable.
    let (delivery, step, _) =
        prepare_delivery(context, sample::binary_file("data.bin", 200_000)).await?;
    expect_retry_succeeds(context, &delivery, &step).await
}

pub(super) async fn bytes_that_end_early_show_nothing(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    for readable in [0, 70_000, 199_999] {
        let file = sample::truncated_file("data.bin", 200_000, readable);
        let (delivery, step, key) = prepare_delivery(context, file).await?;
        let result = context.attempt(&delivery, &step, &key).await?;
        expect_error(result, ErrorKind::Source, SendOutcome::NotSent)?;
        context.expect_nothing_visible().await?;
    }
    Ok(())
}
