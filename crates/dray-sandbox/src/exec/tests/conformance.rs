//! The suite of all backends, over every shell and channel (sandbox-transfer R-17).

use super::world::{Tools, Way, World};
use crate::conformance::run_all;

async fn conforms(tools: Tools, way: Way) {
    let report = run_all(&World::new(tools, way)).await.unwrap();
    let skipped: &[&str] = if way == Way::Nobody || !rustix::process::geteuid().is_root() {
        &[]
    } else {
        &["what_the_user_may_not_touch_is_refused"]
    };
    assert_eq!(report.skipped, skipped, "{tools:?} {way:?}");
}

#[tokio::test]
async fn r_17_dash_is_a_sandbox_like_any_other() {
    conforms(Tools::Dash, Way::Pipe).await;
}

#[tokio::test]
async fn r_17_bash_is_a_sandbox_like_any_other() {
    conforms(Tools::Bash, Way::Shell).await;
}

#[tokio::test]
async fn r_17_busybox_is_a_sandbox_like_any_other() {
    conforms(Tools::BusyBox, Way::Pipe).await;
}

#[tokio::test]
async fn r_17_input_without_an_end_is_enough() {
    conforms(Tools::BusyBox, Way::Endless).await;
}

#[tokio::test]
async fn r_17_text_is_enough() {
    conforms(Tools::BusyBox, Way::Text).await;
}

#[tokio::test]
async fn r_17_short_arguments_and_short_answers_are_enough() {
    conforms(Tools::Dash, Way::Narrow).await;
}

#[tokio::test]
async fn r_17_a_terminal_is_enough() {
    conforms(Tools::Dash, Way::Terminal).await;
}

#[tokio::test]
async fn r_17_another_user_is_refused_what_is_not_theirs() {
    if rustix::process::geteuid().is_root() {
        conforms(Tools::Dash, Way::Nobody).await;
    } else {
        conforms(Tools::Dash, Way::Pipe).await;
    }
}
