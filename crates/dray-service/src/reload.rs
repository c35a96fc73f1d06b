//! Applies changes of a service's section while the service runs.
//!
//! A service implements [`ApplySection`] and runs a [`SectionReload`]. Work that runs keeps the values with which it
//! began; what begins later finds the new ones. A section that is invalid, or that the service cannot apply, changes
//! nothing: the previous settings stay in force, the log has the reason, and the metric `…_config_stale` is 1.

use dray_types::{ErrorChain, Period};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Meter};
use tokio_util::sync::CancellationToken;

use crate::StartError;
use crate::config::{
    ConfigProblem, RestartSetting, Section, SectionChange, SectionReader, SectionWatcher,
};

/// Time between two reads of the sources, unless a section says otherwise.
pub const DEFAULT_RELOAD_INTERVAL: Period = Period::secs(2);

/// The problem of a `reload_interval` outside of 1 s to 1 h.
pub fn interval_problem(interval: Period) -> Option<ConfigProblem> {
    let is_valid = (Period::secs(1)..=Period::secs(3600)).contains(&interval);
    (!is_valid).then(|| ConfigProblem::new("reload_interval", "must be 1s to 1h"))
}

/// Whether the settings of a service are those of its sources, and how often they changed.
#[derive(Clone, Debug)]
pub struct ReloadMetrics {
    reloads: Counter<u64>,
    stale: Gauge<u64>,
}

impl ReloadMetrics {
    /// Creates `PREFIX_config_reloads_total` and `PREFIX_config_stale`.
    pub fn new(meter: &Meter, prefix: &str) -> Self {
        let reloads = meter
            .u64_counter(format!("{prefix}_config_reloads_total"))
            .with_description(
                "Changes of the configuration while the service ran, by result (applied, failed).",
            );
        let stale = meter.u64_gauge(format!("{prefix}_config_stale")).with_description(
            "1 while the configuration is wrong and the previous settings stay in force, otherwise 0.",
        );
        Self {
            reloads: reloads.build(),
            stale: stale.build(),
        }
    }

    fn set_stale(&self, is_stale: bool) {
        self.stale.record(u64::from(is_stale), &[]);
    }

    fn count(&self, is_applied: bool) {
        let result = if is_applied { "applied" } else { "failed" };
        self.reloads.add(1, &[KeyValue::new("result", result)]);
        self.set_stale(!is_applied);
    }
}

/// Puts a changed section in force.
pub trait ApplySection<S>: Send {
    /// Puts `later` in the place of `in_force`. Both have the values of the start in all fields that apply only at
    /// the next start.
    ///
    /// # Errors
    ///
    /// The settings cannot be used. Nothing has changed then.
    fn apply(&mut self, in_force: &S, later: &S) -> Result<(), StartError>;
}

/// Follows the section of a service and applies its changes.
#[derive(Debug)]
pub struct SectionReload<S: 'static, A> {
    watcher: SectionWatcher<S>,
    /// The settings with which the service works: the last section, with the values of the start in some fields.
    in_force: S,
    restart_settings: &'static [RestartSetting<S>],
    metrics: ReloadMetrics,
    target: A,
}

impl<S: Section + PartialEq, A: ApplySection<S>> SectionReload<S, A> {
    /// Follows the section of `reader`, which is read every `interval`, from the section of the start. Changes go to
    /// `target`, except those of [`Section::restart_settings`], which the log names.
    pub fn new(
        reader: SectionReader,
        (section, interval): (S, Period),
        metrics: ReloadMetrics,
        target: A,
    ) -> Self {
        Self {
            watcher: SectionWatcher::new(reader, interval.as_duration(), section.clone()),
            in_force: section,
            restart_settings: S::restart_settings().unwrap_or_default(),
            metrics,
            target,
        }
    }

