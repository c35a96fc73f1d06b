//! (k) The time that the orchestrator adds to the first token, to a turn, and to a call of a tool; one chat after the
//! other.

use serde_json::Value;

use super::fixture::{OrchestratorFixture, TurnTiming, question_body};
use super::percentile_of;
use crate::harness::{to_millis, verdict_text};
use crate::print_line;

/// Measured rounds.
const ROUND_COUNT: usize = 500;
/// Rounds before the measurement, which are not counted.
const WARM_UP_ROUNDS: usize = 50;
/// Target for the median of the time added to the first token, in milliseconds.
const FIRST_TOKEN_TARGET: f64 = 2.0;
/// Target for the median of the time added to a call of a tool, in milliseconds.
const TOOL_TARGET: f64 = 3.0;

/// Measures plain turns and turns with one call of a tool.
pub(super) async fn run(fixture: &OrchestratorFixture) -> anyhow::Result<()> {
    measure_turns(fixture).await?;
    measure_tools(fixture).await
}

async fn measure_turns(fixture: &OrchestratorFixture) -> anyhow::Result<()> {
    let (direct, ours) = (fixture.direct(), fixture.ours());
    let through = question_body("agent", "hello");
    let [plain] = model_requests(fixture, &through).await?;
    let mut timings: Vec<(TurnTiming, TurnTiming)> = Vec::with_capacity(ROUND_COUNT);
    for round in 0..WARM_UP_ROUNDS + ROUND_COUNT {
        // The order changes, so that neither always profits from the caches of the other one.
        let pair = if round % 2 == 0 {
            let model = fixture.run_turn(&direct, &plain).await?;
            (model, fixture.run_turn(&ours, &through).await?)
        } else {
            let turn = fixture.run_turn(&ours, &through).await?;
            (fixture.run_turn(&direct, &plain).await?, turn)
        };
        if round >= WARM_UP_ROUNDS {
            timings.push(pair);
        }
    }
    fixture.model.clear_requests();
    print_line(&format!(
        "(k) time that the orchestrator adds, over {ROUND_COUNT} chats one after the other"
    ));
    let first = |timing: &TurnTiming| to_millis(timing.first);
    let whole = |timing: &TurnTiming| to_millis(timing.whole);
    let added = print_row("first token", &timings, first);
    print_line(&format!(
        "    aim at most {FIRST_TOKEN_TARGET} ms at p50: {}",
        verdict_text(added <= FIRST_TOKEN_TARGET)
    ));
    print_row("whole turn", &timings, whole);
    Ok(())
}

/// The bodies that the model receives from the orchestrator in one turn with `question`.
///
/// The turns without the orchestrator send the same bodies. The declarations of the agent's tools are most of a body, and
/// the time in which the model reads them is not time that the orchestrator adds.
async fn model_requests<const COUNT: usize>(
    fixture: &OrchestratorFixture,
    question: &Value,
) -> anyhow::Result<[Value; COUNT]> {
    fixture.model.clear_requests();
    fixture.run_turn(&fixture.ours(), question).await?;
    let requests = fixture.model.received_requests();
    fixture.model.clear_requests();
    let bodies: Vec<Value> = requests.into_iter().map(|request| request.body).collect();
    bodies.try_into().map_err(|bodies: Vec<Value>| {
        anyhow::anyhow!(
            "the model received {} requests in a turn instead of {COUNT}",
            bodies.len()
        )
    })
}

/// Prints a row, and returns the median of the added time in milliseconds. `value_of` selects the compared time.
fn print_row(
    name: &str,
    timings: &[(TurnTiming, TurnTiming)],
    value_of: impl Fn(&TurnTiming) -> f64,
) -> f64 {
    let mut model: Vec<f64> = timings.iter().map(|(model, _)| value_of(model)).collect();
    let mut ours: Vec<f64> = timings.iter().map(|(_, ours)| value_of(ours)).collect();
    let mut added: Vec<f64> = timings
        .iter()
        // Differences are taken within a round, because both turns of a round ran under the same conditions.
        .map(|(model, ours)| value_of(ours) - value_of(model))
        .collect();
    let (base, through) = (percentile_of(&mut model, 50), percentile_of(&mut ours, 50));
    let median = percentile_of(&mut added, 50);
    print_line(&format!(
        "  {name:<12} model {base:>8.3} ms, ours {through:>8.3} ms, ratio {:>5.2}; added p50 {median:>7.3} ms, p99 {:>7.3} ms",
        through / base,
        percentile_of(&mut added, 99)
    ));
    median
}

async fn measure_tools(fixture: &OrchestratorFixture) -> anyhow::Result<()> {
    let (direct, ours) = (fixture.direct(), fixture.ours());
    let through = question_body("agent", "find it");
    let [question, after] = model_requests(fixture, &through).await?;
    let mut added = Vec::with_capacity(ROUND_COUNT);
    for round in 0..WARM_UP_ROUNDS + ROUND_COUNT {
        // The orchestrator makes these three calls within its turn; here they are made one after the other without it.
        let alone = async || {
            let first_call = fixture.run_turn(&direct, &question).await?.whole;
            let tool = fixture.call().await?;
            let final_call = fixture.run_turn(&direct, &after).await?.whole;
            anyhow::Ok(first_call + tool + final_call)
        };
        let turn = async || anyhow::Ok(fixture.run_turn(&ours, &through).await?.whole);
        // The order changes, as in `measure_turns`.
        let (calls, turn) = if round % 2 == 0 {
            let calls = alone().await?;
            (calls, turn().await?)
        } else {
            let turn = turn().await?;
            (alone().await?, turn)
        };
        if round >= WARM_UP_ROUNDS {
            added.push(to_millis(turn) - to_millis(calls));
        }
    }
    fixture.model.clear_requests();
    // One call is that of the turn in `model_requests`.
    let expected_calls = 1 + 2 * (WARM_UP_ROUNDS + ROUND_COUNT);
    anyhow::ensure!(
        usize::try_from(fixture.call_count()).is_ok_and(|count| count == expected_calls),
        "the tool received {} calls instead of {expected_calls}: the agent did not call it",
        fixture.call_count()
    );
    let median = percentile_of(&mut added, 50);
    print_line(&format!(
        "  {:<12} compared with two calls of the model and one of the tool: added p50 {median:>7.3} ms, p99 {:>7.3} ms",
        "tool call",
        percentile_of(&mut added, 99)
    ));
    print_line(&format!(
        "    aim at most {TOOL_TARGET} ms at p50: {}\n",
        verdict_text(median <= TOOL_TARGET)
    ));
    Ok(())
}
