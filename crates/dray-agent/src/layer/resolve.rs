//! Replaces the names of templates in a manifest by the entries of the layers (quickapps 8.2, 8.4).

use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::patch::{RefusedPatch, apply_patch};
use super::{EntryKind, LayerSet};
use crate::manifest::orchestrator::SystemPrompt;
use crate::manifest::tool::{DeploymentTool, InternalTool, RestTool};
use crate::manifest::toolset::{Predefined, ToolSet};
use crate::manifest::{ManifestProblem, ManifestReader};

#[cfg(test)]
mod tests;

/// A template that could not be used. The entry with it is left out; all others are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFailure {
    /// Name of the template.
    pub template: String,
    /// The problem of the template or its patch.
    pub cause: TemplateFailureCause,
}

/// The reason why a template could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateFailureCause {
    /// No layer has a template of this kind and name.
    Missing(EntryKind),
    /// The manifest changes members that it must not change.
    Refused(Vec<RefusedPatch>),
    /// The template with the changes does not match its type.
    Invalid(Vec<ManifestProblem>),
    /// The template refers to itself, directly or through others.
    Endless,
}

impl TemplateFailure {
    /// The failure in one line.
    pub fn message(&self) -> String {
        match &self.cause {
            TemplateFailureCause::Missing(kind) => format!(
                "{} '{}' not found in predefined content",
                kind.as_str(),
                self.template
            ),
            TemplateFailureCause::Refused(_) => "the override is refused".to_owned(),
            TemplateFailureCause::Invalid(_) => "the configuration is not valid".to_owned(),
            TemplateFailureCause::Endless => "the template refers to itself".to_owned(),
        }
    }

    /// A line `path: reason` for each problem.
    pub fn details(&self) -> Vec<String> {
        match &self.cause {
            TemplateFailureCause::Refused(refusals) => {
                refusals.iter().map(ToString::to_string).collect()
            }
            TemplateFailureCause::Invalid(problems) => {
                problems.iter().map(ToString::to_string).collect()
            }
            TemplateFailureCause::Missing(_) | TemplateFailureCause::Endless => Vec::new(),
        }
    }
}

/// The entry in the stage *Initialization issues* (quickapps 40).
impl fmt::Display for TemplateFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "- **template '{}'**: {}", self.template, self.message())?;
        let details = self.details();
        if details.is_empty() {
            return Ok(());
        }
        write!(f, "\n  ```\n  {}\n  ```", details.join("\n  "))
    }
}

/// Tool sets without names of templates.
#[derive(Clone, Debug, Default)]
pub struct ResolvedToolsets {
    /// Enabled tool sets, in the order of the manifest.
    pub tool_sets: Vec<ToolSet>,
    /// Templates that could not be used; their entries are left out.
    pub failures: Vec<TemplateFailure>,
    /// Lines for the log.
    pub warnings: Vec<String>,
}

impl LayerSet {
    /// Returns the configured text of the system prompt; empty for a prompt that DIAL stores.
    ///
    /// # Errors
    ///
    /// [`TemplateFailure`] for a name that no layer has; the request ends with it.
    pub fn system_prompt<'a>(
        &'a self,
        prompt: &'a SystemPrompt,
    ) -> Result<&'a str, TemplateFailure> {
        match prompt {
            SystemPrompt::Custom { content, .. } => Ok(content),
            // The backend of Quick Apps never loads this prompt either (quickapps 6.2).
            SystemPrompt::Dial { .. } => Ok(""),
            SystemPrompt::Predefined { template, .. } => self
                .text(EntryKind::Prompt, template)
                .ok_or_else(|| TemplateFailure {
                    template: template.clone(),
                    cause: TemplateFailureCause::Missing(EntryKind::Prompt),
                }),
        }
    }

    /// Replaces every template of a manifest: first those of tool sets, then those of the tools in them. Disabled
    /// entries are left out without looking up their templates.
    pub fn resolve(&self, reader: &ManifestReader, tool_sets: Vec<ToolSet>) -> ResolvedToolsets {
        let mut run = ResolutionRun {
            layers: self,
            reader,
            resolved: ResolvedToolsets::default(),
        };
        for tool_set in run.resolve_all(tool_sets) {
            let tool_set = run.resolve_tools(tool_set);
            run.resolved.tool_sets.push(tool_set);
        }
        run.resolved
    }
}

/// An entry of a manifest that may name a template instead of being written out.
trait TemplateTarget: DeserializeOwned + JsonSchema {
    /// Kind of the templates that can replace it.
    const KIND: EntryKind;

    /// The template that it names.
    fn template(&self) -> Option<&Predefined>;

    /// Whether the manifest enables it.
    fn is_enabled(&self) -> bool;
}

impl TemplateTarget for ToolSet {
    const KIND: EntryKind = EntryKind::ToolSet;

    fn template(&self) -> Option<&Predefined> {
        match self {
            Self::Predefined(template) => Some(template),
            _ => None,
        }
    }

