//! Removes stored responses.

use std::sync::Arc;

use dray_guard::CanonicalUrl;
use dray_proto::v1;
use dray_service::Request;
use dray_types::{Fault, FaultCode};

use super::{EgressFetcher, with_trace};

impl EgressFetcher {
    /// Answers `dray.egress.v1.purge`: removes the stored response of a URL of the tenant. Its file stays in the store.
    pub async fn purge(
        self: Arc<Self>,
        request: Request<v1::PurgeFetchRequest>,
    ) -> Result<v1::PurgeFetchReply, Fault> {
        let Request { meta, body } = request;
        let url = CanonicalUrl::parse(&body.url).map_err(|_| {
            let invalid = Fault::new(FaultCode::InvalidArgument, "The URL cannot be read.");
            with_trace(invalid.detail("invalid_url"), &meta)
        })?;
        let Some(cache) = &self.cache else {
            return Ok(v1::PurgeFetchReply::default());
        };
        match cache.purge(&meta.tenant, &url).await {
            Ok(removed) => Ok(v1::PurgeFetchReply { removed }),
            Err(error) => Err(with_trace(error.into(), &meta)),
        }
    }
}
