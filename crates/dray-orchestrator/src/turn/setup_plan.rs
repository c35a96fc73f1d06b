//! The tool sets of a manifest, prepared for turns. The plan of a local manifest is made once and used by all turns
//! until the manifest changes, with the tools that are the same in each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use dray_agent::layer::{LayerSet, TemplateFailure};
use dray_agent::manifest::toolset::ToolSet;
use dray_agent::manifest::{Manifest, ManifestReader};
use dray_tool::ToolsetResult;

use super::manifest::LoadedManifest;
use super::tool_sources::set_sources;

/// A tool set of a manifest without names of templates.
#[derive(Debug)]
pub(crate) struct PlannedSet {
    pub(crate) set: ToolSet,
    /// Whether its addresses are those of a caller: only the guarded client connects to them.
    pub(crate) is_guarded: bool,
    /// Name of the template that it is from.
    pub(crate) template: Option<String>,
    /// The tools of a set that is the same for every turn; set up by the first turn that needs them.
    shared: OnceLock<ToolsetResult>,
    sources: OnceLock<Arc<[String]>>,
}

impl PlannedSet {
    /// The tools of the set, which `build` makes once.
    pub(super) fn shared_tools(&self, build: impl FnOnce() -> ToolsetResult) -> ToolsetResult {
        self.shared.get_or_init(build).clone()
    }

    /// The sources of its tools.
    pub(super) fn sources(&self) -> &Arc<[String]> {
        self.sources.get_or_init(|| set_sources(self).into())
    }
}

/// The tool sets of a turn before they are set up.
#[derive(Debug, Default)]
pub(crate) struct SetupPlan {
    pub(crate) sets: Vec<Arc<PlannedSet>>,
    /// Templates that could not be used.
    pub(crate) failures: Vec<TemplateFailure>,
}

impl SetupPlan {
    /// Replaces names by their templates. The content of a template has the operator's authority, for all callers.
    fn new(layers: &LayerSet, reader: &ManifestReader, loaded: &LoadedManifest) -> Self {
        let mut plan = Self::default();
        for set in &loaded.manifest.tool_sets {
            let template = match set {
                ToolSet::Predefined(template) => Some(template.template_name.clone()),
                _ => None,
            };
            // One by one, because each entry decides whether the set has the operator's authority.
            let resolved = layers.resolve(reader, vec![set.clone()]);
            for warning in &resolved.warnings {
                tracing::warn!("{warning}");
            }
            plan.failures.extend(resolved.failures);
            let sets = resolved.tool_sets.into_iter().map(|set| PlannedSet {
                set,
                is_guarded: loaded.grant.is_some() && template.is_none(),
                template: template.clone(),
                shared: OnceLock::new(),
                sources: OnceLock::new(),
            });
            plan.sets.extend(sets.map(Arc::new));
        }
        plan
    }
}

/// The plans of local manifests.
#[derive(Debug, Default)]
pub(crate) struct SetupPlans {
    /// Plans by the address of the manifest, which stays in use as long as the entry refers to it.
    plans: Mutex<HashMap<usize, CachedPlan>>,
}

/// A plan, and the manifest that it is of.
#[derive(Debug)]
struct CachedPlan {
    manifest: Weak<Manifest>,
    plan: Arc<SetupPlan>,
}

impl SetupPlans {
    /// The plan of a manifest.
    pub(super) fn plan(
        &self,
        layers: &LayerSet,
        reader: &ManifestReader,
        loaded: &LoadedManifest,
    ) -> Arc<SetupPlan> {
        let make = || Arc::new(SetupPlan::new(layers, reader, loaded));
        // A manifest of a caller or of DIAL is read for each request, so its plan would not be found again.
        if loaded.grant.is_some() {
            return make();
        }
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Arc::as_ptr(&loaded.manifest).addr();
        if let Some(cached) = plans.get(&key) {
            return Arc::clone(&cached.plan);
        }
        // Plans of manifests that have changed since are removed.
        plans.retain(|_, cached| cached.manifest.strong_count() > 0);
        let plan = make();
        let cached = CachedPlan {
            manifest: Arc::downgrade(&loaded.manifest),
            plan: Arc::clone(&plan),
        };
        plans.insert(key, cached);
        plan
    }
}

#[cfg(test)]
mod tests {
    use dray_agent::layer;
    use dray_agent::manifest::ManifestSettings;
    use serde_json::json;

    use super::*;
    use crate::config::Config;
    use crate::permissions::CallerGrants;

    /// Plans with everything that they are made of.
    struct PlanFixture {
        layers: LayerSet,
        reader: ManifestReader,
        plans: SetupPlans,
    }

    impl PlanFixture {
        fn new() -> Self {
            Self {
                layers: layer::built_in(),
                reader: ManifestReader::new(ManifestSettings::default()),
                plans: SetupPlans::default(),
            }
        }

        /// A local manifest with one endpoint, as it is read from its file.
        fn manifest(&self) -> LoadedManifest {
            let tool = json!({
                "type": "restapi-tool",
                "open_ai_tool": {"function": {"name": "find"}},
                "rest_api_method_info": {"method_url": "https://shop.example/find", "method_type": "get"},
            });
            let read = self.reader.manifest(json!({
                "orchestrator": {"deployment": {"deployment_id": "lead"}}, "contexts": [],
                "tool_sets": [{"type": "rest-api", "name": "shop", "tools": [tool]}],
            }));
            LoadedManifest {
                manifest: Arc::new(read.unwrap().value),
                grant: None,
            }
        }

        fn plan(&self, loaded: &LoadedManifest) -> Arc<SetupPlan> {
            self.plans.plan(&self.layers, &self.reader, loaded)
        }
    }

    #[test]
    fn all_turns_share_the_plan_of_a_local_manifest_and_the_tools_in_it() {
        let fixture = PlanFixture::new();
        let loaded = fixture.manifest();
        let mut built = 0;
        for _turn in 0..3 {
            let plan = fixture.plan(&loaded);
            plan.sets[0].shared_tools(|| {
                built += 1;
                ToolsetResult::default()
            });
            let sources = ["shop", "https://shop.example/find", "shop.example"];
            assert_eq!(plan.sets[0].sources()[..], sources);
        }
        assert_eq!(built, 1);
    }

    #[test]
    fn a_changed_manifest_has_a_plan_of_its_own_and_the_one_before_is_forgotten() {
        let fixture = PlanFixture::new();
        let before = fixture.manifest();
        let plan = fixture.plan(&before);
        let changed = fixture.manifest();
        assert!(!Arc::ptr_eq(&plan, &fixture.plan(&changed)));
        drop(before);
        fixture.plan(&fixture.manifest());
        let plans = fixture.plans.plans.lock().unwrap();
        assert_eq!(plans.len(), 2, "that of the first manifest is gone");
    }

    #[test]
    fn the_manifest_of_a_caller_shares_nothing_with_other_requests() {
        let fixture = PlanFixture::new();
        let mut config = Config::default();
        config.permissions.applications.enabled = true;
        let grants = CallerGrants::new(&config).unwrap();
        let loaded = LoadedManifest {
            grant: Some(Arc::clone(grants.of_application().unwrap())),
            ..fixture.manifest()
        };
        let plan = fixture.plan(&loaded);
        assert!(plan.sets[0].is_guarded);
        assert!(!Arc::ptr_eq(&plan, &fixture.plan(&loaded)));
    }
}
