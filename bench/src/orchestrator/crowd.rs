//! (l) Concurrent chats: through the orchestrator, through a relay, and with the model directly.

use std::time::Instant;

use futures_util::future::join_all;
use serde_json::Value;

use super::fixture::{OrchestratorFixture, question_body};
use super::percentile_of;
use super::relay::RelayProcess;
use crate::harness::{to_millis, verdict_text};
use crate::print_line;

/// Concurrent chats, and turns of each: about a second for the orchestrator, ten for the relay.
const CHATS_AND_TURNS: [(usize, usize); 3] = [(1, 500), (50, 50), (200, 12)];

/// Measures every number of chats on every side.
pub(super) async fn run(fixture: &OrchestratorFixture) -> anyhow::Result<()> {
    let relay = match RelayProcess::start(&fixture.model.url()).await {
        Ok(relay) => Some(relay),
        Err(error) => {
            print_line(&format!("(l) the relay in Python is left out: {error:#}"));
            None
        }
    };
    print_line("(l) concurrent chats, aim 0 failed");
    for (chats, turns) in CHATS_AND_TURNS {
        let plain = question_body("lead", "hello");
        measure_side(fixture, "model", &fixture.direct(), &plain, chats, turns).await;
        let through = question_body("agent", "hello");
        measure_side(
            fixture,
            "orchestrator",
            &fixture.ours(),
            &through,
            chats,
            turns,
        )
        .await;
        if let Some(relay) = &relay {
            measure_side(fixture, "openai relay", relay.url(), &plain, chats, turns).await;
        }
    }
    print_line("");
    Ok(())
}

async fn measure_side(
    fixture: &OrchestratorFixture,
    name: &str,
    url: &str,
    body: &Value,
    chats: usize,
    turns: usize,
) {
    // One uncounted round of all chats opens the connections.
    join_all((0..chats).map(|_| fixture.run_turn(url, body))).await;
    let start = Instant::now();
    let all = join_all((0..chats).map(|_| async {
        let mut timings = Vec::with_capacity(turns);
        for _ in 0..turns {
            timings.push(fixture.run_turn(url, body).await);
        }
        timings
    }))
    .await;
    let elapsed = start.elapsed();
    // The model records requests. Over thousands of turns this would change the measured memory and time.
    fixture.model.clear_requests();
    // Failures are counted separately, because they are often faster than answers and would improve the percentiles.
    let (successes, failures): (Vec<_>, Vec<_>) =
        all.into_iter().flatten().partition(Result::is_ok);
    let mut times: Vec<f64> = successes
        .iter()
        .flatten()
        .map(|timing| to_millis(timing.whole))
        .collect();
    let rate =
        1_000.0 * f64::from(u32::try_from(times.len()).unwrap_or(u32::MAX)) / to_millis(elapsed);
    print_line(&format!(
        "  {chats:>3} chats  {name:<13} {rate:>8.0} turns/s, p50 {:>8.3} ms, p99 {:>8.3} ms, {} failed: {}",
        percentile_of(&mut times, 50),
        percentile_of(&mut times, 99),
        failures.len(),
        verdict_text(failures.is_empty())
    ));
    if let Some(Err(error)) = failures.first() {
        print_line(&format!("    failed: {error:#}"));
    }
}
