//! `dray dlq`: dead letters, which are work that was given up.

use std::time::Duration;

use dray_bus::DeadLetters;
use dray_bus::dead::{
    DeadLetterDetails, DeadLetterSummary, LetterError, LetterFilter, LetterState,
};
use dray_bus::headers::SCHEMA_HEADER;
use dray_proto::json::message_json;
use dray_types::terminal::printable_json;
use dray_types::{Fault, FaultCode, TenantId};
use serde_json::{Value, json};

use crate::cli::{DeadLetterCommand, DlqFilter, GlobalOptions};
use crate::commands::shown;
use crate::context::{SystemConnection, only_tenant};
use crate::outcome::{CommandFailure, fault_json, print_line};

/// Time for restarted work from now on, because its own deadline has passed.
const REDRIVE_TIME: Duration = Duration::from_mins(10);

/// Lists dead letters, shows one, or starts their work again.
pub(crate) async fn run(
    global: &GlobalOptions,
    dlq: &DeadLetterCommand,
) -> Result<(), CommandFailure> {
    // The options are checked before connecting: a mistake on the command line needs no server.
    if let DeadLetterCommand::Redrive {
        sequences,
        filter,
        all,
        ..
    } = dlq
    {
        check_selection(sequences, filter, *all)?;
    }
    let system = SystemConnection::open_bus(global).await?;
    let outcome = match dlq {
        DeadLetterCommand::List { limit, filter } => {
            list_letters(global, &system, filter, *limit).await
        }
        DeadLetterCommand::Show { sequence } => show_letter(global, &system, *sequence).await,
        DeadLetterCommand::Redrive {
            sequences,
            filter,
            dry_run,
            limit,
            all: _,
        } => {
            let found = select_letters(global, &system, sequences, filter, *limit).await;
            match found {
                Ok(letters) => redrive(global, &system, &letters, *dry_run).await,
                Err(failure) => Err(failure),
            }
        }
    };
    system.close_with(outcome).await
}

async fn list_letters(
    global: &GlobalOptions,
    system: &SystemConnection,
    filter: &DlqFilter,
    limit: usize,
) -> Result<(), CommandFailure> {
    let letters = find_letters(global, system, filter, limit).await?;
    if letters.is_empty() && !global.json {
        print_line("no dead letters");
    }
    for letter in &letters {
        if global.json {
            print_line(&summary_json(letter).to_string());
        } else {
            print_line(&letter_line(letter));
        }
    }
    Ok(())
}

/// One line for people. Everyone who may publish work chooses texts of its dead letter.
fn letter_line(letter: &DeadLetterSummary) -> String {
    format!(
        "#{}  {}  {}  {}  {}  {}",
        letter.sequence,
        letter.state.as_str(),
        shown::rfc3339_time(letter.last_error_ms),
        shown::outside_line(&letter.subject),
        shown::outside_line(&letter.operation),
        shown::outside_line(&letter.fault.message)
    )
}

async fn find_letters(
    global: &GlobalOptions,
    system: &SystemConnection,
    filter: &DlqFilter,
    limit: usize,
) -> Result<Vec<DeadLetterSummary>, CommandFailure> {
    let filter = letter_filter(filter, only_tenant(global)?, system.clock.now_ms());
    let letters = system.bus.dead_letters();
    letters
        .find(&filter, 1, limit)
        .await
        .map_err(letter_failure)
}

/// The letters that the options select. `named` is the tenant of `--tenant`; `--of-tenant` has precedence.
fn letter_filter(filter: &DlqFilter, named: Option<TenantId>, now_ms: u64) -> LetterFilter {
    let ago = |period: dray_types::Period| {
        let millis = period.as_millis();
        now_ms.saturating_sub(millis)
    };
    LetterFilter {
        tenant: filter.of_tenant.clone().or(named),
        area: filter.area.clone(),
        code: filter.code,
        detail: filter.detail.clone(),
        states: filter.states.clone(),
        from_ms: filter.newer_than.map(ago),
        until_ms: filter.older_than.map(ago),
    }
}

async fn show_letter(
    global: &GlobalOptions,
    system: &SystemConnection,
    sequence: u64,
) -> Result<(), CommandFailure> {
    let DeadLetterDetails { summary, letter } = system
        .bus
        .dead_letters()
        .show(sequence)
        .await
        .map_err(letter_failure)?;
    let schema = letter
        .headers
        .iter()
        .find(|header| header.name == SCHEMA_HEADER)
        .map_or("", |header| header.value.as_str());
    let mut all = summary_json(&summary);
    if let Value::Object(fields) = &mut all {
        let pairs: Vec<Value> = letter
            .headers
            .iter()
            .map(|header| json!([header.name, header.value]))
            .collect();
        fields.insert("headers".to_owned(), pairs.into());
        fields.insert("message".to_owned(), message_json(schema, &letter.payload));
    }
    let text = if global.json {
        all.to_string()
    } else {
        printable_json(&format!("{all:#}")).into_owned()
    };
    print_line(&text);
    Ok(())
}

