//! Puts the sources on top of each other and hands out typed sections.

use std::collections::BTreeMap;
use std::path::Path;

use figment::Figment;
use serde_json::Value;

use super::check::Collector;
use super::layer::Layer;
use super::report::Report;
use super::schema::{Checked, SectionSpec};
use super::variable::{flag_layer, variable_layers};
use super::{ConfigError, Finding, Section, Sources};

/// The sections that a process knows, and how they are loaded together.
#[derive(Clone, Debug, Default)]
pub struct Loader {
    sections: Vec<SectionSpec>,
}

impl Loader {
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

    /// Reads all sources and checks everything. The error lists all that is wrong at once.
    pub fn load(&self, sources: &Sources) -> Result<Loaded, ConfigError> {
        let mut collector = Collector::new(&self.sections);
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
        let figment = self.figment(&layers);
        let checked = self.check_types(&figment, &mut collector);
        if !collector.findings.is_empty() {
            return Err(ConfigError {
                findings: collector.findings,
            });
        }
        Ok(Loaded {
            report: Report::new(&self.sections, &figment, &checked),
            warnings: collector.warnings,
            figment,
        })
    }

    fn figment(&self, layers: &[Layer]) -> Figment {
        let mut figment = Figment::new();
        for section in &self.sections {
            figment = figment.merge(Layer::single(
                "default",
                &[section.name],
                section.defaults.clone(),
            ));
        }
        for layer in layers {
            figment = figment.merge(layer.clone());
        }
        figment
    }

    /// Lets each section's type read its values, and say what it thinks of them.
    fn check_types(
        &self,
        figment: &Figment,
        collector: &mut Collector<'_>,
    ) -> BTreeMap<&'static str, Checked> {
        let mut all = BTreeMap::new();
        for section in &self.sections {
            match (section.check)(figment, section.name) {
                Ok(checked) => {
                    for problem in &checked.problems {
                        collector.refused(figment, section, problem);
                    }
                    collector.check_conflicts(figment, section);
                    all.insert(section.name, checked);
                }
                Err(errors) => {
                    for error in *errors {
                        collector.unreadable(figment, section, &error);
                    }
                }
            }
        }
        all
    }
}

fn read_file(path: &Path, collector: &mut Collector<'_>) -> Option<Layer> {
    let source = format!("file {}", path.display());
    let mut unreadable = |message: String| {
        collector.findings.push(Finding {
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
        Ok(tree) => Some(Layer::new(source, tree)),
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
pub struct Loaded {
    figment: Figment,
    report: Report,
    warnings: Vec<String>,
}

impl Loaded {
    /// The section `name`. It was read before, so this fails only for a section that the loader did not know.
    pub fn section<S: Section>(&self, name: &str) -> Result<S, ConfigError> {
        self.figment
            .extract_inner(name)
            .map_err(|error| ConfigError {
                findings: vec![Finding {
                    key: name.to_owned(),
                    source: String::new(),
                    value: None,
                    message: error.to_string(),
                }],
            })
    }

    /// Every effective value and where it came from; secrets are `***`.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// What was odd but not wrong, for the log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
