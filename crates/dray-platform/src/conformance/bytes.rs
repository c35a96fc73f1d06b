//! Cases about bytes: users get exactly the bytes that were sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dray_conformance::{CaseEnd, expect_equal, expect_true};
use futures_util::future::{Either, select};

use super::expect::expect_error;
use super::watch::{MeteredSource, SentByteCounter};
use super::{CaseContext, sample};
use crate::delivery::{ByteSource, OutgoingFile, SendFlags};
use crate::error::{ErrorKind, SendOutcome};
use crate::platform::OutgoingDelivery;

/// Memory that one upload may use, for a file of any size.
const MAX_UPLOAD_MEMORY_BYTES: u64 = 16 << 20;

/// Size in bytes of a file with which an upload in memory is detected.
const LARGE_FILE_BYTES: u64 = 60 << 20;

/// Delivers one file to a new chat, and checks that it arrives.
async fn send_in_new_chat(
    context: &CaseContext<'_>,
    file: OutgoingFile,
    flags: SendFlags,
) -> Result<(), CaseEnd> {
    let context = context.with_new_chat().await;
    let name = file.name.clone();
    let delivery = OutgoingDelivery {
        flags,
        ..context.delivery("", vec![file])
    };
    context
        .arrives(&delivery)
        .await
        .map(|_| ())
        .map_err(|end| with_file_name(&name, end))
}

/// Adds the name of the file to a failure.
fn with_file_name(name: &str, end: CaseEnd) -> CaseEnd {
    match end {
        CaseEnd::Fail(reason) => CaseEnd::Fail(format!("{name:?}: {reason}")),
        skip @ CaseEnd::Skip(_) => skip,
    }
}

pub(super) async fn every_kind_arrives_byte_for_byte(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    for file in sample::every_kind() {
        send_in_new_chat(context, file, SendFlags::default()).await?;
    }
    Ok(())
}

pub(super) async fn every_kind_arrives_as_a_document(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let flags = SendFlags {
        as_document: true,
        ..SendFlags::default()
    };
    for file in sample::every_kind() {
        let delivery = OutgoingDelivery {
            flags,
            ..context.delivery("", vec![file.clone()])
        };
        for step in context.plan(&delivery).await? {
            expect_true(
                !step.is_lossy(),
                format_args!(
                    "{} as a document is promised to be exact: {step:?}",
                    file.name
                ),
            )?;
        }
        send_in_new_chat(context, file, flags).await?;
    }
    Ok(())
}

pub(super) async fn a_voice_message_arrives(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    let flags = SendFlags {
        as_voice: true,
        ..SendFlags::default()
    };
    // Only the first can be a voice message everywhere; the others must arrive in some other form.
    for file in [
        sample::opus_file("speech.ogg"),
        sample::mp3_file("song.mp3"),
        sample::png_file("picture.png", 64, 64, 1),
    ] {
        send_in_new_chat(context, file, flags).await?;
    }
    Ok(())
}

pub(super) async fn one_byte_and_odd_sizes_arrive(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    // One byte, and the sizes around a common buffer of 64 KiB.
    for size in [1, 65_535, 65_536, 65_537, 1 << 20] {
        send_in_new_chat(
            context,
            sample::binary_file("data.bin", size),
            SendFlags::default(),
        )
        .await?;
    }
    Ok(())
}

pub(super) async fn the_confirmed_file_is_the_file_that_arrived(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let delivery = context.delivery("", vec![sample::binary_file("data.bin", 70_000)]);
    for confirmed in context.arrives(&delivery).await? {
        expect_equal("confirmed file", confirmed.file, Some(0))?;
        if let Some(size) = confirmed.size {
            expect_equal("confirmed bytes", size, 70_000)?;
        }
    }
    Ok(())
}

pub(super) async fn a_known_file_id_saves_the_upload(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let delivery = context.delivery("", vec![sample::binary_file("data.bin", 70_000)]);
    let confirmed = context.arrives(&delivery).await?;
    let id = confirmed.into_iter().map(|file| file.file_id).next();
    let Some(id) = id.filter(|id| !id.is_empty()) else {
        return Err(CaseEnd::Skip("this platform gives no file ids"));
    };
    let context = context.with_new_chat().await;
    let (mut repeated, read) = metered_file(sample::binary_file("data.bin", 70_000));
    repeated.file_id = Some(id);
    context
        .arrives(&context.delivery("", vec![repeated]))
        .await?;
    expect_equal("bytes read again", read.load(Ordering::SeqCst), 0)?;

    // A new chat, because the first one shows the file already.
    let context = context.with_new_chat().await;
    let mut stale = sample::binary_file("data.bin", 70_000);
    stale.file_id = Some("unknown-id".to_owned());
    let delivery = context.delivery("", vec![stale]);
    let step = context.only_step(&delivery).await?;
    let result = context.attempt(&delivery, &step, &context.key()).await?;
    expect_error(result, ErrorKind::StaleFileId, SendOutcome::NotSent)?;
    context.expect_nothing_visible().await
}

