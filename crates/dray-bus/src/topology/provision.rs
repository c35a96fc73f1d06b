//! Creates streams and consumers on a server, and compares the existing ones.

use super::{
    StreamState, StreamUsage, Topology, TopologyError, TopologyInspection, TopologyMismatch, verify,
};
use crate::backend::Backend;

impl Topology {
    /// Creates missing streams and consumers, updates different ones, reads all of them back, and returns the remaining
    /// differences.
    pub(crate) async fn apply(
        &self,
        backend: &Backend,
    ) -> Result<Vec<TopologyMismatch>, TopologyError> {
        for spec in &self.streams {
            let found = read_stream(backend, &spec.name).await?;
            if found.is_none_or(|found| found.spec != *spec) {
                let provisioned = backend.provision_stream(spec).await;
                provisioned.map_err(|source| TopologyError {
                    object: spec.name.clone(),
                    source,
                })?;
            }
        }
        for spec in &self.consumers {
            let failed = |source| TopologyError {
                object: spec.object(),
                source,
            };
            let found = backend
                .consumer(&spec.stream, &spec.durable)
                .await
                .map_err(failed)?;
            if found.is_none_or(|found| found.spec != *spec) {
                backend.provision_consumer(spec).await.map_err(failed)?;
            }
        }
        // The server ignores fields that it does not support (F-5); only reading back detects that.
        self.verify(backend).await
    }

    /// Reads every stream and consumer and returns the differences. Changes nothing.
    pub(crate) async fn verify(
        &self,
        backend: &Backend,
    ) -> Result<Vec<TopologyMismatch>, TopologyError> {
        Ok(self.inspect(backend).await?.mismatches)
    }

    /// Like [`Self::verify`], and returns how full the streams are.
    pub(crate) async fn inspect(
        &self,
        backend: &Backend,
    ) -> Result<TopologyInspection, TopologyError> {
        let mut mismatches = Vec::new();
        let mut usage = Vec::new();
        for spec in &self.streams {
            let found = read_stream(backend, &spec.name).await?;
            usage.extend(found.as_ref().and_then(stream_usage));
            mismatches.extend(verify::compare_stream(
                spec,
                found.as_ref().map(|state| &state.spec),
            ));
        }
        for spec in &self.consumers {
            let found = backend
                .consumer(&spec.stream, &spec.durable)
                .await
                .map_err(|source| TopologyError {
                    object: spec.object(),
                    source,
                })?;
            mismatches.extend(verify::compare_consumer(
                spec,
                found.as_ref().map(|state| &state.spec),
            ));
        }
        Ok(TopologyInspection { mismatches, usage })
    }
}

/// How full a stream is; `None` for one without a limit.
fn stream_usage(state: &StreamState) -> Option<StreamUsage> {
    let is_limited = state.spec.max_bytes > 0;
    is_limited.then(|| StreamUsage {
        stream: state.spec.name.clone(),
        bytes: state.bytes,
        max_bytes: state.spec.max_bytes,
        when_full: state.spec.discard,
    })
}

/// The present state of a stream; `None` where it does not exist.
pub(super) async fn read_stream(
    backend: &Backend,
    name: &str,
) -> Result<Option<StreamState>, TopologyError> {
    let found = backend.stream(name).await;
    found.map_err(|source| TopologyError {
        object: name.to_owned(),
        source,
    })
}
