//! (l) Concurrent chats: through the orchestrator, through a relay, and with the model directly.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;

use super::fixture::{OrchestratorFixture, question_body};
use super::percentile_of;
use super::relay::RelayProcess;
use crate::harness::{to_millis, verdict_text};
use crate::print_line;

/// Concurrent chats, and turns of each in all rounds: about a second for the orchestrator, ten for the relay.
const CHATS_AND_TURNS: [(usize, usize); 3] = [(1, 500), (50, 50), (200, 12)];
/// Rounds into which the turns are divided. All sides run in each of them, and another one begins.
const ROUND_COUNT: usize = 3;

/// One side, and what was measured so far.
struct CrowdSide<'a> {
    name: &'static str,
    url: String,
    body: &'a Value,
    /// Times of the turns that succeeded, in milliseconds. Failures are counted separately, because they are often
    /// faster than answers and would improve the percentiles.
    times: Vec<f64>,
    failures: Vec<anyhow::Error>,
    elapsed: Duration,
}

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
    let plain = question_body("lead", "hello");
    let through = question_body("agent", "hello");
    for (chats, turns) in CHATS_AND_TURNS {
        let mut sides = vec![
            CrowdSide::new("model", fixture.direct(), &plain),
            CrowdSide::new("orchestrator", fixture.ours(), &through),
        ];
        if let Some(relay) = &relay {
            sides.push(CrowdSide::new(
                "openai relay",
                relay.url().to_owned(),
                &plain,
            ));
        }
        for _ in 0..ROUND_COUNT {
            for side in &mut sides {
                side.measure(fixture, chats, turns / ROUND_COUNT).await;
            }
            // The order changes, so that none always runs on a machine that another one has just warmed or filled.
            sides.rotate_left(1);
        }
        // The rows keep their order for any number of sides.
        let count = sides.len();
        sides.rotate_right(ROUND_COUNT % count);
        for side in sides {
            side.print(chats);
        }
    }
    print_line("");
    Ok(())
}

impl<'a> CrowdSide<'a> {
    const fn new(name: &'static str, url: String, body: &'a Value) -> Self {
        Self {
            name,
            url,
            body,
            times: Vec::new(),
            failures: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    /// Runs this many turns of each chat.
    async fn measure(&mut self, fixture: &OrchestratorFixture, chats: usize, turns: usize) {
        let (url, body) = (self.url.as_str(), self.body);
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
        self.elapsed += start.elapsed();
        // The model records requests. Over thousands of turns this would change the measured memory and time.
        fixture.model.clear_requests();
        for turn in all.into_iter().flatten() {
            match turn {
                Ok(timing) => self.times.push(to_millis(timing.whole)),
                Err(error) => self.failures.push(error),
            }
        }
    }

    fn print(mut self, chats: usize) {
        let count = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        let rate = 1_000.0 * f64::from(count) / to_millis(self.elapsed);
        let name = self.name;
        print_line(&format!(
            "  {chats:>3} chats  {name:<13} {rate:>8.0} turns/s, p50 {:>8.3} ms, p99 {:>8.3} ms, {} failed: {}",
            percentile_of(&mut self.times, 50),
            percentile_of(&mut self.times, 99),
            self.failures.len(),
            verdict_text(self.failures.is_empty())
        ));
        if let Some(error) = self.failures.first() {
            print_line(&format!("    failed: {error:#}"));
        }
    }
}
