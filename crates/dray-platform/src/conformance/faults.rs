//! What a platform says when something goes wrong, and what the user sees of it.

use std::time::Duration;

use super::report::{chain, equal, holds, refused};
use super::watch::Counter;
use super::{Fault, Stop, World, sample};
use crate::delivery::{Confirmed, OutgoingFile, Step};
use crate::error::{Error, ErrorKind, Moment};
use crate::platform::{Ambiguity, Delivery, Platform, Reconciled, Send};

/// More than the buffers between two sockets hold.
const BEYOND_BUFFERS: u64 = 24 << 20;

async fn prepared(world: &World<'_>, file: OutgoingFile) -> Result<(Delivery, Step, String), Stop> {
    let delivery = world.delivery("", vec![file]);
    let step = world.only_step(&delivery).await?;
    Ok((delivery, step, world.key()))
}

/// After a fault, the same step goes through, and the user sees the file once.
async fn then_it_works(world: &World<'_>, delivery: &Delivery, step: &Step) -> Result<(), Stop> {
    world.nothing_is_seen().await?;
    world.attempt(delivery, step, &world.key()).await??;
    equal("files seen", world.seen_files().await.len(), 1)
}

pub(super) async fn a_rate_limit_is_told_exactly(world: &World<'_>) -> Result<(), Stop> {
    for wait in [Duration::from_secs(7), Duration::from_secs(5821)] {
        let world = world.anew().await;
        let (delivery, step, key) = prepared(&world, sample::binary("data.bin", 100)).await?;
        world.script(Fault::RateLimit(wait)).await?;
        let result = world.attempt(&delivery, &step, &key).await?;
        let error = refused(result, ErrorKind::RateLimited, Moment::NotSent)?;
        equal("delay", error.retry_after(), Some(wait))?;
        then_it_works(&world, &delivery, &step).await?;
    }
    Ok(())
}

pub(super) async fn a_failure_after_the_body_is_ambiguous(world: &World<'_>) -> Result<(), Stop> {
    let (delivery, step, key) = prepared(world, sample::binary("data.bin", 100)).await?;
    world.script(Fault::FailAfterBody).await?;
    let result = world.attempt(&delivery, &step, &key).await?;
    let moment = if world.traits.failures_are_ambiguous {
        Moment::Ambiguous
    } else {
        Moment::NotSent
    };
    refused(result, ErrorKind::Transient, moment)?;
    then_it_works(world, &delivery, &step).await
}

/// What the platform offers against duplicates does what it promises.
async fn settle(platform: &dyn Platform, send: Send<'_>) -> Result<Vec<Confirmed>, Stop> {
    let ambiguity = platform.ambiguity();
    if let Ambiguity::Resend(_) | Ambiguity::ResendAlways = ambiguity {
        return Ok(platform.send(send, &Counter::default()).await?);
    }
    match (ambiguity, platform.reconcile(send).await?) {
        (Ambiguity::Reconcile, Reconciled::Sent(confirmed)) => Ok(confirmed),
        (Ambiguity::Unknown, Reconciled::Unknown) => Ok(Vec::new()),
        (_, other) => Err(Stop::fail(format_args!("{ambiguity:?}, but {other:?}"))),
    }
}

pub(super) async fn a_lost_answer_is_ambiguous_and_never_shown_twice(
    world: &World<'_>,
) -> Result<(), Stop> {
    let (delivery, step, key) = prepared(world, sample::binary("data.bin", 100)).await?;
    world.script(Fault::LoseAnswer).await?;
    let counter = Counter::default();
    let mut send = Send {
        delivery: &delivery,
        step: &step,
        prepared: "",
        key: &key,
    };
    let prepared = world.platform.prepare(send, &counter).await?;
    send.prepared = &prepared;
    let result = world.platform.send(send, &counter).await;
    refused(result, ErrorKind::Transient, Moment::Ambiguous)?;
    equal("files seen", world.seen_files().await.len(), 1)?;
    let confirmed = settle(&*world.platform, send).await?;
    let seen = world.seen().await;
    equal("files seen", world.seen_files().await.len(), 1)?;
    for confirmed in confirmed {
        let message = seen
            .iter()
            .find(|message| message.message_id == confirmed.message_id);
        holds(message.is_some(), format_args!("nobody sees {confirmed:?}"))?;
    }
    Ok(())
}

pub(super) async fn a_connection_closed_in_the_body_sent_nothing(
    world: &World<'_>,
) -> Result<(), Stop> {
    let size = BEYOND_BUFFERS.min(world.limits().await?.of("document"));
    let size = usize::try_from(size).map_err(Stop::fail)?;
    let (delivery, step, key) = prepared(world, sample::binary("data.bin", size)).await?;
    world.script(Fault::CloseDuringBody).await?;
    let result = world.attempt(&delivery, &step, &key).await?;
    refused(result, ErrorKind::Transient, Moment::NotSent)?;
    then_it_works(world, &delivery, &step).await
}

pub(super) async fn a_refusal_for_size_is_told(world: &World<'_>) -> Result<(), Stop> {
    let (delivery, step, key) = prepared(world, sample::binary("data.bin", 100_000)).await?;
    world.script(Fault::TooLarge).await?;
    let result = world.attempt(&delivery, &step, &key).await?;
    refused(result, ErrorKind::TooLarge, Moment::NotSent)?;
    then_it_works(world, &delivery, &step).await
}

/// Not delivered, and not to be sent again as if nothing had been seen.
fn undelivered(result: Result<Vec<Confirmed>, Error>) -> Result<(), Stop> {
    match result {
        Ok(confirmed) => Err(Stop::fail(format_args!("delivered: {confirmed:?}"))),
        Err(error) => holds(
            error.moment() != Moment::NotSent,
            format_args!("something may be seen: {}", chain(&error)),
        ),
    }
}

pub(super) async fn a_success_without_the_file_is_no_delivery(
    world: &World<'_>,
) -> Result<(), Stop> {
    let (delivery, step, key) = prepared(world, sample::binary("data.bin", 100)).await?;
    world.script(Fault::ForgetFiles).await?;
    undelivered(world.attempt(&delivery, &step, &key).await?)
}

pub(super) async fn an_answer_that_cannot_be_read_is_no_delivery(
    world: &World<'_>,
) -> Result<(), Stop> {
    let (delivery, step, key) = prepared(world, sample::binary("data.bin", 100)).await?;
    world.script(Fault::Gibberish).await?;
    undelivered(world.attempt(&delivery, &step, &key).await?)
}

pub(super) async fn bytes_that_cannot_be_read_show_nothing(world: &World<'_>) -> Result<(), Stop> {
    for readable in [0, 70_000, 199_999] {
        let file = sample::failing("data.bin", 200_000, readable);
        let (delivery, step, key) = prepared(world, file).await?;
        let result = world.attempt(&delivery, &step, &key).await?;
        refused(result, ErrorKind::Source, Moment::NotSent)?;
        world.nothing_is_seen().await?;
    }
    let (delivery, step, _) = prepared(world, sample::binary("data.bin", 200_000)).await?;
    then_it_works(world, &delivery, &step).await
}

pub(super) async fn bytes_that_end_early_show_nothing(world: &World<'_>) -> Result<(), Stop> {
    for readable in [0, 70_000, 199_999] {
        let file = sample::short("data.bin", 200_000, readable);
        let (delivery, step, key) = prepared(world, file).await?;
        let result = world.attempt(&delivery, &step, &key).await?;
        refused(result, ErrorKind::Source, Moment::NotSent)?;
        world.nothing_is_seen().await?;
    }
    Ok(())
}
