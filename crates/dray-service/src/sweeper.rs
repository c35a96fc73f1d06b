//! The sweeper as a service: it finds stranded work and ends it with a terminal state (messaging-reliability 9).

use dray_bus::Permissions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Router, Service, ServiceContext, ServicePlan, StartError, config};

/// Runs the sweeper of the bus in a separate process. One replica is enough; several are harmless.
#[derive(Debug)]
pub struct SweeperService {}

/// The sweeper has nothing to configure.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SweeperSection {}

impl config::Section for SweeperSection {}

impl Service for SweeperService {
    const NAME: &'static str = "sweeper";
    type Config = SweeperSection;

    fn plan() -> ServicePlan {
        // The call is written out, so that it is compiled here.
        ServicePlan::of::<Self>()
    }

    async fn start(_config: SweeperSection, cx: &ServiceContext) -> Result<Self, StartError> {
        let sweeper = dray_bus::WorkSweeper::new(cx.bus.clone());
        let stop = cx.stop.clone();
        // The host owns the task and waits for it when it stops.
        cx.tasks.spawn(async move { sweeper.run(stop).await });
        Ok(Self {})
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        router
    }

    fn permissions(permissions: Permissions) -> Permissions {
        permissions
            .about("Ends work that nothing else finishes. It reads all work and writes the whole ledger.")
            .sweeps()
    }
}
