//! (k) What we add to the first token, to a turn, and to a call of a tool; one chat after the other.

use super::world::{OrchestratorFixture, TurnTiming, answered, question};
use super::{millis, percentile, verdict};
use crate::say;

/// Rounds that count, and those before that do not.
const ROUND_COUNT: usize = 500;
const WARM_UP_ROUNDS: usize = 50;
/// Aims for the middle of what we add, in milliseconds.
const FIRST_AIM: f64 = 2.0;
const TOOL_AIM: f64 = 3.0;

/// Measures both.
pub(super) async fn run(world: &OrchestratorFixture) -> anyhow::Result<()> {
    turns(world).await?;
    tools(world).await
}

async fn turns(world: &OrchestratorFixture) -> anyhow::Result<()> {
    let (direct, ours) = (world.direct(), world.ours());
    let (plain, through) = (question("lead", "hello"), question("agent", "hello"));
    let mut taken: Vec<(TurnTiming, TurnTiming)> = Vec::with_capacity(ROUND_COUNT);
    for round in 0..WARM_UP_ROUNDS + ROUND_COUNT {
        // Who goes first changes, so that neither always finds the caches that the other warmed.
        let pair = if round % 2 == 0 {
            let model = world.ask(&direct, &plain).await?;
            (model, world.ask(&ours, &through).await?)
        } else {
            let us = world.ask(&ours, &through).await?;
            (world.ask(&direct, &plain).await?, us)
        };
        if round >= WARM_UP_ROUNDS {
            taken.push(pair);
        }
    }
    world.model.forget();
    say(&format!(
        "(k) what the orchestrator adds, over {ROUND_COUNT} chats one after the other"
    ));
    let first = |took: &TurnTiming| millis(took.first);
    let whole = |took: &TurnTiming| millis(took.whole);
    let added = row("first token", &taken, first);
    say(&format!(
        "    aim at most {FIRST_AIM} ms at p50: {}",
        verdict(added <= FIRST_AIM)
    ));
    row("whole turn", &taken, whole);
    Ok(())
}

/// Prints a row and returns the median of what was added.
fn row(name: &str, taken: &[(TurnTiming, TurnTiming)], of: impl Fn(&TurnTiming) -> f64) -> f64 {
    let mut model: Vec<f64> = taken.iter().map(|(model, _)| of(model)).collect();
    let mut ours: Vec<f64> = taken.iter().map(|(_, ours)| of(ours)).collect();
    let mut added: Vec<f64> = taken
        .iter()
        .map(|(model, ours)| of(ours) - of(model))
        .collect();
    let (base, through) = (percentile(&mut model, 50), percentile(&mut ours, 50));
    let middle = percentile(&mut added, 50);
    say(&format!(
        "  {name:<12} model {base:>8.3} ms, ours {through:>8.3} ms, ratio {:>5.2}; added p50 {middle:>7.3} ms, p99 {:>7.3} ms",
        through / base,
        percentile(&mut added, 99)
    ));
    middle
}

async fn tools(world: &OrchestratorFixture) -> anyhow::Result<()> {
    let (direct, ours) = (world.direct(), world.ours());
    let (asked, after) = (question("lead", "find it"), answered());
    let through = question("agent", "find it");
    let mut added = Vec::with_capacity(ROUND_COUNT);
    for round in 0..WARM_UP_ROUNDS + ROUND_COUNT {
        let calls = world.ask(&direct, &asked).await?.whole;
        let tool = world.call().await?;
        let ends = world.ask(&direct, &after).await?.whole;
        let turn = world.ask(&ours, &through).await?.whole;
        if round >= WARM_UP_ROUNDS {
            added.push(millis(turn) - millis(calls + tool + ends));
        }
    }
    world.model.forget();
    let middle = percentile(&mut added, 50);
    say(&format!(
        "  {:<12} beside two calls of the model and one of the tool: added p50 {middle:>7.3} ms, p99 {:>7.3} ms",
        "tool call",
        percentile(&mut added, 99)
    ));
    say(&format!(
        "    aim at most {TOOL_AIM} ms at p50: {}\n",
        verdict(middle <= TOOL_AIM)
    ));
    Ok(())
}
