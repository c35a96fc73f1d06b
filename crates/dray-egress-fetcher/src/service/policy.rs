//! The policy files of the service: where they are, and the task that follows them.

use std::future::{Ready, ready};
use std::sync::Arc;

use dray_proto::v1;
use dray_service::{Request, ServiceContext, StartError};
use dray_types::Fault;

use super::EgressFetcher;
use crate::audit::{Auditor, PolicyReporter, PolicyStatus};
use crate::config::Config;
use crate::fetch::Fetcher;
use crate::metrics::EgressMetrics;
use crate::policy_bucket::{POLICY_BUCKET, PolicyBucket, bucket_topology};
use crate::policy_files::{PolicySource, PolicyWatcher};

/// The setting for policy files at a path, which the table of steps names.
pub(super) const PATH_SETTING: &str = "policy_path";

/// The setting that says where the policy files are.
pub(super) const fn setting_name(config: &Config) -> &'static str {
    if config.policy_bucket {
        "policy_bucket"
    } else {
        PATH_SETTING
    }
}

/// Reads the policy files, where there are some, and begins to watch them.
pub(super) async fn watch_policy(
    config: &Config,
    fetcher: &Arc<Fetcher>,
    metrics: EgressMetrics,
    auditor: &Auditor,
    cx: &ServiceContext,
) -> Result<PolicyStatus, StartError> {
    let status = PolicyStatus::of_instance(&cx.instance);
    let source = match &config.policy_path {
        Some(path) => PolicySource::Path(path.clone()),
        None if config.policy_bucket => {
            verify_bucket(cx).await?;
            PolicySource::Bucket(PolicyBucket::new(cx.bus.key_value(POLICY_BUCKET)))
        }
        None => return Ok(status),
    };
    let reporter = PolicyReporter::new(Some(auditor.clone()), status.clone());
    let watcher = PolicyWatcher::open(source, fetcher, metrics, reporter)
        .await
        .map_err(|error| {
            let setting = setting_name(config);
            StartError::with_source(format!("egress-fetcher.{setting} cannot be used"), error)
        })?;
    cx.tasks
        .spawn(watcher.watch(Arc::clone(fetcher), cx.stop.clone()));
    Ok(status)
}

impl EgressFetcher {
    /// Answers `dray.policy.v1.show`: the policy of this replica.
    pub fn show_policy(
        self: Arc<Self>,
        _: Request<v1::ShowEgressPolicyRequest>,
    ) -> Ready<Result<v1::ShowEgressPolicyReply, Fault>> {
        ready(Ok(self.policy_status.show()))
    }
}

/// Checks that the bucket exists as it must be. The host verifies only what a service needs with every setting.
async fn verify_bucket(cx: &ServiceContext) -> Result<(), StartError> {
    // Not `verify_topology`: the metric of this process is about what all its services need.
    let verified = cx.bus.compare_topology(&bucket_topology()).await;
    let mismatches = verified.map_err(|error| {
        StartError::with_source("egress-fetcher.policy_bucket cannot be used", error)
    })?;
    let Some(mismatch) = mismatches.first() else {
        return Ok(());
    };
    Err(StartError::new(format!(
        "egress-fetcher.policy_bucket cannot be used: {mismatch}. Run `dray topology apply`, then put the policy with \
         `dray policy put`"
    )))
}