    fn is_enabled(&self) -> bool {
        match self {
            Self::RestApi(set) => set.common.enabled,
            Self::DialDeployment(set) => set.common.enabled,
            Self::Internal(set) => set.common.enabled,
            Self::Mcp(set) => set.common.enabled,
            Self::DialMcp(set) => set.common.enabled,
            Self::DialApp(set) => set.common.enabled,
            Self::Agents(set) => set.common.enabled,
            Self::Predefined(template) => template.enabled,
        }
    }
}

impl TemplateTarget for RestTool {
    const KIND: EntryKind = EntryKind::Tool;

    fn template(&self) -> Option<&Predefined> {
        match self {
            Self::Predefined(template) => Some(template),
            Self::Endpoint(_) => None,
        }
    }

    fn is_enabled(&self) -> bool {
        match self {
            Self::Endpoint(tool) => tool.common.enabled,
            Self::Predefined(template) => template.enabled,
        }
    }
}

impl TemplateTarget for DeploymentTool {
    const KIND: EntryKind = EntryKind::Tool;

    fn template(&self) -> Option<&Predefined> {
        match self {
            Self::PredefinedTool(template) => Some(template),
            _ => None,
        }
    }

    fn is_enabled(&self) -> bool {
        match self {
            Self::DeploymentTool(tool) => tool.common.enabled,
            Self::DialDeploymentSimple { enabled, .. } => *enabled,
            Self::PredefinedTool(template) => template.enabled,
        }
    }
}

impl TemplateTarget for InternalTool {
    const KIND: EntryKind = EntryKind::Tool;

    fn template(&self) -> Option<&Predefined> {
        match self {
            Self::PredefinedTool(template) => Some(template),
            Self::PythonInterpreter(_) => None,
        }
    }

    fn is_enabled(&self) -> bool {
        match self {
            Self::PythonInterpreter(tool) => tool.enabled,
            Self::PredefinedTool(template) => template.enabled,
        }
    }
}

/// State of one call of [`LayerSet::resolve`].
struct ResolutionRun<'a> {
    layers: &'a LayerSet,
    reader: &'a ManifestReader,
    resolved: ResolvedToolsets,
}

impl ResolutionRun<'_> {
    fn resolve_tools(&mut self, mut tool_set: ToolSet) -> ToolSet {
        match &mut tool_set {
            ToolSet::RestApi(set) => set.tools = self.resolve_all(std::mem::take(&mut set.tools)),
            ToolSet::DialDeployment(set) => {
                set.tools = self.resolve_all(std::mem::take(&mut set.tools));
            }
            ToolSet::Internal(set) => set.tools = self.resolve_all(std::mem::take(&mut set.tools)),
            ToolSet::Mcp(_)
            | ToolSet::DialMcp(_)
            | ToolSet::DialApp(_)
            | ToolSet::Agents(_)
            | ToolSet::Predefined(_) => {}
        }
        tool_set
    }

    fn resolve_all<T: TemplateTarget>(&mut self, entries: Vec<T>) -> Vec<T> {
        entries
            .into_iter()
            .filter_map(|entry| self.resolve_one(entry))
            .collect()
    }

    /// Follows templates until an entry has none.
    fn resolve_one<T: TemplateTarget>(&mut self, mut entry: T) -> Option<T> {
        let mut trail: Vec<String> = Vec::new();
        while entry.is_enabled() {
            let Some(template) = entry.template() else {
                return Some(entry);
            };
            let name = template.template_name.clone();
            // A template may name another one, and the layers of an operator may form a cycle.
            let read = if trail.contains(&name) {
                Err(TemplateFailureCause::Endless)
            } else {
                self.load(template)
            };
            match read {
                Ok(read) => entry = read,
                Err(cause) => {
                    self.resolved.failures.push(TemplateFailure {
                        template: name,
                        cause,
                    });
                    return None;
                }
            }
            trail.push(name);
        }
        None
    }

    /// Reads a template with the changes of the manifest.
    fn load<T: TemplateTarget>(
        &mut self,
        template: &Predefined,
    ) -> Result<T, TemplateFailureCause> {
        let name = &template.template_name;
        let body = self.layers.body(T::KIND, name);
        let body = body.ok_or(TemplateFailureCause::Missing(T::KIND))?;
        let body = match &template.patch {
            // The patch is applied before the body is parsed into its type, because a patch may add missing members
            // (quickapps 8.3).
            Some(patch) => apply_patch(body, patch).map_err(TemplateFailureCause::Refused)?,
            None => body.clone(),
        };
        let reading = self
            .reader
            .part::<T>(body)
            .map_err(|invalid| TemplateFailureCause::Invalid(invalid.problems))?;
        let warnings = reading.warnings.into_iter();
        self.resolved
            .warnings
            .extend(warnings.map(|warning| format!("template '{name}': {warning}")));
        Ok(reading.value)
    }
}