/// Refuses a restart that selects nothing, or selects by both sequence and filter.
fn check_selection(sequences: &[u64], filter: &DlqFilter, all: bool) -> Result<(), CommandFailure> {
    // The filter is destructured, so that a new field cannot be forgotten here.
    let DlqFilter {
        of_tenant,
        area,
        code,
        detail,
        states,
        newer_than,
        older_than,
    } = filter;
    let is_filtered = of_tenant.is_some()
        || area.is_some()
        || code.is_some()
        || detail.is_some()
        || !states.is_empty()
        || newer_than.is_some()
        || older_than.is_some();
    let text = match (sequences.is_empty(), is_filtered || all) {
        (true, false) => "Name dead letters by sequence, choose them with a filter, or pass --all.",
        (false, true) => "Name dead letters by sequence or choose them with a filter, not both.",
        _ => return Ok(()),
    };
    Err(CommandFailure::Usage(text.to_owned()))
}

/// The named dead letters, or the open ones that the filter selects.
async fn select_letters(
    global: &GlobalOptions,
    system: &SystemConnection,
    sequences: &[u64],
    filter: &DlqFilter,
    limit: usize,
) -> Result<Vec<DeadLetterSummary>, CommandFailure> {
    if sequences.is_empty() {
        let mut filter = filter.clone();
        // Letters in other states were started before, or are done.
        if filter.states.is_empty() {
            filter.states.push(LetterState::Open);
        }
        return find_letters(global, system, &filter, limit).await;
    }
    let letters = system.bus.dead_letters();
    let mut found = Vec::new();
    for sequence in sequences {
        let shown = letters.show(*sequence).await.map_err(letter_failure)?;
        found.push(shown.summary);
    }
    Ok(found)
}

async fn redrive(
    global: &GlobalOptions,
    system: &SystemConnection,
    selected: &[DeadLetterSummary],
    dry_run: bool,
) -> Result<(), CommandFailure> {
    if selected.is_empty() && !global.json {
        print_line("no dead letters to start again");
    }
    let letters = system.bus.dead_letters();
    let mut is_complete = true;
    // One failure does not keep the others from being started.
    for letter in selected {
        let outcome = if dry_run {
            Ok(planned_result(letter.state))
        } else {
            restart_letter(system, &letters, letter.sequence).await
        };
        is_complete &= outcome.as_ref().is_ok_and(|restart| restart.is_started());
        print_restart(global, letter, &outcome);
    }
    if is_complete {
        Ok(())
    } else {
        Err(CommandFailure::Reported)
    }
}

/// Result of `dlq redrive` for one letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestartResult {
    Started,
    WouldStart,
    AlreadyStarted,
    AlreadyDone,
}

impl RestartResult {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::WouldStart => "would_start",
            Self::AlreadyStarted => "already_started",
            Self::AlreadyDone => "already_done",
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::Started => "was started again; watch it with `dray events tail`",
            Self::WouldStart => "would be started again",
            Self::AlreadyStarted => "is left alone: it was started again before",
            Self::AlreadyDone => "is left alone: its work is done",
        }
    }

    const fn is_started(self) -> bool {
        matches!(self, Self::Started | Self::WouldStart)
    }
}

/// The result that a restart of a letter in this state would have.
const fn planned_result(state: LetterState) -> RestartResult {
    match state {
        LetterState::Open | LetterState::Unknown => RestartResult::WouldStart,
        LetterState::Restarted => RestartResult::AlreadyStarted,
        LetterState::Resolved => RestartResult::AlreadyDone,
    }
}

async fn restart_letter(
    system: &SystemConnection,
    letters: &DeadLetters,
    sequence: u64,
) -> Result<RestartResult, LetterError> {
    let deadline = Some(system.deadline(REDRIVE_TIME));
    match letters.redrive(sequence, deadline).await {
        // The bus already has this restart from another command.
        Ok(published) if published.duplicate => Ok(RestartResult::AlreadyStarted),
        Ok(_) => Ok(RestartResult::Started),
        Err(LetterError::AlreadyRestarted(_)) => Ok(RestartResult::AlreadyStarted),
        Err(LetterError::AlreadyResolved(_)) => Ok(RestartResult::AlreadyDone),
        Err(error) => Err(error),
    }
}

