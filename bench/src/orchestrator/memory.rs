//! (m) Memory of clients that wait and of chats that run. The client and the model are in the same process, so the
//! numbers are upper bounds.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::fixture::{OrchestratorFixture, model_script, question_body};
use crate::harness::verdict_text;
use crate::memory::process_status;
use crate::print_line;

/// Connections that are open, or chats that run concurrently.
const CLIENT_COUNT: usize = 200;
/// Chats of the large crowd that run concurrently. All sides are in this process, so each needs four open files.
pub(super) const CROWD_COUNT: usize = 1_000;
/// Uncounted chats before the measurement, one after the other.
const WARM_UP_CHATS: usize = 20;
/// Rounds of chats. The heap reaches its size within about eight rounds, so only the second half counts.
const ROUND_COUNT: usize = 16;
/// Delay of the model before each chunk, in milliseconds. A chat has about twelve chunks.
const CHUNK_DELAY_MS: u64 = 100;
/// Time at which all chats of a round are in the middle.
const MIDDLE_DELAY: Duration = Duration::from_millis(700);
/// Largest growth of memory in the second half of the rounds that counts as constant.
const MAX_GROWTH_BYTES: u64 = 4 << 20;

/// Measures idle connections and active chats.
pub(super) async fn run(fixture: &OrchestratorFixture) -> anyhow::Result<()> {
    print_line(&format!("(m) memory, {CLIENT_COUNT} concurrent clients"));
    measure_idle_clients(fixture).await?;
    measure_active_chats(fixture, CLIENT_COUNT).await?;
    print_line(&format!("(m) memory, {CROWD_COUNT} concurrent chats"));
    measure_active_chats(fixture, CROWD_COUNT).await
}

async fn measure_idle_clients(fixture: &OrchestratorFixture) -> anyhow::Result<()> {
    for _ in 0..WARM_UP_CHATS {
        fixture
            .run_turn(&fixture.ours(), &question_body("agent", "hello"))
            .await?;
    }
    fixture.model.clear_requests();
    let before = process_status("VmRSS:")?;
    let mut clients = Vec::with_capacity(CLIENT_COUNT);
    for _ in 0..CLIENT_COUNT {
        #[expect(
            clippy::disallowed_methods,
            reason = "the listener of this process, on loopback"
        )]
        let mut client = TcpStream::connect(fixture.address()).await?;
        client
            .write_all(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await?;
        let mut answer = [0; 4096];
        // One request, so that the server has allocated everything for the connection.
        let read = client.read(&mut answer).await?;
        anyhow::ensure!(read > 0, "a client was refused");
        clients.push(client);
    }
    let bytes_per_client = process_status("VmRSS:")?.saturating_sub(before) / CLIENT_COUNT as u64;
    print_line(&format!(
        "  {:>8} KiB per idle connection",
        bytes_per_client >> 10
    ));
    // The connections stay open until here.
    drop(clients);
    Ok(())
}

async fn measure_active_chats(
    fixture: &OrchestratorFixture,
    chat_count: usize,
) -> anyhow::Result<()> {
    fixture.model.set_script(model_script(CHUNK_DELAY_MS)?);
    let (url, body) = (fixture.ours(), question_body("agent", "hello"));
    let before = process_status("VmRSS:")?;
    let (mut after, mut all_failed) = (Vec::with_capacity(ROUND_COUNT), 0);
    for round in 1..=ROUND_COUNT {
        let chats = join_all((0..chat_count).map(|_| fixture.run_turn(&url, &body)));
        let read_memory = async {
            tokio::time::sleep(MIDDLE_DELAY).await;
            process_status("VmRSS:")
        };
        // Memory is read while all chats are in the middle of their answers.
        let (answers, middle) = tokio::join!(chats, read_memory);
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        all_failed += failed;
        fixture.model.clear_requests();
        let (middle, now) = (middle?, process_status("VmRSS:")?);
        let bytes_per_chat = middle.saturating_sub(before) / chat_count as u64;
        print_line(&format!(
            "  {:>8} KiB per active chat in round {round}, {} KiB in all afterwards, {failed} failed",
            bytes_per_chat >> 10,
            now >> 10
        ));
        after.push(now);
    }
    fixture.model.set_script(model_script(0)?);
    let (first, last) = (after.get(ROUND_COUNT / 2).copied(), after.last().copied());
    let growth_bytes = last
        .unwrap_or_default()
        .saturating_sub(first.unwrap_or_default());
    print_line(&format!(
        "  grown by {} KiB in the second half of the rounds, aim flat (at most {} KiB) and none failed: {}\n",
        growth_bytes >> 10,
        MAX_GROWTH_BYTES >> 10,
        verdict_text(growth_bytes <= MAX_GROWTH_BYTES && all_failed == 0)
    ));
    Ok(())
}
