//! (g) A file of a container shown to a person: `send_file` to a fake platform, against `docker cp` and `curl -F` to
//! the same fake.

use dray_proto::v1;
use tokio::process::Command;

use super::docker::{RoundCounter, fill_directory};
use super::fixture::{
    TransferFixture, docker_client, path_text, run_command as run_program, to_comparison,
};
use crate::harness::side_by_side;
use crate::print_line;

/// Milliseconds that one request for an outcome waits.
const WAIT_MS: u64 = 20_000;

/// Sends a file and waits until the platform has confirmed it.
async fn send_and_confirm(
    fixture: &TransferFixture<'_>,
    path: &str,
    chat: i64,
) -> anyhow::Result<()> {
    let request = v1::SendFileRequested {
        paths: vec![path.as_bytes().to_vec()],
        sandbox: format!("docker:{}", fixture.container.id()),
        target: Some(v1::ChatTarget {
            platform: "telegram".to_owned(),
            chat: chat.to_string(),
            ..v1::ChatTarget::default()
        }),
        ..v1::SendFileRequested::default()
    };
    let accepted = fixture.bus().call(&fixture.meta(), &request).await?;
    let request = v1::DeliveryOutcomeRequest {
        delivery_id: accepted.delivery_id,
        wait_ms: WAIT_MS,
    };
    loop {
        let report = fixture.bus().call(&fixture.meta(), &request).await?;
        if report.finished {
            anyhow::ensure!(report.success, "{report:?}");
            return Ok(());
        }
    }
}

/// Measures both sides, and checks that the chats got every file completely.
pub(super) async fn run(
    fixture: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let directory = "/workspace/sent";
    fill_directory(fixture, directory, size, rounds).await;
    let (theirs, ours) = (RoundCounter::default(), RoundCounter::default());
    let target = fixture.local("sent");
    let (theirs_chat, ours_chat) = (fixture.telegram.chat(), fixture.telegram.chat());
    let token = fixture.telegram.token();
    let url = format!(
        "{}/bot{}/sendDocument",
        fixture.telegram.url(),
        token.expose()
    );
    let form = format!("document=@{}", path_text(&target)?);
    let times = side_by_side(
        rounds,
        || {
            let source = format!("{}:{directory}/{}", fixture.container.id(), theirs.next());
            let (target, form, url) = (&target, &form, &url);
            async move {
                let mut command = docker_client(fixture.engine);
                command.args(["cp", &source]).arg(target);
                run_program(command).await?;
                let mut command = Command::new("curl");
                command.args(["-sf", "-F", &format!("chat_id={theirs_chat}")]);
                command.args(["-F", form, url]);
                run_program(command).await
            }
        },
        || {
            let path = format!("{directory}/{}", ours.next());
            async move { send_and_confirm(fixture, &path, ours_chat).await }
        },
    )
    .await?;
    for chat in [theirs_chat, ours_chat] {
        let messages = fixture.telegram.visible_messages(chat);
        let complete = messages
            .iter()
            .filter_map(|message| message.file.as_ref())
            .filter(|file| file.size == size)
            .count();
        // One file for each measured round, and one for the round that is not measured.
        anyhow::ensure!(complete == rounds + 1, "{complete} files are in the chat");
    }
    fixture.container.sh(&format!("rm -rf {directory}"));
    let name = format!(
        "(g) send_file of {size} B from a container to a fake platform, {}",
        fixture.proof.label()
    );
    print_line(&to_comparison(name, "docker cp, then curl -F", times).to_string());
    Ok(())
}
