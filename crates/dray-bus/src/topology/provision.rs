//! Creates streams and consumers on a server, and compares what is there.

use super::{Topology, TopologyError, TopologyMismatch, verify};
use crate::backend::Backend;

impl Topology {
    /// Creates what is absent, updates what differs, and reads everything back; what still differs is returned.
    pub(crate) async fn apply(
        &self,
        backend: &Backend,
    ) -> Result<Vec<TopologyMismatch>, TopologyError> {
        for spec in &self.streams {
            let failed = |source| TopologyError {
                object: spec.name.clone(),
                source,
            };
            let found = backend.stream(&spec.name).await.map_err(failed)?;
            if found.is_none_or(|found| found.spec != *spec) {
                backend.provision_stream(spec).await.map_err(failed)?;
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
        // The server ignores fields that it does not know (F-5); only reading back shows that.
        self.verify(backend).await
    }

    /// Reads every stream and consumer and returns what deviates. Changes nothing.
    pub(crate) async fn verify(
        &self,
        backend: &Backend,
    ) -> Result<Vec<TopologyMismatch>, TopologyError> {
        let mut mismatches = Vec::new();
        for spec in &self.streams {
            let found = backend
                .stream(&spec.name)
                .await
                .map_err(|source| TopologyError {
                    object: spec.name.clone(),
                    source,
                })?;
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
        Ok(mismatches)
    }
}
