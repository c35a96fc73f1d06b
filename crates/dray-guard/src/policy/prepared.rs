//! The operator's policy as a process keeps it for all its requests.

use std::sync::Arc;

use super::{AdminPolicy, AppPolicy, EffectivePolicy, policy_digest};
use crate::reason::Code;
use crate::steps::StepObserver;

/// The operator's policy, shared by many requests, with the digest for apps that add nothing to it. Most requests have
/// no policy of an app, so they need no separate digest.
#[derive(Clone, Debug)]
pub struct PreparedPolicy {
    admin: Arc<AdminPolicy>,
    digest: String,
}

impl PreparedPolicy {
    /// Computes the digest of a policy that does not change from now on.
    pub fn new(admin: AdminPolicy) -> Self {
        Self {
            digest: policy_digest(&admin, &AppPolicy::default()),
            admin: Arc::new(admin),
        }
    }

    /// The policy itself.
    pub fn admin(&self) -> &AdminPolicy {
        &self.admin
    }

    /// The digest of both policies, as [`policy_digest`].
    pub fn digest(&self, app: &AppPolicy) -> String {
        if *app == AppPolicy::default() {
            return self.digest.clone();
        }
        policy_digest(&self.admin, app)
    }

    /// Like [`EffectivePolicy::observed`], with the digest that [`Self::digest`] gave for `app`.
    ///
    /// # Errors
    /// Those of [`EffectivePolicy::new`].
    pub fn apply(
        &self,
        app: &AppPolicy,
        digest: &str,
        steps: &mut dyn StepObserver,
    ) -> Result<EffectivePolicy, Code> {
        EffectivePolicy::check_app(&self.admin, app, digest, steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prepared_policy_is_the_policy_that_each_request_would_compute() {
        let admin = AdminPolicy {
            enabled: true,
            https_only: true,
            ..AdminPolicy::default()
        };
        let prepared = PreparedPolicy::new(admin.clone());
        let narrowed = AppPolicy {
            host_allowlist: Some(vec!["files.example.org".to_owned()]),
            ..AppPolicy::default()
        };
        for app in [AppPolicy::default(), narrowed] {
            let digest = prepared.digest(&app);
            assert_eq!(digest, policy_digest(&admin, &app));
            let applied = prepared.apply(&app, &digest, &mut ());
            assert_eq!(applied, EffectivePolicy::new(&admin, &app));
        }
    }

    #[test]
    fn c_3_an_app_switches_a_prepared_policy_off() {
        let admin = AdminPolicy {
            enabled: true,
            ..AdminPolicy::default()
        };
        let app = AppPolicy {
            enabled: Some(false),
            ..AppPolicy::default()
        };
        let prepared = PreparedPolicy::new(admin);
        let digest = prepared.digest(&app);
        let applied = prepared.apply(&app, &digest, &mut ());
        assert_eq!(applied, Err(Code::DisabledByApp));
    }
}
