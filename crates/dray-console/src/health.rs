//! Watches continuously whether the bus and the store work, so that every page can show it.

use std::sync::Arc;
use std::time::Duration;

use dray_bus::Bus;
use dray_store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::index::EventSource;

/// Delay from the end of one probe to the next.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Longest duration of one probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// State of one part of the system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum PartHealth {
    /// No probe has finished yet, or another part has to work first.
    #[default]
    Unknown,
    /// The part responded to the last probe.
    Working,
    /// The part did not respond to the last probe, for this reason.
    Failing(String),
    /// This console was started without one.
    Absent,
}

impl PartHealth {
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Unknown => "not known",
            Self::Working => "works",
            Self::Failing(_) => "does not work",
            Self::Absent => "not attached to this console",
        }
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Failing(reason) => Some(reason),
            Self::Unknown | Self::Working | Self::Absent => None,
        }
    }
}

/// State of everything that pages depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SystemHealth {
    pub(crate) bus: PartHealth,
    pub(crate) store: PartHealth,
    /// The reader of the stream of events, behind the live page and the timelines.
    pub(crate) events: PartHealth,
    /// The reader of the audit stream, behind the same pages.
    pub(crate) audit: PartHealth,
}

impl SystemHealth {
    /// The parts by name.
    pub(crate) fn parts(&self) -> [(&'static str, &PartHealth); 3] {
        // Pages show both streams as one, which works only while both are read.
        let is_audit_shown = match self.events {
            PartHealth::Working => true,
            PartHealth::Failing(_) => false,
            PartHealth::Unknown | PartHealth::Absent => self.audit.reason().is_some(),
        };
        let readers = if is_audit_shown {
            &self.audit
        } else {
            &self.events
        };
        // A reader waits for events, and does not notice a bus that sends nothing.
        let events = match (&self.bus, readers) {
            (PartHealth::Failing(_), PartHealth::Working) => &PartHealth::Unknown,
            (_, readers) => readers,
        };
        [
            ("bus", &self.bus),
            ("store", &self.store),
            ("reader of events", events),
        ]
    }

    /// The state of the reader of a stream.
    pub(crate) const fn reader_of(&mut self, source: EventSource) -> &mut PartHealth {
        match source {
            EventSource::Event => &mut self.events,
            EventSource::Audit => &mut self.audit,
        }
    }

    /// Whether no part is known to fail.
    pub(crate) fn is_working(&self) -> bool {
        self.parts().iter().all(|(_, part)| part.reason().is_none())
    }

    /// One sentence for the top of every page.
    pub(crate) fn sentence(&self) -> String {
        let failing: Vec<String> = self
            .parts()
            .iter()
            .filter_map(|(name, part)| {
                Some(format!("The {name} does not work: {}.", part.reason()?))
            })
            .collect();
        let is_unknown = |(_, part): &(_, &PartHealth)| **part == PartHealth::Unknown;
        if !failing.is_empty() {
            failing.join(" ")
        } else if self.parts().iter().any(is_unknown) {
            "The state of the system is not known yet.".to_owned()
        } else {
            // The page does not report the state of services: each page names the services that did not respond to it.
            let working = self.parts().into_iter();
            let working = working.filter(|(_, part)| **part == PartHealth::Working);
            let names: Vec<String> = working.map(|(name, _)| format!("the {name}")).collect();
            working_sentence(&names)
        }
    }
}

/// The sentence about parts of which each works.
fn working_sentence(names: &[String]) -> String {
    match names {
        [names @ .., last] if !names.is_empty() => {
            format!("Working: {} and {last}.", names.join(", "))
        }
        names => format!("Working: {}.", names.concat()),
    }
}

/// Writes the states; each writer changes its own part.
#[derive(Clone, Debug)]
pub(crate) struct HealthReporter(Arc<watch::Sender<SystemHealth>>);

impl HealthReporter {
    pub(crate) fn new() -> (Self, watch::Receiver<SystemHealth>) {
        let (sender, receiver) = watch::channel(SystemHealth::default());
        (Self(Arc::new(sender)), receiver)
    }

    /// Changes one part; readers are notified only of a difference.
    pub(crate) fn report(&self, change: impl FnOnce(&mut SystemHealth)) {
        self.0.send_if_modified(|health| {
            let before = health.clone();
            change(health);
            *health != before
        });
    }
}

/// Probes bus and store until `stop` is cancelled.
pub(crate) async fn watch_system(
    bus: Bus,
    store: Option<Store>,
    reporter: HealthReporter,
    stop: CancellationToken,
) {
    loop {
        let (bus_health, store_health) = tokio::join!(probe_bus(&bus), probe_store(store.as_ref()));
        reporter.report(|health| {
            health.bus = bus_health;
            health.store = store_health;
        });
        let pause = tokio::time::sleep(PROBE_INTERVAL);
        if stop.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

async fn probe_bus(bus: &Bus) -> PartHealth {
    // Needs a timeout here: a frozen server keeps the connection open and sends nothing.
    match tokio::time::timeout(PROBE_TIMEOUT, bus.round_trip()).await {
        Ok(Ok(())) => PartHealth::Working,
        Ok(Err(error)) => PartHealth::Failing(error.to_string()),
        Err(_) => PartHealth::Failing(no_response()),
    }
}

async fn probe_store(store: Option<&Store>) -> PartHealth {
    let Some(store) = store else {
        return PartHealth::Absent;
    };
    match tokio::time::timeout(PROBE_TIMEOUT, store.probe()).await {
        Ok(Ok(())) => PartHealth::Working,
        Ok(Err(error)) => PartHealth::Failing(error.to_string()),
        Err(_) => PartHealth::Failing(no_response()),
    }
}

fn no_response() -> String {
    format!("no response within {} s", PROBE_TIMEOUT.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_what_fails_and_why() {
        let mut health = SystemHealth::default();
        assert_eq!(
            health.sentence(),
            "The state of the system is not known yet."
        );
        health.bus = PartHealth::Working;
        health.store = PartHealth::Absent;
        health.events = PartHealth::Working;
        assert_eq!(
            health.sentence(),
            "The state of the system is not known yet.",
            "the audit stream is not read yet"
        );
        health.audit = PartHealth::Working;
        assert!(health.is_working());
        assert_eq!(
            health.sentence(),
            "Working: the bus and the reader of events."
        );
        health.store = PartHealth::Failing("connection refused".to_owned());
        assert!(!health.is_working());
        assert_eq!(
            health.sentence(),
            "The store does not work: connection refused."
        );
        // The reader of events is not shown as working while the bus fails.
        health.bus = PartHealth::Failing("no response within 3 s".to_owned());
        let [_, _, (name, events)] = health.parts();
        assert_eq!((name, events.label()), ("reader of events", "not known"));
        assert_eq!(
            health.sentence(),
            "The bus does not work: no response within 3 s. The store does not work: connection refused."
        );
    }

    #[test]
    fn one_stream_that_is_read_does_not_hide_that_the_other_is_not() {
        let mut health = SystemHealth {
            bus: PartHealth::Working,
            store: PartHealth::Working,
            ..SystemHealth::default()
        };
        for (failing, working) in [
            (EventSource::Audit, EventSource::Event),
            (EventSource::Event, EventSource::Audit),
        ] {
            *health.reader_of(failing) = PartHealth::Failing("not permitted".to_owned());
            *health.reader_of(working) = PartHealth::Working;
            assert!(!health.is_working());
            assert_eq!(
                health.sentence(),
                "The reader of events does not work: not permitted."
            );
        }
    }
}
