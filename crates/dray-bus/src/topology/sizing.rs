//! Copies and sizes of streams, which operators choose: an update keeps what it does not name, and reduces nothing
//! without permission.

use std::fmt;

use super::provision::read_stream;
use super::{
    EVENT_STREAM, StreamSpec, StreamState, Topology, TopologyError, TopologyMismatch, WORK_STREAM,
};
use crate::backend::Backend;

/// The copies and sizes of streams that an operator names.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamSizing {
    /// Copies of each stream. Without it, each stream keeps its copies, and a new one gets as many as `DRAY_WORK`.
    pub replicas: Option<usize>,
    /// Bytes of store for which streams are sized. Without it, each stream keeps its size, and a new one gets its share
    /// of the store for which `DRAY_EVENT` is sized.
    pub store_bytes: Option<u64>,
    /// Whether a stream may get fewer copies than it has.
    pub allow_fewer_copies: bool,
    /// Whether a stream may get smaller than its content, which drops the oldest messages.
    pub allow_smaller: bool,
}

/// What an update did.
#[derive(Clone, Debug)]
pub struct TopologyUpdate {
    /// Created streams, and streams with another number of copies or another size.
    pub changes: Vec<StreamChange>,
    /// Differences from the required configuration that remain.
    pub mismatches: Vec<TopologyMismatch>,
}

/// A stream that was created, or one changed field of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamChange {
    /// Name of the stream.
    pub stream: String,
    /// `replicas` or `max_bytes`; `existence` for a created stream.
    pub field: &'static str,
    /// The former value; zero for a created stream, and for a stream without a limit.
    pub from: u64,
    /// The new value; 1 for a created stream.
    pub to: u64,
}

/// The reason why an update of the topology did nothing, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum TopologyUpdateError {
    /// A stream or consumer could not be read or changed.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The update would reduce copies. Nothing was changed.
    #[error("streams would have fewer copies: {}", list_changes(.0))]
    FewerCopies(Vec<StreamChange>),
    /// The update would drop messages. Nothing was changed. `from` of each change is the size of the content.
    #[error("streams would be smaller than their content: {}", list_overflows(.0))]
    DropsContent(Vec<StreamChange>),
}

fn list_changes(changes: &[StreamChange]) -> String {
    let lines: Vec<String> = changes.iter().map(StreamChange::to_string).collect();
    lines.join("; ")
}

fn list_overflows(changes: &[StreamChange]) -> String {
    let line = |StreamChange {
                    stream, from, to, ..
                }: &StreamChange| { format!("{stream} has {from} bytes of {to}") };
    let lines: Vec<String> = changes.iter().map(line).collect();
    lines.join("; ")
}

impl fmt::Display for StreamChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stream,
            field,
            from,
            to,
        } = self;
        if *field == "existence" {
            write!(f, "{stream}: created")
        } else {
            write!(f, "{stream}: {field} from {from} to {to}")
        }
    }
}

impl Topology {
    /// Like `apply`, but with the copies and sizes that `sizing` names or that exist.
    pub(crate) async fn update(
        &self,
        backend: &Backend,
        sizing: &StreamSizing,
    ) -> Result<TopologyUpdate, TopologyUpdateError> {
        let mut found = Vec::new();
        for spec in &self.streams {
            found.push(read_stream(backend, &spec.name).await?);
        }
        let sized = self.with_sizing(&found, sizing);
        sized.refuse_reductions(&found, sizing)?;
        let changes = sized.changes(&found);
        let mismatches = sized.apply(backend).await?;
        Ok(TopologyUpdate {
            changes,
            mismatches,
        })
    }

    /// The copies and sizes that differ from those that `sizing` names. Missing streams are left to `verify`.
    pub(crate) async fn compare_sizing(
        &self,
        backend: &Backend,
        sizing: &StreamSizing,
    ) -> Result<Vec<TopologyMismatch>, TopologyError> {
        let mut mismatches = Vec::new();
        for spec in &self.streams {
            let Some(found) = read_stream(backend, &spec.name).await? else {
                continue;
            };
            let mut compare = |field, is_named: bool, expected: u64, found: u64| {
                if is_named && expected != found {
                    mismatches.push(TopologyMismatch {
                        object: spec.name.clone(),
                        field,
                        expected: expected.to_string(),
                        found: found.to_string(),
                    });
                }
            };
            let is_sized = sizing.store_bytes.is_some() && found.spec.max_bytes > 0;
            compare("max_bytes", is_sized, spec.max_bytes, found.spec.max_bytes);
            compare(
                "replicas",
                sizing.replicas.is_some(),
                spec.replicas as u64,
                found.spec.replicas as u64,
            );
        }
        Ok(mismatches)
    }

