//! Permissions of the identities that operate the bus: the sweeper, the operator at a terminal, the provisioning job.

use super::Permissions;
use crate::ledger;
use crate::topology::{
    ADVISORY_STREAM, AUDIT_STREAM, ConsumerSpec, DEAD_LETTER_STREAM, EVENT_STREAM, LEDGER_STREAM,
    SWEEPER_ADVISORY, SWEEPER_WORK, Topology, WORK_STREAM, publisher_filter,
};

impl Permissions {
    /// Ends stranded work of every area: reads all work and the server's advisories, and writes the whole ledger.
    #[must_use]
    pub fn sweeps(self) -> Self {
        let topology = Topology::default();
        let own = [
            (WORK_STREAM, SWEEPER_WORK),
            (ADVISORY_STREAM, SWEEPER_ADVISORY),
        ];
        topology
            .consumers
            .iter()
            .filter(|spec| own.contains(&(spec.stream.as_str(), spec.durable.as_str())))
            .fold(self, Self::pulls)
            .with_stream(EVENT_STREAM)
            .with_stream(DEAD_LETTER_STREAM)
            .with_stream(LEDGER_STREAM)
            // The sweeper measures the age of the oldest letter that waits for an operator.
            .reads_messages([DEAD_LETTER_STREAM])
            // The recorded outcome of work may be any event, and unreadable work may be of any area.
            .allow_publish("dray.event.>".to_owned())
            .allow_publish("dray.dead.>".to_owned())
            .allow_publish(format!("$KV.{}.>", ledger::LEDGER_BUCKET))
            .reads_key(ledger::LEDGER_BUCKET, ">")
    }

    /// Reads the configuration of every stream, events, audit events, and dead letters with the state of their work.
    /// Cannot restart work.
    #[must_use]
    pub fn observes(self) -> Self {
        self.allow_publish("$JS.API.STREAM.INFO.*".to_owned())
            .reads_key(ledger::LEDGER_BUCKET, ">")
            .reads_messages([DEAD_LETTER_STREAM, EVENT_STREAM, AUDIT_STREAM])
    }

    /// Reads the configuration of every stream and consumer, events and dead letters, and restarts work.
    #[must_use]
    pub fn operates(self) -> Self {
        self.observes()
            .allow_publish("dray.work.>".to_owned())
            .allow_publish("$JS.API.CONSUMER.INFO.>".to_owned())
            .reads_messages([WORK_STREAM])
    }

    /// Reads the messages of streams by their sequences. Not with consumers: who may create one of a stream may change
    /// all of its durable consumers, because a name in the body of the request counts as well as one in the subject.
    fn reads_messages<const N: usize>(self, streams: [&str; N]) -> Self {
        streams.into_iter().fold(self, |all, stream| {
            all.allow_publish(format!("$JS.API.STREAM.MSG.GET.{stream}"))
        })
    }

    /// Creates and updates the streams and consumers of the topology and the consumers of publishers. It cannot delete
    /// any. With an update it can still empty a stream, by a lower limit, and have it copied (`republish`).
    #[must_use]
    pub fn provisions(self) -> Self {
        let topology = Topology::default();
        let streams = topology.streams.iter().flat_map(|stream| {
            ["STREAM.CREATE", "STREAM.UPDATE"].map(|request| format!("{request}.{}", stream.name))
        });
        // In this form the server compares name and filter with the body of the request.
        let consumers = topology.consumers.iter().map(|consumer| {
            let ConsumerSpec {
                stream,
                durable,
                filter,
                ..
            } = consumer;
            let filter = if filter.is_empty() {
                String::new()
            } else {
                format!(".{filter}")
            };
            format!("CONSUMER.CREATE.{stream}.{durable}{filter}")
        });
        let publishers = format!("CONSUMER.CREATE.{EVENT_STREAM}.*.{}", publisher_filter("*"));
        let reads = [
            "INFO",
            "STREAM.NAMES",
            "STREAM.LIST",
            "STREAM.INFO.*",
            "CONSUMER.NAMES.*",
            "CONSUMER.LIST.*",
            "CONSUMER.INFO.>",
        ];
        reads
            .into_iter()
            .map(str::to_owned)
            .chain(streams)
            .chain(consumers)
            .chain([publishers])
            .fold(self, |all, request| {
                all.allow_publish(format!("$JS.API.{request}"))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweeper_relies_on_its_own_consumers() {
        let topology = Permissions::service("sweeper").sweeps().topology();
        let durables: Vec<_> = topology
            .consumers
            .iter()
            .map(|spec| &*spec.durable)
            .collect();
        assert_eq!(durables, [SWEEPER_WORK, SWEEPER_ADVISORY]);
        let streams: Vec<_> = topology.streams.iter().map(|spec| &*spec.name).collect();
        assert_eq!(
            streams,
            [
                WORK_STREAM,
                EVENT_STREAM,
                DEAD_LETTER_STREAM,
                ADVISORY_STREAM,
                LEDGER_STREAM
            ]
        );
    }

    #[test]
    fn an_observer_publishes_no_work_and_reads_none() {
        let observer = Permissions::client("observer", "").observes();
        for line in observer.publish_subjects() {
            assert!(line.starts_with("$JS.API."), "{line}");
            assert!(!line.ends_with(WORK_STREAM), "{line}");
        }
        let operator = Permissions::client("observer", "").operates();
        let operator: Vec<_> = operator.publish_subjects().collect();
        assert!(
            observer
                .publish_subjects()
                .all(|line| operator.contains(&line))
        );
    }

    #[test]
    fn no_operator_creates_or_drains_consumers() {
        let operator = Permissions::client("operator", "").operates();
        for line in operator.publish_subjects() {
            assert!(
                !line.contains("CONSUMER.CREATE") && !line.contains("MSG.NEXT"),
                "{line}"
            );
        }
    }

    #[test]
    fn the_provisioner_changes_what_the_topology_names_and_deletes_nothing() {
        let provisioner = Permissions::client("provisioner", "").provisions();
        let lines: Vec<_> = provisioner.publish_subjects().collect();
        for line in &lines {
            assert!(
                !line.contains("DELETE") && !line.contains("PURGE") && *line != "$JS.API.>",
                "{line}"
            );
            let changes = line.contains(".CREATE.") || line.contains(".UPDATE.");
            assert!(
                !changes || !line.ends_with(".>") || line.contains(".dray.work."),
                "{line} changes any consumer"
            );
        }
        assert!(lines.contains(&"$JS.API.STREAM.UPDATE.KV_dray_ledger"));
        assert!(lines.contains(&"$JS.API.CONSUMER.CREATE.DRAY_EVENT.*.dray.event.toolcall.v1.*.*"));
    }
}