    /// Applies each change until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        self.metrics.set_stale(false);
        while let Some(change) = stop.run_until_cancelled(self.watcher.changed()).await {
            match change {
                SectionChange::Changed(section) => self.apply(section),
                SectionChange::Invalid(problem) => self.report_refusal(&problem),
                SectionChange::Restored => {
                    self.metrics.set_stale(false);
                    tracing::info!("the configuration equals the one in force again");
                }
            }
        }
    }

    fn apply(&mut self, section: S) {
        let mut later = section.clone();
        let kept = self.keep_settings_of_start(&mut later);
        match self.try_apply(&later) {
            Ok(()) => {
                if !kept.is_empty() {
                    tracing::warn!("needs a restart: {}", kept.join(", "));
                }
                self.in_force = later;
                self.watcher.applied(section);
                self.metrics.count(true);
                tracing::info!("a changed configuration is in force");
            }
            Err(error) => {
                self.watcher.rejected();
                self.report_refusal(&ErrorChain(&error).to_string());
            }
        }
    }

    /// Puts the values of the start into the fields that need a restart. Returns the names of those that differed.
    fn keep_settings_of_start(&self, later: &mut S) -> Vec<&'static str> {
        let kept = self.restart_settings.iter();
        let kept = kept.filter(|setting| (setting.keep)(&self.in_force, later));
        kept.map(|setting| setting.name).collect()
    }

    fn try_apply(&mut self, later: &S) -> Result<(), StartError> {
        // The sources are valid, but with a value of the start in one field the others may not be: a listener that
        // stays open to other machines needs its keys.
        if let Some(problem) = later.validate().into_iter().next() {
            let (field, message) = (problem.field, problem.message);
            let text = format!("needs a restart to be in force: until then `{field}` {message}");
            return Err(StartError::new(text));
        }
        self.target.apply(&self.in_force, later)
    }

    fn report_refusal(&self, problem: &str) {
        self.metrics.count(false);
        tracing::error!(
            problem,
            "a changed configuration cannot be used; the previous settings stay in force"
        );
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::metrics::{MeterProvider as _, noop::NoopMeterProvider};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::restart_settings;

    /// A section whose public listener needs a key.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    struct TestConfig {
        /// Whether other machines reach the listener.
        is_public: bool,
        /// Keys of clients.
        keys: Vec<String>,
    }

    impl Section for TestConfig {
        fn restart_settings() -> Option<&'static [RestartSetting<Self>]> {
            const RESTART_SETTINGS: &[RestartSetting<TestConfig>] =
                restart_settings![TestConfig: is_public];
            Some(RESTART_SETTINGS)
        }

        fn validate(&self) -> Vec<ConfigProblem> {
            let is_open = self.is_public && self.keys.is_empty();
            let problem = is_open.then(|| ConfigProblem::new("keys", "must hold a key"));
            problem.into_iter().collect()
        }
    }

    #[derive(Debug, Default)]
    struct AppliedConfigs(Vec<TestConfig>);

    impl ApplySection<TestConfig> for AppliedConfigs {
        fn apply(&mut self, _: &TestConfig, later: &TestConfig) -> Result<(), StartError> {
            self.0.push(later.clone());
            Ok(())
        }
    }

    fn config(is_public: bool, keys: &[&str]) -> TestConfig {
        TestConfig {
            is_public,
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        }
    }

    fn reload() -> SectionReload<TestConfig, AppliedConfigs> {
        SectionReload::new(
            SectionReader::default(),
            (config(true, &["one"]), DEFAULT_RELOAD_INTERVAL),
            ReloadMetrics::new(&NoopMeterProvider::new().meter("test"), "dray_test"),
            AppliedConfigs::default(),
        )
    }

    #[test]
    fn a_setting_that_needs_a_restart_keeps_its_value_and_the_others_apply() {
        let mut reload = reload();
        let names = |mut later| reload.keep_settings_of_start(&mut later);
        assert_eq!(names(config(false, &["two"])), ["is_public"]);
        assert!(names(config(true, &["two"])).is_empty());
        reload.apply(config(false, &["two"]));
        assert_eq!(reload.target.0, [config(true, &["two"])]);
        // The watcher compares with what was read, so the same section is not a change again.
        assert_eq!(reload.watcher.in_force(), &config(false, &["two"]));
        reload.apply(config(false, &["three"]));
        assert_eq!(reload.in_force, config(true, &["three"]));
    }

    #[test]
    fn a_section_that_is_valid_only_after_a_restart_changes_nothing() {
        let mut reload = reload();
        // Without keys, a listener that still is public would be open.
        assert!(config(false, &[]).validate().is_empty());
        reload.apply(config(false, &[]));
        assert_eq!(reload.target.0, []);
        assert_eq!(reload.in_force, config(true, &["one"]));
    }
}