    /// This topology with the copies and sizes of existing streams where `sizing` names none.
    fn with_sizing(&self, found: &[Option<StreamState>], sizing: &StreamSizing) -> Self {
        let mut sized = self.clone();
        let found_spec = |name: &str| {
            let mut specs = found.iter().flatten().map(|state| &state.spec);
            specs.find(|spec| spec.name == name)
        };
        let found_work = found_spec(WORK_STREAM);
        // Its share is the same in earlier versions, so its size says for which store they sized the streams.
        let events = self.streams.iter().find(|spec| spec.name == EVENT_STREAM);
        let found_events = found_spec(EVENT_STREAM);
        for (spec, state) in sized.streams.iter_mut().zip(found) {
            if sizing.replicas.is_none()
                && let Some(like) = state.as_ref().map(|state| &state.spec).or(found_work)
            {
                spec.replicas = like.replicas;
            }
            if sizing.store_bytes.is_none() {
                let present = state.as_ref().map_or(0, |state| state.spec.max_bytes);
                // A stream without a limit, which reads as 0, gets one: services require a limit.
                spec.max_bytes = match (present, events, found_events) {
                    (0, Some(events), Some(found_events)) if found_events.max_bytes > 0 => {
                        scale(spec.max_bytes, found_events.max_bytes, events.max_bytes)
                    }
                    (0, _, _) => spec.max_bytes,
                    (present, _, _) => present,
                };
            }
        }
        sized
    }

    fn refuse_reductions(
        &self,
        found: &[Option<StreamState>],
        sizing: &StreamSizing,
    ) -> Result<(), TopologyUpdateError> {
        let existing = || {
            let pairs = self.streams.iter().zip(found);
            pairs.filter_map(|(spec, state)| state.as_ref().map(|state| (spec, state)))
        };
        let fewer: Vec<_> = existing()
            .map(|(spec, state)| copies_change(spec, &state.spec))
            .filter(|change| change.to < change.from)
            .collect();
        if !fewer.is_empty() && !sizing.allow_fewer_copies {
            return Err(TopologyUpdateError::FewerCopies(fewer));
        }
        // The server drops the oldest messages of a stream that gets smaller than its content, even where a full stream
        // refuses new ones and where deleting is denied.
        let smaller: Vec<_> = existing()
            .map(|(spec, state)| size_change(spec, state.bytes))
            .filter(|change| change.to < change.from)
            .collect();
        if !smaller.is_empty() && !sizing.allow_smaller {
            return Err(TopologyUpdateError::DropsContent(smaller));
        }
        Ok(())
    }

    /// What differs between this topology and the existing streams in copies and sizes.
    fn changes(&self, found: &[Option<StreamState>]) -> Vec<StreamChange> {
        let mut changes = Vec::new();
        for (spec, state) in self.streams.iter().zip(found) {
            match state {
                None => changes.push(StreamChange {
                    stream: spec.name.clone(),
                    field: "existence",
                    from: 0,
                    to: 1,
                }),
                Some(state) => changes.extend(
                    [
                        copies_change(spec, &state.spec),
                        size_change(spec, state.spec.max_bytes),
                    ]
                    .into_iter()
                    .filter(|change| change.from != change.to),
                ),
            }
        }
        changes
    }
}

fn copies_change(spec: &StreamSpec, found: &StreamSpec) -> StreamChange {
    StreamChange {
        stream: spec.name.clone(),
        field: "replicas",
        from: found.replicas as u64,
        to: spec.replicas as u64,
    }
}

fn size_change(spec: &StreamSpec, from: u64) -> StreamChange {
    StreamChange {
        stream: spec.name.clone(),
        field: "max_bytes",
        from,
        to: spec.max_bytes,
    }
}

/// `bytes` × `numerator` ÷ `denominator`, without an overflow on the way.
fn scale(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
