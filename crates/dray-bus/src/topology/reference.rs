//! The table of streams, consumers and subjects as Markdown, made from the same data that is provisioned.

use std::fmt::Write as _;
use std::time::Duration;

use dray_types::{ByteSize, Period};

use super::{StreamSpec, Topology, call_subjects};

/// `docs/subjects.md`: every call subject, stream and consumer.
pub fn reference_markdown() -> String {
    let topology = Topology::default();
    let mut page = String::from(
        "# Subjects, streams and consumers\n\n\
         Generated from the topology that `dray topology apply` provisions; do not edit.\n\n\
         ## Calls\n\n\
         Calls use core request/reply; the queue group is the name of the service. `cancel` is published by callers \
         that no longer wait; it has no group and reaches every replica.\n\n",
    );
    for subject in call_subjects() {
        write_line(&mut page, format_args!("- `{subject}`"));
    }
    page.push_str(
        "\n## Streams\n\n\
         Every stream keeps messages by its limits only, refuses deletes, purges and rollups, and has a bound on its \
         bytes.\n\n\
         | stream | subjects | when full | age | duplicate window | largest message |\n\
         |---|---|---|---|---|---|\n",
    );
    for stream in &topology.streams {
        write_line(&mut page, format_args!("{}", stream_row(stream)));
    }
    page.push_str(
        "\n## Consumers\n\n\
         Consumers are durable and pull messages, which are acknowledged one by one. They are provisioned; services \
         never create them.\n\n\
         | stream | durable | filter | ack wait | ack pending | batch | deliveries |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for consumer in &topology.consumers {
        let filter = if consumer.filter.is_empty() {
            "all".to_owned()
        } else {
            format!("`{}`", consumer.filter)
        };
        let deliveries = if consumer.max_deliver < 0 {
            "unbounded".to_owned()
        } else {
            consumer.max_deliver.to_string()
        };
        write_line(
            &mut page,
            format_args!(
                "| {} | `{}` | {filter} | {} | {} | {} | {deliveries} |",
                consumer.stream,
                consumer.durable,
                to_period(consumer.ack_wait),
                consumer.max_ack_pending,
                consumer.max_batch,
            ),
        );
    }
    page
}

fn stream_row(stream: &StreamSpec) -> String {
    let subjects: Vec<_> = stream
        .subjects
        .iter()
        .map(|subject| format!("`{subject}`"))
        .collect();
    format!(
        "| {} | {} | {} | {} | {} | {} |",
        stream.name,
        subjects.join(", "),
        match stream.discard {
            super::FullStreamPolicy::New => "refuses new",
            super::FullStreamPolicy::Old => "drops the oldest",
        },
        match stream.max_age {
            Duration::ZERO => "unbounded".to_owned(),
            age => to_period(age).to_string(),
        },
        to_period(stream.duplicate_window),
        ByteSize::bytes(u64::from(stream.max_message_size)),
    )
}

fn to_period(duration: Duration) -> Period {
    Period::from(duration)
}

fn write_line(page: &mut String, text: std::fmt::Arguments<'_>) {
    if writeln!(page, "{text}").is_err() {
        // Writing to a string cannot fail.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_every_stream_consumer_and_call() {
        let page = reference_markdown();
        for stream in Topology::default().streams {
            assert!(page.contains(&format!("| {} |", stream.name)), "{page}");
        }
        for name in [
            "`file-resolver`",
            "`sweeper-work`",
            "`dray.egress.v1.fetch`",
            "`dray.egress.v1.explain`",
            "`dray.file.v1.cancel`",
            "| DRAY_DEAD | `dray.dead.>` | refuses new | 14d | 1d | 512KiB |",
        ] {
            assert!(page.contains(name), "{name} in {page}");
        }
    }
}
