//! Permissions of the identities that operate the bus: the sweeper, the operator at a terminal, the provisioning job.

use super::Permissions;
use crate::ledger;
use crate::topology::{
    ADVISORY_STREAM, AUDIT_STREAM, DEAD_LETTER_STREAM, EVENT_STREAM, LEDGER_STREAM,
    SWEEPER_ADVISORY, SWEEPER_WORK, Topology, WORK_STREAM,
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
            .allow_publish(format!("$JS.API.STREAM.MSG.GET.{DEAD_LETTER_STREAM}"))
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
            .allow_publish(format!("$JS.API.STREAM.MSG.GET.{DEAD_LETTER_STREAM}"))
            .reads_key(ledger::LEDGER_BUCKET, ">")
            .follows([EVENT_STREAM, AUDIT_STREAM])
    }

    /// Reads the configuration of every stream and consumer, events and dead letters, and restarts work.
    #[must_use]
    pub fn operates(self) -> Self {
        self.observes()
            .allow_publish("dray.work.>".to_owned())
            .allow_publish("$JS.API.CONSUMER.INFO.>".to_owned())
            .allow_publish(format!("$JS.API.STREAM.MSG.GET.{WORK_STREAM}"))
            .follows([WORK_STREAM, DEAD_LETTER_STREAM])
    }

    /// Reads streams with its own ephemeral consumers.
    fn follows<const N: usize>(self, streams: [&str; N]) -> Self {
        // Ephemeral consumers only: with a name in the subject, the identity could change a durable consumer.
        streams.into_iter().fold(self, |all, stream| {
            all.allow_publish(format!("$JS.API.CONSUMER.CREATE.{stream}"))
                .allow_publish(format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.*"))
        })
    }

    /// Creates and updates streams and consumers, and can neither delete nor empty them.
    #[must_use]
    pub fn provisions(self) -> Self {
        [
            "INFO",
            "STREAM.NAMES",
            "STREAM.LIST",
            "STREAM.CREATE.*",
            "STREAM.UPDATE.*",
            "STREAM.INFO.*",
            "CONSUMER.NAMES.*",
            "CONSUMER.LIST.*",
            "CONSUMER.CREATE.>",
            // Older clients and servers create durables on this subject, newer ones on the one above.
            "CONSUMER.DURABLE.CREATE.>",
            "CONSUMER.INFO.>",
        ]
        .into_iter()
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
    fn the_provisioner_can_neither_delete_nor_purge() {
        let provisioner = Permissions::client("provisioner", "").provisions();
        for line in provisioner.publish_subjects() {
            assert!(
                !line.contains("DELETE") && !line.contains("PURGE") && line != "$JS.API.>",
                "{line}"
            );
        }
    }
}
