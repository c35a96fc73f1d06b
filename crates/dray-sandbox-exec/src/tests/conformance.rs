//! The conformance suite of all backends, over every shell and channel (sandbox-transfer R-17).

use dray_sandbox_conformance::{CONFORMANCE_CASES, LIVE_OUTPUT_CASES, run_cases};

use super::fixture::{ChannelForm, ExecFixture, ToolSet};

/// Cases of many mebibytes. Over channels with small limits these would take hundreds of commands, so they run over the
/// others; `channels` tests how files are split into chunks and ranges.
const BULK_CASES: [&str; 8] = [
    "five_mebibytes_come_back_by_every_transport",
    "a_file_that_shrinks_is_never_read_short_without_an_error",
    "a_file_that_grows_is_cut_or_refused",
    "a_file_that_is_rewritten_keeps_its_length",
    "a_file_that_is_removed_is_whole_or_refused",
    "a_large_file_comes_out_with_its_proof",
    "a_range_is_that_part_of_the_file",
    "a_view_of_a_file_that_changed_breaks_off",
];

async fn conforms(tools: ToolSet, form: ChannelForm) {
    let little = matches!(form, ChannelForm::Narrow | ChannelForm::Terminal);
    let asked = |name: &str| !little || !BULK_CASES.contains(&name);
    let cases: Vec<_> = CONFORMANCE_CASES
        .iter()
        .copied()
        .filter(|(name, _)| asked(name))
        .collect();
    assert_eq!(
        cases.len() + if little { BULK_CASES.len() } else { 0 },
        CONFORMANCE_CASES.len()
    );
    let report = run_cases(&ExecFixture::new(tools, form), &cases)
        .await
        .unwrap();
    let mut skipped = if form == ChannelForm::Nobody || !rustix::process::geteuid().is_root() {
        Vec::new()
    } else {
        vec!["access_without_permission_is_refused"]
    };
    if !form.has_live_output() {
        skipped.extend(LIVE_OUTPUT_CASES);
    }
    assert_eq!(report.skipped, skipped, "{tools:?} {form:?}");
}

#[tokio::test]
async fn r_17_a_sandbox_with_dash_passes_the_conformance_suite() {
    conforms(ToolSet::Dash, ChannelForm::Pipe).await;
}

#[tokio::test]
async fn r_17_a_sandbox_with_bash_passes_the_conformance_suite() {
    conforms(ToolSet::Bash, ChannelForm::Shell).await;
}

#[tokio::test]
async fn r_17_a_sandbox_with_busybox_passes_the_conformance_suite() {
    conforms(ToolSet::BusyBox, ChannelForm::Pipe).await;
}

#[tokio::test]
async fn r_17_a_channel_whose_input_has_no_end_passes_the_conformance_suite() {
    conforms(ToolSet::BusyBox, ChannelForm::Endless).await;
}

#[tokio::test]
async fn r_17_a_channel_of_text_passes_the_conformance_suite() {
    conforms(ToolSet::BusyBox, ChannelForm::Text).await;
}

#[tokio::test]
async fn r_17_a_channel_with_short_arguments_and_output_passes_the_conformance_suite() {
    conforms(ToolSet::Dash, ChannelForm::Narrow).await;
}

#[tokio::test]
async fn r_17_a_terminal_passes_the_conformance_suite() {
    conforms(ToolSet::Dash, ChannelForm::Terminal).await;
}

#[tokio::test]
async fn r_17_another_user_gets_no_access_to_foreign_files() {
    if rustix::process::geteuid().is_root() {
        conforms(ToolSet::Dash, ChannelForm::Nobody).await;
    } else {
        conforms(ToolSet::Dash, ChannelForm::Pipe).await;
    }
}
