//! A link replaces a file that is not sent (platform-delivery 13).

use dray_conformance::{CaseEnd, expect_equal, expect_true};

use super::{CaseContext, sample};
use crate::delivery::{OutgoingFile, SendStep};

const SIGNED_URL: &str = "https://files.example/big.bin?sig=1";

const PREVIEW_URL: &str =
    "https://0123456789abcdef.preview.example/v/_a-b__C_d--E_x_0-/report~1~%20_1_.html";

/// Most bytes on the wire of a message without a file, with the set-up of its connection. The file is far larger.
const MAX_TEXT_BYTES: u64 = 256 * 1024;

/// Sends the link to a file, and checks that the file is neither sent nor confirmed.
async fn send_link(context: &CaseContext<'_>, file: OutgoingFile) -> Result<(), CaseEnd> {
    let delivery = context.delivery("", vec![file]);
    let step = SendStep::Link(format!(
        "big.bin (62 MB), available for 24 hours:\n{SIGNED_URL}"
    ));
    let before = context.fixture.received();
    let confirmed = context.attempt(&delivery, &step, &context.key()).await??;
    let received = context.fixture.received().saturating_sub(before);
    expect_true(
        received < MAX_TEXT_BYTES,
        format_args!("a link took {received} bytes"),
    )?;
    let files: Vec<_> = confirmed.iter().map(|part| part.file).collect();
    expect_equal("confirmed files", files, vec![None])?;
    expect_equal("visible files", context.visible_files().await.len(), 0)?;
    let visible = context.visible_messages().await;
    expect_equal("visible messages", visible.len(), 1)?;
    expect_true(
        visible
            .iter()
            .all(|message| message.text.contains(SIGNED_URL)),
        format_args!("the message has no link: {visible:?}"),
    )
}

pub(super) async fn a_link_arrives_without_its_file(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    send_link(context, sample::binary_file("big.bin", 1 << 20)).await
}

/// A preview is delivered as a link only: the file stays in the sandbox. The token in the link contains every character
/// that is markup on some platform; a token that is escaped or changed opens nothing.
pub(super) async fn the_link_of_a_preview_arrives_unchanged(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let delivery = context.delivery("", Vec::new());
    let step = SendStep::Link(format!(
        "report.html (12 KB), viewable until 2026-11-21 00:00 UTC (for 24 hours):\n{PREVIEW_URL}"
    ));
    let confirmed = context.attempt(&delivery, &step, &context.key()).await??;
    let files: Vec<_> = confirmed.iter().map(|part| part.file).collect();
    expect_equal("confirmed files", files, vec![None])?;
    expect_equal("visible files", context.visible_files().await.len(), 0)?;
    let visible = context.visible_messages().await;
    expect_equal("visible messages", visible.len(), 1)?;
    expect_true(
        visible
            .iter()
            .all(|message| message.text.contains(PREVIEW_URL)),
        format_args!("the message has no link as it was made: {visible:?}"),
    )
}

pub(super) async fn a_link_to_a_file_above_every_limit_arrives(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let limits = context.limits().await?;
    // The size exceeds the limit of every route. The routes are not sorted by their limits.
    let routes = limits.routes.iter().map(|(_, limit)| *limit);
    let file = OutgoingFile {
        size: routes.fold(limits.any, u64::max).saturating_add(1),
        // The source of the file fails, so that a platform that reads it is noticed.
        ..sample::failing_file("big.bin", 100, 0)
    };
    send_link(context, file).await
}
