//! Chats through the orchestrator, compared with requests to the model directly.
//!
//! (k) the time that the orchestrator adds to the first token, to a turn and to a call of a tool, (l) 1, 50 and 200
//! concurrent chats, also compared with a relay of `aiohttp` and the `openai` package, (m) memory of clients that wait
//! and of 200 and 1,000 chats that run. The model follows a script and responds immediately; everything goes over
//! loopback HTTP. The relay is a separate process, and memory is measured in one with NATS beside it. The last row
//! needs 5,000 open files (`ulimit -n`).

mod crowd;
mod fixture;
mod latency;
mod memory;
mod relay;

use dray_testkit::nats::NatsServer;
use fixture::OrchestratorFixture;

/// Measures latency and crowds, and memory in a child process, whose output it prints.
pub(crate) async fn run() -> anyhow::Result<()> {
    let fixture = OrchestratorFixture::start(None).await?;
    latency::run(&fixture).await?;
    crowd::run(&fixture).await?;
    fixture.stop();
    // Memory that crowds leave in the heap would hide that of one chat, and the heap of 16,000 chats is slower.
    let status = tokio::process::Command::new(std::env::current_exe()?)
        .arg("--measure-chat-memory")
        .status()
        .await?;
    anyhow::ensure!(status.success(), "the measuring process failed");
    Ok(())
}

/// Measures the memory of clients and chats in this process. The bus is NATS: one inside the process would keep the
/// events of turns, and their ids for two minutes.
pub(crate) async fn measure_chat_memory() -> anyhow::Result<()> {
    let nats = NatsServer::start();
    let fixture = OrchestratorFixture::start(Some(&nats)).await?;
    memory::run(&fixture).await?;
    fixture.stop();
    Ok(())
}

/// The percentile of the values; 0 without values.
fn percentile_of(values: &mut [f64], percent: usize) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    // The hundredth percentile would be one beyond the end.
    let index = (values.len() * percent / 100).min(last);
    values.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::percentile_of;

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let mut values: Vec<f64> = (0..100_u8).rev().map(f64::from).collect();
        assert!((percentile_of(&mut values, 50) - 50.0).abs() < f64::EPSILON);
        assert!((percentile_of(&mut values, 99) - 99.0).abs() < f64::EPSILON);
        assert!((percentile_of(&mut values, 100) - 99.0).abs() < f64::EPSILON);
    }

    #[test]
    fn no_measurements_give_zero() {
        assert!(percentile_of(&mut [], 50).abs() < f64::EPSILON);
    }
}
