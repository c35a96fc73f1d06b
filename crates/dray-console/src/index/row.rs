//! One event as pages show it: bounded, and without the content of any file or message.

/// The stream of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EventSource {
    /// The stream of events, `dray.event.>`.
    #[default]
    Event,
    /// The audit stream, `dray.audit.>`.
    Audit,
}

impl EventSource {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Audit => "audit",
        }
    }
}

/// The state of an operation after an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RowOutcome {
    /// The operation continues; a later event ends it.
    Working,
    /// The operation had its effect, and there is proof.
    Done,
    /// A policy refused it.
    Refused,
    /// The operation failed, and no effect was confirmed.
    Failed,
    /// The operation may have had its effect, or the event does not say.
    #[default]
    Unknown,
}

impl RowOutcome {
    pub(crate) const ALL_OUTCOMES: [Self; 5] = [
        Self::Working,
        Self::Done,
        Self::Refused,
        Self::Failed,
        Self::Unknown,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL_OUTCOMES
            .into_iter()
            .find(|outcome| outcome.as_str() == name)
    }
}

/// One event, with every text cut to a shown length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventRow {
    /// The event's number in the index.
    pub(crate) id: u64,
    /// Unix milliseconds at which the stream took it.
    pub(crate) time_ms: u64,
    pub(crate) source: EventSource,
    /// The event's sequence in its stream.
    pub(crate) sequence: u64,
    /// Area and past participle of its subject, such as `delivery.delivered`.
    pub(crate) kind: String,
    /// The service that published it.
    pub(crate) service: &'static str,
    pub(crate) operation: String,
    /// Session of its operation; empty for none.
    pub(crate) session: String,
    /// Trace id; empty outside a trace.
    pub(crate) trace: String,
    pub(crate) outcome: RowOutcome,
    /// How long its operation took, where the event says so.
    pub(crate) duration_ms: Option<u64>,
    /// One sentence on what happened, without contents.
    pub(crate) summary: String,
    /// Evidence by name: digests, message ids, addresses.
    pub(crate) proofs: Vec<(&'static str, String)>,
    /// Set for the beginning and for the end of a turn, or of a call of a tool in it.
    pub(crate) span: Option<SpanFacts>,
    /// The turn of an agent that began or ended.
    pub(crate) turn: Option<TurnFacts>,
}

/// Ties the event of an end to the event of its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanFacts {
    /// The same in both events, and in those of nothing else.
    pub(crate) key: String,
    /// Whether the event is the end.
    pub(crate) is_end: bool,
    /// Whether the event is a beginning whose end is not in the index: it runs, its process died, or the event of its
    /// end was lost.
    pub(crate) is_open: bool,
}

/// The facts that an event of a turn has beside those of its row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnFacts {
    /// Name of the agent's manifest.
    pub(crate) agent: String,
    /// Operation of the turn that called this agent or handed over to it; empty for the turn of a request.
    pub(crate) parent: String,
    /// Further facts of the event by name, for the page of the operation.
    pub(crate) details: Vec<(&'static str, String)>,
}

impl EventRow {
    /// The key of a turn or a call that the row begins and whose end is not in the index.
    pub(crate) fn open_key(&self) -> Option<&str> {
        let span = self.span.as_ref().filter(|span| span.is_open);
        span.map(|span| span.key.as_str())
    }

    /// The key of a turn or a call that the row ends.
    pub(crate) fn ended_key(&self) -> Option<&str> {
        let span = self.span.as_ref().filter(|span| span.is_end);
        span.map(|span| span.key.as_str())
    }

    /// Adds a proof, unless the event has no value for it.
    pub(crate) fn prove(&mut self, name: &'static str, value: impl Into<String>) {
        let value = value.into();
        if !value.is_empty() {
            self.proofs.push((name, value));
        }
    }
}
