//! Cases about several files: none is lost, and their order is kept.

use dray_conformance::{CaseEnd, expect_equal, expect_true};

use super::{CaseContext, SeenFile, sample};
use crate::delivery::OutgoingFile;

/// The digests of the `visible` files that are among `files`, in visible order.
fn order_of(visible: &[SeenFile], files: &[OutgoingFile]) -> Vec<String> {
    visible
        .iter()
        // Other files are allowed in between: only the order within a kind is promised.
        .filter(|visible| files.iter().any(|file| file.sha256 == visible.sha256))
        .map(|visible| visible.sha256.to_hex())
        .collect()
}

fn file_digests(files: &[OutgoingFile]) -> Vec<String> {
    files.iter().map(|file| file.sha256.to_hex()).collect()
}

fn picture_files(count: u64) -> Vec<OutgoingFile> {
    (0..count)
        .map(|number| sample::png_file(&format!("{number}.png"), 64, 64, number))
        .collect()
}

fn document_files(count: usize) -> Vec<OutgoingFile> {
    (0..count)
        .map(|number| sample::binary_file(&format!("{number}.bin"), 100 + number))
        .collect()
}

pub(super) async fn every_file_is_planned_once(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    let limits = context.limits().await?;
    for message in ["", "words"] {
        let mut files = sample::every_kind();
        // Every kind twice, so that each can be grouped.
        files.extend(sample::every_kind());
        let count = files.len();
        let delivery = context.delivery(message, files);
        let steps = context.platform.plan(&delivery, &limits);
        let mut planned: Vec<usize> = steps
            .iter()
            .flat_map(|step| step.files().to_vec())
            .collect();
        planned.sort_unstable();
        expect_equal("files", planned, (0..count).collect::<Vec<_>>())?;
        for step in &steps {
            expect_true(
                step.files().len() <= limits.per_message,
                format_args!("too many files in {step:?}"),
            )?;
        }
        // The message is on exactly one step: a repeated caption would be shown twice.
        let texts = steps.iter().filter(|step| !step.text().is_empty()).count();
        expect_equal("texts", texts, usize::from(!message.is_empty()))?;
    }
    Ok(())
}

pub(super) async fn files_of_a_kind_keep_their_order(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let (pictures, documents) = (picture_files(3), document_files(3));
    let songs = vec![
        sample::mp3_file("b.mp3"),
        sample::memory_file(
            "a.mp3",
            b"ID3\x04\0\0\0\0\0\0\xFF\xFB\x90\x64second".as_slice(),
        ),
    ];
    // The kinds are interleaved, so that grouping by kind has to move files past each other.
    let mut files = Vec::new();
    for index in 0..3 {
        files.extend(documents.get(index).cloned());
        files.extend(pictures.get(index).cloned());
        files.extend(songs.get(index).cloned());
    }
    context.arrives(&context.delivery("words", files)).await?;
    let visible = context.visible_files().await;
    for group in [&pictures, &documents, &songs] {
        expect_equal("order", order_of(&visible, group), file_digests(group))?;
    }
    Ok(())
}

pub(super) async fn more_pictures_than_fit_one_message_arrive(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    // The smallest album, the largest of most platforms, one above it, and more than two of them.
    for count in [2, 10, 11, 23] {
        let context = context.with_new_chat().await;
        let pictures = picture_files(count);
        let delivery = context.delivery("words", pictures.clone());
        context.arrives(&delivery).await?;
        let visible = context.visible_files().await;
        expect_equal(
            "order",
            order_of(&visible, &pictures),
            file_digests(&pictures),
        )?;
    }
    Ok(())
}

pub(super) async fn a_file_that_is_too_large_is_left_out_and_the_others_arrive(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    // The limits are lowered here, because a case cannot upload a file above real limits.
    let limits = context.limits().await?.at_most(1000);
    let files = vec![
        sample::binary_file("small.bin", 1000),
        sample::binary_file("large.bin", 1001),
        sample::png_file("small.png", 64, 64, 1),
    ];
    let delivery = context.delivery("words", files.clone());
    let steps = context.platform.plan(&delivery, &limits);
    let mut planned: Vec<usize> = steps
        .iter()
        .flat_map(|step| step.files().to_vec())
        .collect();
    planned.sort_unstable();
    expect_equal("files", planned, vec![0, 2])?;
    for step in &steps {
        context.attempt(&delivery, step, &context.key()).await??;
    }
    let visible = context.visible_files().await;
    expect_equal("visible files", order_of(&visible, &files).len(), 2)
}

pub(super) async fn two_equal_deliveries_are_both_shown(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    // Two deliveries with equal files are separate, so they must not be merged.
    let delivery = context.delivery("", vec![sample::binary_file("data.bin", 100)]);
    context.deliver(&delivery).await?;
    context.deliver(&delivery).await?;
    expect_equal("visible files", context.visible_files().await.len(), 2)
}
