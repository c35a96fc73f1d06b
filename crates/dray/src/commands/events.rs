//! `dray events`: events on the bus as they happen.

use dray_bus::headers::SCHEMA_HEADER;
use dray_bus::{EventFilter, ObservedEvent};
use dray_proto::json::message_json;
use dray_types::TenantId;
use dray_types::terminal::printable_json;

use crate::cli::{EventsCommand, GlobalOptions};
use crate::commands::shown;
use crate::context::{SystemConnection, only_tenant};
use crate::outcome::{CommandFailure, has_output_ended, print_line};

/// Prints events until the wanted number was printed or the reader of standard output has ended.
pub(crate) async fn run(
    global: &GlobalOptions,
    events: &EventsCommand,
) -> Result<(), CommandFailure> {
    let EventsCommand::Tail { all, count, audit } = events;
    let filter = EventFilter::new(subjects(*audit, only_tenant(global)?.as_ref()));
    let filter = if *all { filter.from_start() } else { filter };
    let system = SystemConnection::open_bus(global).await?;
    let printed = print_events(global, &system, filter, *count).await;
    system.close_with(printed).await
}

async fn print_events(
    global: &GlobalOptions,
    system: &SystemConnection,
    filter: EventFilter,
    count: Option<u64>,
) -> Result<(), CommandFailure> {
    let unreadable = |error: dray_bus::events::EventError| {
        CommandFailure::Unreachable {
        description: dray_service::host::ErrorChain(&error).to_string(),
        advice: "Check that the streams exist (`dray topology check`) and that this identity may read them.".to_owned(),
    }
    };
    let mut stream = system.bus.events(filter).await.map_err(unreadable)?;
    let mut shown = 0;
    while count.is_none_or(|count| shown < count) && !has_output_ended() {
        let event = stream.next().await.map_err(unreadable)?;
        print_line(&event_line(global.json, &event));
        shown += 1;
    }
    Ok(())
}

/// The subjects of the events, or of the audit events, of a tenant or of all tenants.
fn subjects(is_audit: bool, tenant: Option<&TenantId>) -> String {
    let kind = if is_audit { "audit" } else { "event" };
    match tenant {
        Some(tenant) => format!("dray.{kind}.*.*.*.{}", tenant.token()),
        None => format!("dray.{kind}.>"),
    }
}

fn event_line(as_json: bool, event: &ObservedEvent) -> String {
    let schema = event.headers.get(SCHEMA_HEADER).unwrap_or_default();
    let message = message_json(schema, &event.payload);
    if as_json {
        let line = serde_json::json!({
            "sequence": event.sequence,
            "time_ms": event.time_ms,
            "subject": event.subject,
            "message": message,
        });
        return line.to_string();
    }
    format!(
        "{}  #{}  {}  {}",
        shown::rfc3339_time(event.time_ms),
        event.sequence,
        shown::outside_line(&event.subject),
        printable_json(&message.to_string())
    )
}

#[cfg(test)]
mod tests {
    use dray_proto::v1;
    use dray_types::invisible::is_unprintable;
    use prost::Message as _;

    use super::*;

    #[test]
    fn texts_of_an_event_do_not_change_the_terminal() {
        let message = v1::ToolCallResolved {
            tool: "name\u{1b}[2J\u{9b}2J\u{202e}".to_owned(),
            ..v1::ToolCallResolved::default()
        };
        let schema = (SCHEMA_HEADER, "dray.v1.ToolCallResolved/1");
        let event = ObservedEvent {
            subject: "dray.event\u{9b}2J".to_owned(),
            headers: [schema].into_iter().collect(),
            payload: message.encode_to_vec().into(),
            sequence: 7,
            time_ms: 0,
        };
        let line = event_line(false, &event);
        assert!(!line.chars().any(is_unprintable), "{line:?}");
        assert!(line.contains("\\u009b2J\\u202e"), "{line:?}");
        // Programs get the texts as they are.
        assert!(event_line(true, &event).contains("\u{9b}2J\u{202e}"));
    }
}
