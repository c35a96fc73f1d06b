//! `dray dlq`: work that was given up.

use std::time::Duration;

use dray_bus::Headers;
use dray_bus::dead::{LetterError, Summary};
use dray_types::{Fault, FaultCode};
use serde_json::{Value, json};

use crate::cli::{Dlq, Global};
use crate::commands::shown;
use crate::outcome::{Failure, fault_json, print_line};
use crate::world::World;

/// Time that restarted work gets.
const REDRIVE_TIME: Duration = Duration::from_mins(10);

/// Lists, shows or starts again.
pub(crate) async fn run(global: &Global, dlq: &Dlq) -> Result<(), Failure> {
    let world = World::open_bus(global).await?;
    let outcome = match dlq {
        Dlq::List { limit } => list(global, &world, *limit).await,
        Dlq::Show { sequence } => show(global, &world, *sequence).await,
        Dlq::Redrive { sequence } => redrive(global, &world, *sequence).await,
    };
    world.close().await;
    outcome
}

async fn list(global: &Global, world: &World, limit: usize) -> Result<(), Failure> {
    let letters = world
        .bus
        .dead_letters()
        .list(1, limit)
        .await
        .map_err(explain)?;
    if letters.is_empty() && !global.json {
        print_line("no dead letters");
    }
    for letter in &letters {
        if global.json {
            print_line(&summary_json(letter).to_string());
        } else {
            print_line(&format!(
                "#{}  {}  {}  {}  {}",
                letter.sequence,
                shown::time(letter.last_error_ms),
                letter.subject,
                letter.operation,
                letter.fault.message
            ));
        }
    }
    Ok(())
}

async fn show(global: &Global, world: &World, sequence: u64) -> Result<(), Failure> {
    let found = world
        .bus
        .dead_letters()
        .show(sequence)
        .await
        .map_err(explain)?;
    let mut headers = Headers::new();
    for header in &found.letter.headers {
        headers.append(&header.name, &header.value);
    }
    let mut all = summary_json(&found.summary);
    if let Value::Object(fields) = &mut all {
        let pairs: Vec<Value> = found
            .letter
            .headers
            .iter()
            .map(|header| json!([header.name, header.value]))
            .collect();
        fields.insert("headers".to_owned(), pairs.into());
        fields.insert(
            "message".to_owned(),
            shown::message(&headers, &found.letter.payload),
        );
    }
    let text = if global.json {
        all.to_string()
    } else {
        format!("{all:#}")
    };
    print_line(&text);
    Ok(())
}

async fn redrive(global: &Global, world: &World, sequence: u64) -> Result<(), Failure> {
    let deadline = Some(world.deadline(REDRIVE_TIME));
    world
        .bus
        .dead_letters()
        .redrive(sequence, deadline)
        .await
        .map_err(explain)?;
    if global.json {
        print_line(&json!({ "redriven": sequence }).to_string());
    } else {
        print_line(&format!(
            "#{sequence} was started again; watch it with `dray events tail`"
        ));
    }
    Ok(())
}

fn summary_json(letter: &Summary) -> Value {
    json!({
        "sequence": letter.sequence,
        "subject": letter.subject,
        "operation": letter.operation,
        "fault": fault_json(&letter.fault),
        "attempts": letter.attempts,
        "delivered": letter.delivered,
        "first_error_ms": letter.first_error_ms,
        "last_error_ms": letter.last_error_ms,
        "complete": letter.complete,
    })
}

fn explain(error: LetterError) -> Failure {
    match error {
        LetterError::NotFound(sequence) => Fault::new(
            FaultCode::NotFound,
            format!("There is no dead letter #{sequence}."),
        )
        .detail("no_dead_letter")
        .advice("List them with `dray dlq list`.")
        .into(),
        other => Failure::Unreachable {
            what: dray_service::host::Chain(&other).to_string(),
            advice: "Check that the streams exist and that this identity may read them.".to_owned(),
        },
    }
}
