//! `dray events`: events on the bus as they happen.

use dray_bus::headers::SCHEMA_HEADER;
use dray_bus::{EventFilter, ObservedEvent};
use dray_proto::json::message_json;

use crate::cli::{EventsCommand, GlobalOptions};
use crate::commands::shown;
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, has_output_ended, print_line};

/// Prints events until the wanted number was printed or the reader of standard output has ended.
pub(crate) async fn run(
    global: &GlobalOptions,
    events: &EventsCommand,
) -> Result<(), CommandFailure> {
    let EventsCommand::Tail { all, count, audit } = events;
    let system = SystemConnection::open_bus(global).await?;
    let filter = EventFilter::new(if *audit {
        "dray.audit.>"
    } else {
        "dray.event.>"
    });
    let filter = if *all { filter.from_start() } else { filter };
    let unreadable = |error: dray_bus::events::EventError| {
        CommandFailure::Unreachable {
        description: dray_service::host::ErrorChain(&error).to_string(),
        advice: "Check that the streams exist (`dray topology check`) and that this identity may read them.".to_owned(),
    }
    };
    let mut stream = system.bus.events(filter).await.map_err(unreadable)?;
    let mut shown = 0;
    while count.is_none_or(|count| shown < count) && !has_output_ended() {
        print_event(global, &stream.next().await.map_err(unreadable)?);
        shown += 1;
    }
    system.close().await;
    Ok(())
}

fn print_event(global: &GlobalOptions, event: &ObservedEvent) {
    let schema = event.headers.get(SCHEMA_HEADER).unwrap_or_default();
    let message = message_json(schema, &event.payload);
    if global.json {
        let line = serde_json::json!({
            "sequence": event.sequence,
            "time_ms": event.time_ms,
            "subject": event.subject,
            "message": message,
        });
        print_line(&line.to_string());
    } else {
        let time = shown::rfc3339_time(event.time_ms);
        print_line(&format!(
            "{time}  #{}  {}  {message}",
            event.sequence, event.subject
        ));
    }
}
