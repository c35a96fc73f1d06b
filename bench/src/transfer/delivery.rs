//! (g) A file of a container shown to a person: `send_file` to a fake platform, against `docker cp` and `curl -F` to
//! the same fake.

use dray_proto::v1;
use tokio::process::Command;

use super::docker::{RoundCounter, fill_directory};
use super::world::{
    TransferFixture, docker_client, path_text, run_command as run_program, to_comparison,
};
use crate::harness::side_by_side;
use crate::print_line;

/// Milliseconds that one question after an outcome waits.
const WAIT_MS: u64 = 20_000;

/// Sends a file and waits until the platform confirmed it.
async fn send_and_confirm(
    world: &TransferFixture<'_>,
    path: &str,
    chat: i64,
) -> anyhow::Result<()> {
    let request = v1::SendFileRequested {
        paths: vec![path.as_bytes().to_vec()],
        sandbox: format!("docker:{}", world.container.id()),
        target: Some(v1::ChatTarget {
            platform: "telegram".to_owned(),
            chat: chat.to_string(),
            ..v1::ChatTarget::default()
        }),
        ..v1::SendFileRequested::default()
    };
    let accepted = world.bus().call(&world.meta(), &request).await?;
    let request = v1::DeliveryOutcomeRequest {
        delivery_id: accepted.delivery_id,
        wait_ms: WAIT_MS,
    };
    loop {
        let report = world.bus().call(&world.meta(), &request).await?;
        if report.finished {
            anyhow::ensure!(report.success, "{report:?}");
            return Ok(());
        }
    }
}

/// Measures both sides, and checks that the chats have every file in full.
pub(super) async fn run(
    world: &TransferFixture<'_>,
    size: u64,
    rounds: usize,
) -> anyhow::Result<()> {
    let folder = "/workspace/sent";
    fill_directory(world, folder, size, rounds).await;
    let (theirs, ours) = (RoundCounter::default(), RoundCounter::default());
    let target = world.local("sent");
    let (theirs_chat, ours_chat) = (world.telegram.chat(), world.telegram.chat());
    let token = world.telegram.token();
    let url = format!(
        "{}/bot{}/sendDocument",
        world.telegram.url(),
        token.expose()
    );
    let form = format!("document=@{}", path_text(&target)?);
    let times = side_by_side(
        rounds,
        || {
            let source = format!("{}:{folder}/{}", world.container.id(), theirs.next());
            let (target, form, url) = (&target, &form, &url);
            async move {
                let mut command = docker_client(world.engine);
                command.args(["cp", &source]).arg(target);
                run_program(command).await?;
                let mut command = Command::new("curl");
                command.args(["-sf", "-F", &format!("chat_id={theirs_chat}")]);
                command.args(["-F", form, url]);
                run_program(command).await
            }
        },
        || {
            let path = format!("{folder}/{}", ours.next());
            async move { send_and_confirm(world, &path, ours_chat).await }
        },
    )
    .await?;
    for chat in [theirs_chat, ours_chat] {
        let messages = world.telegram.seen(chat);
        let whole = messages
            .iter()
            .filter_map(|message| message.file.as_ref())
            .filter(|file| file.size == size)
            .count();
        // Confirmed by the fake platform, and one more for the round that does not count.
        anyhow::ensure!(whole == rounds + 1, "{whole} files are in the chat");
    }
    world.container.sh(&format!("rm -rf {folder}"));
    let name = format!(
        "(g) send_file of {size} B from a container to a fake platform, {}",
        world.proof.words()
    );
    print_line(&to_comparison(name, "docker cp, then curl -F", times).to_string());
    Ok(())
}