fn print_restart(
    global: &GlobalOptions,
    letter: &DeadLetterSummary,
    outcome: &Result<RestartResult, LetterError>,
) {
    let sequence = letter.sequence;
    let line = match outcome {
        Ok(restart) if global.json => {
            let operation = &letter.operation;
            json!({ "sequence": sequence, "operation": operation, "result": restart.as_str() })
                .to_string()
        }
        Ok(restart) => format!("#{sequence} {}", restart.sentence()),
        Err(error) => {
            let reason = dray_service::host::ErrorChain(error).to_string();
            if global.json {
                json!({ "sequence": sequence, "result": "failed", "reason": reason }).to_string()
            } else {
                let reason = shown::outside_line(&reason);
                format!("#{sequence} was not started again: {reason}")
            }
        }
    };
    print_line(&line);
}

fn summary_json(letter: &DeadLetterSummary) -> Value {
    json!({
        "sequence": letter.sequence,
        "state": letter.state.as_str(),
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

fn letter_failure(error: LetterError) -> CommandFailure {
    match error {
        LetterError::NotFound(sequence) => Fault::new(
            FaultCode::NotFound,
            format!("The dead letter #{sequence} does not exist."),
        )
        .detail("no_dead_letter")
        .advice("List them with `dray dlq list`.")
        .into(),
        other => CommandFailure::Unreachable {
            description: dray_service::host::ErrorChain(&other).to_string(),
            advice: "Check that the streams exist (`dray topology check`) and that this identity may read them.".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use dray_types::invisible::is_unprintable;

    use super::*;
    use crate::cli::{Cli, DrayCommand};

    #[test]
    fn options_of_a_filter_do_not_meet_the_global_ones() {
        let typed =
            "dray --tenant me --state dir dlq redrive --of-tenant acme --in-state open --dry-run";
        let cli = Cli::try_parse_from(typed.split(' ')).unwrap();
        assert_eq!(cli.global.tenant.as_deref(), Some("me"));
        let DrayCommand::Dlq(DeadLetterCommand::Redrive { filter, .. }) = cli.command else {
            panic!("the command must be `dlq redrive`");
        };
        assert_eq!(filter.of_tenant, TenantId::new("acme").ok());
        assert_eq!(filter.states, [LetterState::Open]);
    }

    #[test]
    fn letters_are_those_of_the_named_tenant() {
        let selected = |typed: &str| {
            let cli = Cli::try_parse_from(typed.split(' ')).unwrap();
            let named = only_tenant(&cli.global).unwrap();
            let DrayCommand::Dlq(DeadLetterCommand::List { filter, .. }) = cli.command else {
                panic!("the command must be `dlq list`");
            };
            letter_filter(&filter, named, 0).tenant
        };
        assert_eq!(selected("dray dlq list"), None);
        let acme = TenantId::new("acme").ok();
        assert_eq!(selected("dray dlq list --tenant acme"), acme);
        assert_eq!(selected("dray dlq list --tenant me --of-tenant acme"), acme);
    }

    #[test]
    fn a_restart_needs_names_or_a_filter_and_not_both() {
        let none = DlqFilter::default();
        let some = DlqFilter {
            area: Some("toolcall".to_owned()),
            ..DlqFilter::default()
        };
        assert!(check_selection(&[1], &none, false).is_ok());
        assert!(check_selection(&[], &some, false).is_ok());
        assert!(check_selection(&[], &none, true).is_ok());
        assert!(check_selection(&[], &none, false).is_err());
        assert!(check_selection(&[1], &some, false).is_err());
        assert!(check_selection(&[1], &none, true).is_err());
    }

    #[test]
    fn texts_of_a_letter_do_not_change_the_terminal() {
        let hostile = |name: &str| format!("{name}\u{1b}[2J\u{9b}2J\u{202e}\n");
        let letter = DeadLetterSummary {
            sequence: 1,
            subject: hostile("subject"),
            operation: hostile("operation"),
            fault: Fault::new(FaultCode::Internal, hostile("message")),
            attempts: 1,
            delivered: 1,
            first_error_ms: 0,
            last_error_ms: 0,
            complete: true,
            state: LetterState::Open,
        };
        let line = letter_line(&letter);
        assert!(!line.chars().any(is_unprintable), "{line:?}");
        for word in ["subject", "operation", "message"] {
            assert!(line.contains(word), "{line:?}");
        }
    }

    #[test]
    fn a_letter_is_started_again_once() {
        assert!(planned_result(LetterState::Open).is_started());
        assert!(!planned_result(LetterState::Restarted).is_started());
        assert!(!planned_result(LetterState::Resolved).is_started());
    }
}
