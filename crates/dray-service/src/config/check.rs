//! Finds problems of keys and values: unknown keys, values that a type cannot parse or refuses, and two variables that
//! set one field differently. It reads no source of configuration.

use serde_json::Value;

use super::layer::ConfigLayer;
use super::merged::MergedConfig;
use super::schema::{InvalidValue, SchemaNode, SectionSpec, ValueKind};
use super::secrets_dir::without_line_break;
use super::text::expected_text;
use super::{ConfigFinding, ConfigProblem};

/// Collects all problems, so that they are reported together.
pub(super) struct FindingCollector<'a> {
    pub(super) sections: &'a [SectionSpec],
    pub(super) findings: Vec<ConfigFinding>,
    pub(super) warnings: Vec<String>,
    /// Variables that set a field which has aliases, in the order they were read.
    pub(super) contenders: Vec<VariableClaim>,
}

/// What a setting that is an address must be, as the rest of a sentence.
pub const SOCKET_ADDRESS_RULE: &str =
    "must be an IP address and a port, such as 127.0.0.1:50051 (port 0 takes a free one)";
/// The beginning of the standard library's message for other text.
const SOCKET_ADDRESS_ERROR: &str = "invalid socket address";

/// The value of one variable for a field that several variables can set.
pub(super) struct VariableClaim {
    pub(super) section: &'static str,
    pub(super) field: &'static str,
    pub(super) layer: ConfigLayer,
}

impl<'a> FindingCollector<'a> {
    pub(super) fn new(sections: &'a [SectionSpec]) -> Self {
        Self {
            sections,
            findings: Vec::new(),
            warnings: Vec::new(),
            contenders: Vec::new(),
        }
    }

    pub(super) fn add_finding(
        &mut self,
        key: &str,
        source: &str,
        value: Option<&str>,
        message: impl Into<String>,
    ) {
        self.findings.push(ConfigFinding {
            key: key.to_owned(),
            source: source.to_owned(),
            value: value.map(str::to_owned),
            message: message.into(),
        });
    }

    /// Refuses unknown keys, and replaces `<secret>_file` by the content of the file.
    pub(super) fn check_tree(&mut self, layer: &mut ConfigLayer) {
        let ConfigLayer { source, tree } = layer;
        let Value::Object(tables) = tree else {
            return;
        };
        for (name, tree) in tables {
            if let Some(section) = self.sections.iter().find(|section| section.name == name) {
                self.check_node(section.root(), name, source, tree);
            } else {
                let known = self.sections.iter().map(|section| section.name);
                let message = unknown_name_message("section", name, known);
                self.add_finding(name, source, None, message);
            }
        }
    }

    fn check_node(&mut self, node: SchemaNode<'_>, key: &str, source: &str, tree: &mut Value) {
        match (node.kind(), tree) {
            (ValueKind::Fields, Value::Object(table)) => {
                // The files are read before the fields are checked, because `<secret>_file` is not a field.
                self.read_secret_files(node, key, source, table);
                for (name, value) in table {
                    let key = format!("{key}.{name}");
                    if let Some(field) = node.field(name) {
                        self.check_node(field, &key, source, value);
                    } else {
                        let known = node.fields().map(|(name, _)| name);
                        self.add_finding(
                            &key,
                            source,
                            None,
                            unknown_name_message("field", name, known),
                        );
                    }
                }
            }
            // `null` for an optional table unsets it.
            (ValueKind::Fields, Value::Null) if node.is_nullable() => {}
            (ValueKind::Fields, other) => {
                self.add_finding(key, source, Some(&other.to_string()), expected_text(node));
            }
            // A map accepts any key; only its values can be checked.
            (ValueKind::Any, Value::Object(table)) => {
                if let Some(values) = node.values() {
                    for (name, value) in table {
                        self.check_node(values, &format!("{key}.{name}"), source, value);
                    }
                }
            }
            (ValueKind::List, Value::Array(items)) => {
                if let Some(node) = node.items() {
                    for (index, item) in items.iter_mut().enumerate() {
                        self.check_node(node, &format!("{key}.{index}"), source, item);
                    }
                }
            }
            // Scalars are parsed by the section's own type, which has better messages.
            _ => {}
        }
    }

    /// Reads `<secret>_file` keys: `password_file = "/run/secrets/p"` is replaced by the text of that file without its
    /// last line break.
    fn read_secret_files(
        &mut self,
        node: SchemaNode<'_>,
        key: &str,
        source: &str,
        table: &mut serde_json::Map<String, Value>,
    ) {
        let secrets: Vec<&str> = node
            .fields()
            .filter(|(_, field)| field.is_secret())
            .map(|(name, _)| name)
            .collect();
        for name in secrets {
            let file_key = format!("{name}_file");
            // The section has a field with exactly this name.
            if node.field(&file_key).is_some() {
                continue;
            }
            let Some(path) = table.remove(&file_key) else {
                continue;
            };
            let key = format!("{key}.{file_key}");
            // The check is within one layer: a layer above may replace the file of the one below by a value.
            if table.contains_key(name) {
                self.add_finding(
                    &key,
                    source,
                    None,
                    format!("must not be set together with `{name}`"),
                );
                continue;
            }
            let path = path.as_str().unwrap_or_default();
            match std::fs::read_to_string(path) {
                Ok(text) => {
                    table.insert(name.to_owned(), without_line_break(&text).into());
                }
                Err(error) => self.add_finding(
                    &key,
                    source,
                    Some(path),
                    format!("must name a readable file: {error}"),
                ),
            }
        }
    }