pub(super) async fn an_empty_file_is_explained_or_delivered(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let delivery = context.delivery("", vec![sample::memory_file("empty.txt", "")]);
    if context.traits.empty_files {
        return context.arrives(&delivery).await.map(|_| ());
    }
    let before = context.fixture.received();
    let step = context.only_step(&delivery).await?;
    let result = context.attempt(&delivery, &step, &context.key()).await?;
    expect_error(result, ErrorKind::Empty, SendOutcome::NotSent)?;
    // The refusal must cost no upload.
    expect_equal(
        "bytes that were sent",
        context.fixture.received() - before,
        0,
    )?;
    context.expect_nothing_visible().await
}

/// Names that are legal in a file system, and hard on a header, a form or a URL.
pub(super) async fn names_arrive_and_break_nothing(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    for name in [
        "plain.bin",
        "два слова.bin",
        "报告 📄.bin",
        "a;b=c, d'e&f%41.bin",
        "quo\"ted.bin",
        "back\\slash.bin",
        "line\r\nContent-Type: text/html\r\n\r\nbreak.bin",
        "no-extension",
    ] {
        let context = context.with_new_chat().await;
        let delivery = context.delivery("", vec![sample::binary_file(name, 300)]);
        context
            .arrives(&delivery)
            .await
            .map_err(|end| with_file_name(name, end))?;
        for name_shown in context
            .visible_files()
            .await
            .into_iter()
            .filter_map(|file| file.name)
        {
            expect_true(
                // A line break in a name would allow headers of the agent's choice.
                !name_shown.contains(['\r', '\n']),
                format_args!("{name_shown:?} has more than one line"),
            )?;
            // Platforms write these inside quotes in different ways; the checks above show that they have no effect.
            if !name.contains(['"', '\\', '\n', '%']) {
                expect_equal("name", name_shown.as_str(), name)?;
            }
        }
    }
    Ok(())
}

fn metered_file(mut file: OutgoingFile) -> (OutgoingFile, Arc<AtomicU64>) {
    let read = Arc::<AtomicU64>::default();
    let source: Arc<dyn ByteSource> = Arc::new(MeteredSource {
        inner: Arc::clone(&file.source),
        read: Arc::clone(&read),
    });
    file.source = source;
    (file, read)
}

pub(super) async fn a_large_file_is_not_held_in_memory(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let size = LARGE_FILE_BYTES.min(context.limits().await?.of(crate::Route::Document));
    if size <= MAX_UPLOAD_MEMORY_BYTES + (MAX_UPLOAD_MEMORY_BYTES / 4) {
        return Err(CaseEnd::Skip("this platform takes no file that large"));
    }
    let size = usize::try_from(size).map_err(CaseEnd::fail)?;
    let (file, read) = metered_file(sample::binary_file("large.bin", size));
    let delivery = context.delivery("", vec![file]);
    let before = context.fixture.received();
    let max_in_flight = AtomicU64::new(0);
    // Bytes read from the source but not yet received by the server are in memory, or in buffers of the system.
    let watching = std::pin::pin!(async {
        loop {
            let received = context.fixture.received() - before;
            let in_flight = read.load(Ordering::SeqCst).saturating_sub(received);
            max_in_flight.fetch_max(in_flight, Ordering::SeqCst);
            // Yields to the upload, which runs in the same task.
            tokio::task::yield_now().await;
        }
    });
    let sending = std::pin::pin!(context.arrives(&delivery));
    match select(sending, watching).await {
        Either::Left((result, _)) => result.map(|_| ())?,
        // The watching loop never ends.
        Either::Right(((), _)) => {}
    }
    let max_in_flight = max_in_flight.load(Ordering::SeqCst);
    expect_true(
        max_in_flight <= MAX_UPLOAD_MEMORY_BYTES,
        format_args!("{max_in_flight} bytes of {size} were read and had not arrived"),
    )
}

pub(super) async fn the_sent_bytes_are_reported(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    const FILE_BYTES: usize = 900_000;
    let delivery = context.delivery("", vec![sample::binary_file("data.bin", FILE_BYTES)]);
    let step = context.only_step(&delivery).await?;
    let counter = SentByteCounter::default();
    context
        .attempt_counting_bytes(&delivery, &step, &context.key(), &counter)
        .await??;
    let total = usize::try_from(counter.total()).map_err(CaseEnd::fail)?;
    // Form fields and headers may be counted too, and so may the base64 of mail.
    expect_true(
        (FILE_BYTES..FILE_BYTES * 3 / 2).contains(&total),
        format_args!("{total} bytes were reported for {FILE_BYTES}"),
    )
}
