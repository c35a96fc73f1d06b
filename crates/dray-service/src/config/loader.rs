//! Puts the sources on top of each other and hands out typed sections.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::check::FindingCollector;
use super::layer::ConfigLayer;
use super::merged::MergedConfig;
use super::report::ConfigReport;
use super::schema::{CheckedSection, SectionSpec};
use super::variable::{flag_layer, variable_layers};
use super::{ConfigError, ConfigFinding, ConfigSources, Section};

/// The sections that a process knows, and how they are loaded together.
#[derive(Clone, Debug, Default)]
pub struct ConfigLoader {
    sections: Vec<SectionSpec>,
}

impl ConfigLoader {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Knows one more section. A section that is already known stays as it is.
    #[must_use]
    pub fn section<S: Section>(self, name: &'static str) -> Self {
        self.with(SectionSpec::of::<S>(name))
    }

    /// The same for a section whose type is erased.
    #[must_use]
    pub fn with(mut self, section: SectionSpec) -> Self {
        if !self.sections.iter().any(|known| known.name == section.name) {
            self.sections.push(section);
        }
        self
    }

    /// The sections, in the order they were added.
    pub fn sections(&self) -> &[SectionSpec] {
        &self.sections
    }

    /// Reads all sources and checks everything. The error lists all problems.
    pub fn load(&self, sources: &ConfigSources) -> Result<LoadedConfig, ConfigError> {
        let mut collector = FindingCollector::new(&self.sections);
        let mut layers = Vec::new();
        let file = sources
            .file
            .clone()
            .or_else(|| sources.environment.get("DRAY_CONFIG").map(Into::into));
        if let Some(file) = &file {
            layers.extend(read_file(file, &mut collector));
        }
        layers.extend(variable_layers(&mut collector, &sources.environment));
        for flag in &sources.overrides {
            layers.extend(flag_layer(&mut collector, flag));
        }
        for layer in &mut layers {
            collector.check_tree(layer);
        }
        let merged = MergedConfig::new(&self.sections, layers);
        let checked = self.check_types(&merged, &mut collector);
        if !collector.findings.is_empty() {
            return Err(ConfigError {
                findings: collector.findings,
            });
        }
        Ok(LoadedConfig {
            warnings: collector.warnings,
            sections: self.sections.clone(),
            merged,
            checked,
        })
    }

    /// Lets each section's type read its values, and say what it thinks of them.
    fn check_types(
        &self,
        merged: &MergedConfig,
        collector: &mut FindingCollector<'_>,
    ) -> BTreeMap<&'static str, CheckedSection> {
        let mut all = BTreeMap::new();
        for section in &self.sections {
            match (section.read)(merged.section(section.name)) {
                Ok(checked) => {
                    for problem in &checked.problems {
                        collector.refused(merged, section, problem);
                    }
                    collector.check_conflicts(merged, section);
                    all.insert(section.name, checked);
                }
                Err(error) => collector.unreadable(merged, section, &error),
            }
        }
        all
    }
}

fn read_file(path: &Path, collector: &mut FindingCollector<'_>) -> Option<ConfigLayer> {
    let source = format!("file {}", path.display());
    let mut unreadable = |message: String| {
        collector.findings.push(ConfigFinding {
            key: "config".to_owned(),
            source: source.clone(),
            value: None,
            message,
        });
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            unreadable(format!("must be a readable TOML file: {error}"));
            return None;
        }
    };
    match toml::from_str::<Value>(&text) {
        Ok(tree) => Some(ConfigLayer::new(source, tree)),
        Err(error) => {
            let line = error
                .span()
                .and_then(|span| text.get(..span.start))
                .map_or(1, |before| before.matches('\n').count() + 1);
            unreadable(format!("must be TOML: {} in line {line}", error.message()));
            None
        }
    }
}

/// A configuration that was read and found right.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    sections: Vec<SectionSpec>,
    merged: MergedConfig,
    checked: BTreeMap<&'static str, CheckedSection>,
    warnings: Vec<String>,
}

impl LoadedConfig {
    /// The section `name`.
    ///
    /// # Errors
    ///
    /// The loader did not know this section, or knew it as another type.
    pub fn section<S: Section>(&self, name: &str) -> Result<S, ConfigError> {
        self.checked
            .get(name)
            .and_then(|checked| checked.section.downcast_ref::<S>())
            .cloned()
            .ok_or_else(|| ConfigError {
                findings: vec![ConfigFinding {
                    key: name.to_owned(),
                    source: String::new(),
                    value: None,
                    message: "is not a section of this process".to_owned(),
                }],
            })
    }

    /// Whether no source sets `key` (section and field, dots between levels).
    pub fn is_default(&self, key: &str) -> bool {
        self.merged.source_of(key).is_none()
    }

    /// Every effective value and where it came from; secrets are `***`. Builds the schemas of all sections, which
    /// takes milliseconds.
    pub fn report(&self) -> ConfigReport {
        ConfigReport::new(&self.sections, &self.merged, &self.checked)
    }

    /// What was odd but not wrong, for the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