    /// Records the problems that a section's own checks found.
    pub(super) fn add_problem(
        &mut self,
        merged: &MergedConfig,
        section: &SectionSpec,
        problem: &ConfigProblem,
    ) {
        let key = format!("{}.{}", section.name, problem.field);
        // Without a source the default is wrong, or a combination of fields is.
        let source = merged.source_of(&key).unwrap_or("default");
        let secret = lookup_field(section, &problem.field).is_some_and(SchemaNode::is_secret);
        let value = merged
            .find(&key)
            .and_then(|value| display_value(value, secret));
        self.add_finding(&key, source, value.as_deref(), problem.message.clone());
    }

    /// Records the values that a section's type could not parse.
    pub(super) fn add_invalid_value(
        &mut self,
        merged: &MergedConfig,
        section: &SectionSpec,
        error: &InvalidValue,
    ) {
        let key = match error.field.as_str() {
            "" => section.name.to_owned(),
            field => format!("{}.{field}", section.name),
        };
        let node = lookup_field(section, &error.field);
        // The key may point into a list, which always comes completely from one layer.
        let source = self_and_parents(&key)
            .find_map(|key| merged.source_of(key))
            .unwrap_or_default();
        let secret = node.is_some_and(SchemaNode::is_secret);
        let value = merged
            .find(&key)
            .and_then(|value| display_value(value, secret));
        // Serde's messages for these name Rust types; the schema gives better messages for an operator.
        let is_about_type = ["invalid type", "unknown variant"]
            .iter()
            .any(|start| error.message.starts_with(start));
        let message = match node {
            _ if error.message.starts_with(SOCKET_ADDRESS_ERROR) => SOCKET_ADDRESS_RULE.to_owned(),
            Some(node) if is_about_type => expected_text(node),
            _ => error.message.clone(),
        };
        self.add_finding(&key, source, value.as_deref(), message);
    }

    /// Refuses two variables that set one field, unless they mean the same.
    pub(super) fn check_conflicts(&mut self, merged: &MergedConfig, section: &SectionSpec) {
        let contenders: Vec<&VariableClaim> = self
            .contenders
            .iter()
            .filter(|contender| contender.section == section.name)
            .collect();
        let mut findings = Vec::new();
        for (index, one) in contenders.iter().enumerate() {
            for other in contenders.iter().skip(index + 1) {
                if one.field == other.field && values_differ(merged, section, one, other) {
                    findings.push(ConfigFinding {
                        key: format!("{}.{}", section.name, one.field),
                        source: format!("{} and {}", one.layer.source, other.layer.source),
                        value: None,
                        message:
                            "is set to different values; set one of the two, or both to the same"
                                .to_owned(),
                    });
                }
            }
        }
        self.findings.extend(findings);
    }
}

/// Whether the section's type reads two different values from two variables. Secrets are compared as raw values,
/// because their typed form is always `***`.
fn values_differ(
    merged: &MergedConfig,
    section: &SectionSpec,
    one: &VariableClaim,
    other: &VariableClaim,
) -> bool {
    let path: Vec<&str> = std::iter::once(section.name)
        .chain(one.field.split('.'))
        .collect();
    if one.layer.find(&path) == other.layer.find(&path) {
        return false;
    }
    if lookup_field(section, one.field).is_some_and(SchemaNode::is_secret) {
        return true;
    }
    // The values are compared as the type reads them: `5` seconds and `5s` mean the same.
    let read = |contender: &VariableClaim| {
        let merged = merged.with(contender.layer.clone());
        let checked = (section.read)(merged.section(section.name)).ok()?;
        one.field
            .split('.')
            .try_fold(&checked.redacted, |tree, key| tree.get(key))
            .cloned()
    };
    read(one) != read(other)
}

/// The field at a dotted path; values of maps and items of lists are found under any name.
pub(super) fn lookup_field<'a>(section: &'a SectionSpec, field: &str) -> Option<SchemaNode<'a>> {
    field.split('.').try_fold(section.root(), |node, name| {
        node.field(name)
            .or_else(|| node.values())
            .or_else(|| node.items())
    })
}

/// The key and its parents: `a.b.c`, `a.b`, `a`.
fn self_and_parents(key: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(key), |key| {
        key.rsplit_once('.').map(|(parent, _)| parent)
    })
}

/// Formats a value for an error, without secrets; `None` for tables, whose fields may be secret.
pub(super) fn display_value(value: &Value, secret: bool) -> Option<String> {
    match value {
        // An empty secret may be shown as such: it reveals no secret and explains the error.
        Value::String(text) if text.is_empty() => Some(String::new()),
        Value::Null => Some(String::new()),
        _ if secret => Some("***".to_owned()),
        Value::String(text) => Some(text.clone()),
        Value::Object(_) => None,
        Value::Array(items) if items.iter().any(Value::is_object) => None,
        other => Some(other.to_string()),
    }
}

/// Message for an unknown `name`, with the known name that may have been meant.
pub(super) fn unknown_name_message<'a>(
    description: &str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> String {
    let known: Vec<&str> = known.collect();
    let nearest = known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .min()
        // A less similar name would be misleading.
        .filter(|(distance, _)| *distance <= 3);
    match nearest {
        Some((_, candidate)) => {
            format!("is not a known {description}; did you mean `{candidate}`?")
        }
        None => format!("is not a known {description}; known: {}", known.join(", ")),
    }
}
