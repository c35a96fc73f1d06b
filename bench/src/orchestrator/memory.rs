//! (m) Memory of clients that wait and of chats that run. The client and the model are in the same process, so that
//! the numbers are the most it can be.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::verdict;
use super::world::{World, question, script};
use crate::memory::status;
use crate::say;

/// Clients, or chats.
const MANY: usize = 200;
/// Chats, one after the other, before anything counts.
const WARM: usize = 20;
/// Rounds of chats. In the first ones the heap finds its size; the second half counts.
const ROUNDS: usize = 8;
/// Wait of the model before each piece, in milliseconds: a chat has twelve or so.
const SLOW: u64 = 100;
/// When all chats of a round are in the middle.
const MIDDLE: Duration = Duration::from_millis(700);
/// What memory may grow by in the second half of the rounds and still be flat.
const FLAT: u64 = 4 << 20;

/// Measures both.
pub(super) async fn run(world: &World) -> anyhow::Result<()> {
    say(&format!("(m) memory, {MANY} at once"));
    idle(world).await?;
    active(world).await
}

async fn idle(world: &World) -> anyhow::Result<()> {
    for _ in 0..WARM {
        world
            .ask(&world.ours(), &question("agent", "hello"))
            .await?;
    }
    world.model.forget();
    let before = status("VmRSS:")?;
    let mut clients = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        #[expect(
            clippy::disallowed_methods,
            reason = "the listener is ours, on loopback"
        )]
        let mut client = TcpStream::connect(world.address()).await?;
        client
            .write_all(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await?;
        let mut answer = [0; 4096];
        let read = client.read(&mut answer).await?;
        anyhow::ensure!(read > 0, "a client was turned away");
        clients.push(client);
    }
    let per = status("VmRSS:")?.saturating_sub(before) / MANY as u64;
    say(&format!("  {:>8} KiB per idle connection", per >> 10));
    drop(clients);
    Ok(())
}

async fn active(world: &World) -> anyhow::Result<()> {
    world.model.follow(script(SLOW)?);
    let (url, body) = (world.ours(), question("agent", "hello"));
    let before = status("VmRSS:")?;
    let mut after = Vec::with_capacity(ROUNDS);
    for round in 1..=ROUNDS {
        let chats = join_all((0..MANY).map(|_| world.ask(&url, &body)));
        let watch = async {
            tokio::time::sleep(MIDDLE).await;
            status("VmRSS:")
        };
        let (answers, middle) = tokio::join!(chats, watch);
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        world.model.forget();
        let (middle, now) = (middle?, status("VmRSS:")?);
        let per = middle.saturating_sub(before) / MANY as u64;
        say(&format!(
            "  {:>8} KiB per active chat in round {round}, {} KiB in all afterwards, {failed} failed",
            per >> 10,
            now >> 10
        ));
        after.push(now);
    }
    world.model.follow(script(0)?);
    let (first, last) = (after.get(ROUNDS / 2).copied(), after.last().copied());
    let grown = last
        .unwrap_or_default()
        .saturating_sub(first.unwrap_or_default());
    say(&format!(
        "  grown by {} KiB in the second half of the rounds, aim flat (at most {} KiB): {}\n",
        grown >> 10,
        FLAT >> 10,
        verdict(grown <= FLAT)
    ));
    Ok(())
}
