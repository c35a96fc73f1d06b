//! Merges the sources of configuration and returns typed sections.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::check::FindingCollector;
use super::former::rename_fields;
use super::layer::ConfigLayer;
use super::merged::MergedConfig;
use super::report::ConfigReport;
use super::schema::{CheckedSection, SectionSpec};
use super::secrets_dir::secrets_layers;
use super::variable::{flag_layer, variable_layers};
use super::{ConfigError, ConfigFinding, ConfigProblem, ConfigSources, Section, SectionReader};

/// The sections of a process, and how they are loaded together.
#[derive(Clone, Debug, Default)]
pub struct ConfigLoader {
    sections: Vec<SectionSpec>,
}

impl ConfigLoader {
    /// Starts without sections; each is added with [`Self::section`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a section. A section that was already added is not changed.
    #[must_use]
    pub fn section<S: Section>(self, name: &'static str) -> Self {
        self.with(SectionSpec::of::<S>(name))
    }

    /// Adds a section whose type is erased.
    #[must_use]
    pub fn with(mut self, section: SectionSpec) -> Self {
        if !self.sections.iter().any(|known| known.name == section.name) {
            self.sections.push(section);
        }
        self
    }

    /// The sections in the order in which they were added.
    pub fn sections(&self) -> &[SectionSpec] {
        &self.sections
    }

    /// Reads all sources and checks everything.
    ///
    /// # Errors
    ///
    /// All problems of all sources, not only the first one.
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
        layers.extend(secrets_layers(&mut collector, &sources.environment));
        layers.extend(variable_layers(&mut collector, &sources.environment));
        for flag in &sources.overrides {
            layers.extend(flag_layer(&mut collector, flag));
        }
        for layer in &mut layers {
            // Fields are renamed before the keys are checked, because a former name is not a field.
            rename_fields(layer, &mut collector);
            // Each layer is checked separately, because the source of a wrong key is unknown after the merge.
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
            loader: self.clone(),
            sources: sources.clone(),
            merged,
            checked,
        })
    }

    /// Lets each section's type read and check its values.
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
                        collector.add_problem(merged, section, problem);
                    }
                    collector.check_conflicts(merged, section);
                    all.insert(section.name, checked);
                }
                Err(error) => collector.add_invalid_value(merged, section, &error),
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

/// The sources of the values of one section, without the values: `file`, `variable NAME` or `option`. Paths of files
/// are left out, so an agent may read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueOrigins(BTreeMap<String, String>);

impl ValueOrigins {
    /// The origin of the value of `field`; `default` when no source sets it.
    pub fn of(&self, field: &str) -> &str {
        self.0.get(field).map_or("default", String::as_str)
    }
}

/// The kind of a source, and the name of a variable.
fn origin_of(source: &str) -> &str {
    match source.split_once(' ') {
        Some(("variable", _)) => source,
        Some(("flag", _)) => "option",
        _ => "file",
    }
}

/// A configuration that passed all checks, with the source of every value.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    loader: ConfigLoader,
    sources: ConfigSources,
    merged: MergedConfig,
    checked: BTreeMap<&'static str, CheckedSection>,
    warnings: Vec<String>,
}

impl LoadedConfig {
    /// The section `name`.
    ///
    /// # Errors
    ///
    /// The section was not added to the loader, or was added with another type.
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

    /// The error of problems that a later check found in a section, with the sources of the values. The values are left
    /// out, because that of a table may contain secrets.
    pub fn problem_error(
        &self,
        section: &str,
        problems: impl IntoIterator<Item = ConfigProblem>,
    ) -> ConfigError {
        let findings = problems.into_iter().map(|problem| {
            let key = format!("{section}.{}", problem.field);
            ConfigFinding {
                source: self.merged.source_of(&key).unwrap_or("default").to_owned(),
                key,
                value: None,
                message: problem.message,
            }
        });
        ConfigError {
            findings: findings.collect(),
        }
    }

    /// Whether no source sets `key` (section and field, dots between levels).
    pub fn is_default(&self, key: &str) -> bool {
        self.merged.source_of(key).is_none()
    }

    /// Kinds of the sources of the values in `section`, by field.
    pub fn origins(&self, section: &str) -> ValueOrigins {
        let known = self
            .loader
            .sections
            .iter()
            .find(|known| known.name == section);
        // The fields are taken from the defaults, which have all of them, because building the schema takes
        // milliseconds.
        let fields = known.and_then(|known| known.defaults.as_object());
        let origin = |name: &String| {
            let source = self.merged.source_of(&format!("{section}.{name}"))?;
            Some((name.clone(), origin_of(source).to_owned()))
        };
        let fields = fields.into_iter().flat_map(serde_json::Map::keys);
        ValueOrigins(fields.filter_map(origin).collect())
    }

    /// Reads `section` again from the same sources.
    pub fn reader(&self, section: &'static str) -> SectionReader {
        SectionReader::new(section, self.loader.clone(), self.sources.clone())
    }

    /// Every effective value and its source; secrets are `***`. Builds the schemas of all sections, which takes
    /// milliseconds.
    pub fn report(&self) -> ConfigReport {
        ConfigReport::new(&self.loader.sections, &self.merged, &self.checked)
    }

    /// Warnings for the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
