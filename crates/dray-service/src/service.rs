//! The trait of a service: its dependencies, its calls, and its permissions.

use std::error::Error;
use std::future::Future;

use dray_bus::Permissions;
use dray_store::StoreAccess;
use opentelemetry::metrics::Meter;

use crate::{Router, ServiceContext, ServicePlan, config};

/// One service: a name, a configuration and handlers. The [`Host`](crate::Host) does the rest.
pub trait Service: Sized + Send + Sync + 'static {
    /// Name in kebab case. Section, queue group, durable consumer, metric label and span take it from here.
    const NAME: &'static str;

    /// The service's section of the configuration.
    type Config: config::Section;

    /// Opens the resources of the service. No request is accepted before this returns. If it fails, it closes opened
    /// resources by dropping them.
    fn start(
        config: Self::Config,
        cx: &ServiceContext,
    ) -> impl Future<Output = Result<Self, StartError>> + Send;

    /// Registers the calls that the service handles and the work that it consumes. Called before the service starts,
    /// also for documents.
    fn routes(router: Router<Self>) -> Router<Self>;

    /// Declares what the service does on the bus beyond its routes: its calls, the subjects to which it publishes, the
    /// keys that it uses. The permissions of a deployment and the part of the topology that is verified at start
    /// follow from it.
    fn permissions(permissions: Permissions) -> Permissions {
        permissions
    }

    /// Declares how the service uses the store. The access keys of a deployment follow from it.
    fn store_access() -> StoreAccess {
        StoreAccess::probe()
    }

    /// Creates every instrument of the service once, so that the reference page of metrics can be written
    /// without starting anything. Usually `Metrics::new(meter);`.
    fn instruments(meter: &Meter) {
        let _ = meter;
    }

    /// The service as a host starts it. Every service implements this method with the body of the default, so that its
    /// handlers are compiled once in its own crate and not in each program and test that runs it.
    fn plan() -> ServicePlan {
        ServicePlan::of::<Self>()
    }

    /// Closes the resources of the service. Runs after the last handler has returned, and before background tasks end.
    fn stop(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// The reason why a service could not start, for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    message: String,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl StartError {
    /// A failure without another error behind it: the message says what failed and what would be correct.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
        }
    }

    /// A failure with its cause: what failed, and the error behind it.
    pub fn with_source(
        message: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self {
            message: message.into(),
            source: Some(Box::new(source)),
        }
    }
}
