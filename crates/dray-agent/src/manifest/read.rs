//! Reads a [`Manifest`] from JSON.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::Manifest;
use super::check::{CheckReport, ManifestProblem, ManifestSchema};

/// Settings of the service that decide how manifests are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestSettings {
    /// Whether preview features may be used.
    pub preview: bool,
    /// The model of manifests that name no model. A blank name counts as unset.
    pub default_deployment: Option<String>,
}

impl ManifestSettings {
    /// The default model of manifests.
    pub(super) fn deployment(&self) -> Option<&str> {
        // A blank variable counts as unset (quickapps 6.2).
        let id = self.default_deployment.as_deref()?.trim();
        (!id.is_empty()).then_some(id)
    }
}

/// A manifest or a part of one, with warnings for the log.
#[derive(Clone, Debug)]
pub struct ReadManifest<T> {
    /// The value, with defaults of the types filled in.
    pub value: T,
    /// A line for each disabled feature and each unknown key.
    pub warnings: Vec<String>,
}

/// A document with problems: status 400. Prints a line for each.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", problem_lines(problems))]
pub struct InvalidManifest {
    /// All of them, in the order of the document; never empty.
    pub problems: Vec<ManifestProblem>,
}

fn problem_lines(problems: &[ManifestProblem]) -> String {
    let lines: Vec<_> = problems.iter().map(ManifestProblem::to_string).collect();
    lines.join("\n")
}

/// Reads manifests and their parts. Create it once, because it contains the schema.
#[derive(Debug)]
pub struct ManifestReader {
    settings: ManifestSettings,
    schema: ManifestSchema,
}

impl ManifestReader {
    /// A reader with the service's settings.
    pub fn new(settings: ManifestSettings) -> Self {
        Self {
            settings,
            schema: ManifestSchema::of::<Manifest>(),
        }
    }

    /// Reads a manifest.
    ///
    /// # Errors
    ///
    /// [`InvalidManifest`] with every problem.
    pub fn manifest(&self, mut document: Value) -> Result<ReadManifest<Manifest>, InvalidManifest> {
        if let (Some(id), Some(orchestrator)) = (
            self.settings.deployment(),
            document
                .get_mut("orchestrator")
                .and_then(Value::as_object_mut),
        ) {
            // The check below requires the member.
            insert_default(orchestrator, id);
        }
        self.read(&self.schema.0, document)
    }

    /// Reads a part of a manifest separately, such as a tool set.
    pub(crate) fn part<T: DeserializeOwned + JsonSchema>(
        &self,
        document: Value,
    ) -> Result<ReadManifest<T>, InvalidManifest> {
        let schema = json!({ "$ref": format!("#/$defs/{}", T::schema_name()) });
        self.read(&schema, document)
    }

    fn read<T: DeserializeOwned>(
        &self,
        schema: &Value,
        mut document: Value,
    ) -> Result<ReadManifest<T>, InvalidManifest> {
        let mut warnings = Vec::new();
        // The document is prepared before the check, because old keys and disabled previews are not problems.
        self.schema
            .prepare(schema, &mut document, self.settings.preview, &mut warnings);
        let mut report = CheckReport::default();
        self.schema.check(schema, &document, "", &mut report);
        if !report.problems.is_empty() {
            return Err(InvalidManifest {
                problems: report.problems,
            });
        }
        let unknown = report.unknown.iter();
        warnings.extend(unknown.map(|path| format!("Unknown key \"{path}\" is ignored.")));
        match serde_json::from_value(document) {
            Ok(value) => Ok(ReadManifest { value, warnings }),
            // The schema is satisfied, so the only possible error is a number outside the range of its Rust type.
            // Serde's message would quote it.
            Err(_) => Err(InvalidManifest {
                problems: vec![ManifestProblem {
                    path: String::new(),
                    reason: "holds a number that is out of range".to_owned(),
                }],
            }),
        }
    }
}

/// Inserts the default model if the manifest has none.
fn insert_default(orchestrator: &mut Map<String, Value>, id: &str) {
    if orchestrator.get("deployment").is_none_or(Value::is_null) {
        orchestrator.insert("deployment".to_owned(), json!({ "deployment_id": id }));
    }
}
