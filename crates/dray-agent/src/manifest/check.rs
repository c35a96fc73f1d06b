//! Checks a document against the schema of a type and finds every problem, whereas deserialization would stop at the
//! first one. Supports only the keywords that the schemas of [`super::Manifest`] and its parts use.

use std::fmt;

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

/// A problem at one place of a document. Prints as `path: reason`; never shows a value, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestProblem {
    /// Keys and indices from the root, joined by dots; empty for the root.
    pub path: String,
    /// The problem, as the predicate of a sentence about the path: `is required`.
    pub reason: String,
}

impl fmt::Display for ManifestProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() {
            "(root)"
        } else {
            &self.path
        };
        write!(f, "{path}: {}", self.reason)
    }
}

/// The findings of a check.
#[derive(Debug, Default)]
pub(super) struct CheckReport {
    pub(super) problems: Vec<ManifestProblem>,
    /// Paths of unknown keys.
    pub(super) unknown: Vec<String>,
}

impl CheckReport {
    fn problem(&mut self, path: &str, reason: impl Into<String>) {
        self.problems.push(ManifestProblem {
            path: path.to_owned(),
            reason: reason.into(),
        });
    }
}

/// A schema with the definitions that it refers to.
#[derive(Debug)]
pub(super) struct ManifestSchema(pub(super) Value);

/// The reason why no variant matches, with the key that it is about, if any.
pub(super) struct VariantMismatch(Option<&'static str>, String);

impl ManifestSchema {
    pub(super) fn of<T: JsonSchema>() -> Self {
        let generator = SchemaSettings::draft2020_12().into_generator();
        Self(generator.into_root_schema_for::<T>().to_value())
    }

    /// All schemas that apply to a value together: the given one, the referenced ones, and the variants that the value
    /// selects.
    pub(super) fn applicable<'s>(
        &'s self,
        schema: &'s Value,
        value: &Value,
    ) -> Result<Vec<&'s Map<String, Value>>, VariantMismatch> {
        let mut chain = Vec::new();
        self.collect(schema, value, &mut chain)?;
        Ok(chain)
    }

    fn collect<'s>(
        &'s self,
        schema: &'s Value,
        value: &Value,
        chain: &mut Vec<&'s Map<String, Value>>,
    ) -> Result<(), VariantMismatch> {
        let Some(members) = schema.as_object() else {
            return Ok(());
        };
        chain.push(members);
        // Keywords next to `$ref` apply as well (JSON Schema 2020-12, core 8.2.3.1).
        if let Some(target) = self.target(members) {
            self.collect(target, value, chain)?;
        }
        if let Some(Value::Array(either)) = members.get("anyOf")
            && let Some(variant) = fitting_alternative(either, value)?
        {
            self.collect(variant, value, chain)?;
        }
        if let Some(Value::Array(variants)) = members.get("oneOf")
            && let Some(variant) = chosen_variant(variants, value)?
        {
            self.collect(variant, value, chain)?;
        }
        Ok(())
    }

    /// The definition to which `$ref` refers; `None` for another kind of reference.
    fn target(&self, members: &Map<String, Value>) -> Option<&Value> {
        let name = members.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        self.0.get("$defs")?.get(name)
    }

    /// Finds every problem of a value.
    pub(super) fn check(
        &self,
        schema: &Value,
        value: &Value,
        path: &str,
        report: &mut CheckReport,
    ) {
        let chain = match self.applicable(schema, value) {
            Ok(chain) => chain,
            Err(VariantMismatch(key, reason)) => {
                let path = key.map_or_else(|| path.to_owned(), |key| join_member_path(path, key));
                return report.problem(&path, reason);
            }
        };
        for members in &chain {
            if let Some(reason) = broken_keyword(members, value) {
                // A value of the wrong type has no members to check.
                return report.problem(path, reason);
            }
        }
        for rule in chain.iter().filter_map(|members| members.get("x-rule")) {
            if let Some((key, reason)) = rule.as_str().and_then(|rule| broken_rule(rule, value)) {
                report.problem(&join_member_path(path, key), reason);
            }
        }
        match value {
            Value::Object(object) => self.check_object(&chain, object, path, report),
            Value::Array(items) => {
                let schemas = || chain.iter().filter_map(|members| members.get("items"));
                for (index, item) in items.iter().enumerate() {
                    for schema in schemas() {
                        self.check(
                            schema,
                            item,
                            &join_member_path(path, &index.to_string()),
                            report,
                        );
                    }
                }
            }
            _ => {}
        }
    }

    fn check_object(
        &self,
        chain: &[&Map<String, Value>],
        object: &Map<String, Value>,
        path: &str,
        report: &mut CheckReport,
    ) {
        let required = chain.iter().filter_map(|members| members.get("required"));
        for key in required.filter_map(Value::as_array).flatten() {
            if let Some(key) = key.as_str().filter(|key| !object.contains_key(*key)) {
                report.problem(&join_member_path(path, key), "is required");
            }
        }
        let is_described = chain
            .iter()
            .any(|members| members.contains_key("properties"));
        for (key, value) in object {
            let path = join_member_path(path, key);
            match member_schema(chain, key) {
                // These are closed objects, in which a key that is ignored would be dangerous.
                Some(Value::Bool(false)) => report.problem(&path, "is not a known key"),
                Some(schema) => self.check(schema, value, &path, report),
                // This is a warning and not a problem, because manifests are used with several releases.
                None if is_described => report.unknown.push(path),
                None => {}
            }
        }
    }
}

/// The alternative with the type of the value; `None` for an allowed `null`.
fn fitting_alternative<'s>(
    either: &'s [Value],
    value: &Value,
) -> Result<Option<&'s Value>, VariantMismatch> {
    let is_null = |schema: &&Value| schema.get("type").and_then(Value::as_str) == Some("null");
    if value.is_null() && either.iter().any(|schema| is_null(&schema)) {
        return Ok(None);
    }
    let others: Vec<_> = either.iter().filter(|schema| !is_null(schema)).collect();
    // The problems of the only alternative help more than the message that none matches.
    if let [only] = others[..] {
        return Ok(Some(only));
    }
    let allows_type =
        |schema: &&Value| schema.get("type").is_some_and(|kind| has_type(kind, value));
    match others.iter().find(|schema| allows_type(schema)) {
        Some(found) => Ok(Some(found)),
        None => Err(VariantMismatch(
            None,
            "has none of the allowed types".to_owned(),
        )),
    }
}

/// The schema of a member of an object.
pub(super) fn member_schema<'s>(chain: &[&'s Map<String, Value>], key: &str) -> Option<&'s Value> {
    let named = chain
        .iter()
        .find_map(|members| members.get("properties")?.get(key));
    // Only for members that `properties` does not name (JSON Schema 2020-12, core 10.3.2.3).
    named.or_else(|| {
        chain
            .iter()
            .find_map(|members| members.get("additionalProperties"))
    })
}

/// The variant that the value's `type` names; `None` if the variants are plain values and one of them matches.
fn chosen_variant<'s>(
    variants: &'s [Value],
    value: &Value,
) -> Result<Option<&'s Value>, VariantMismatch> {
    let plain: Vec<_> = variants
        .iter()
        .filter_map(Value::as_object)
        .flat_map(allowed_values)
        .collect();
    if !plain.is_empty() {
        let fits = plain.contains(&value);
        return if fits {
            Ok(None)
        } else {
            Err(VariantMismatch(None, one_of(&plain)))
        };
    }
    if !value.is_object() {
        return Err(VariantMismatch(None, must_be("an object", value)));
    }
    let tag = |variant: &'s Value| variant.get("properties")?.get("type")?.get("const");
    let given = value.get("type");
    let found = variants
        .iter()
        // Without the first condition, a variant without a tag would match a value without a type.
        .find(|variant| given.is_some() && tag(variant) == given);
    found.map(Some).ok_or_else(|| {
        let tags: Vec<_> = variants.iter().filter_map(tag).collect();
        VariantMismatch(Some("type"), one_of(&tags))
    })
}

fn one_of(values: &[&Value]) -> String {
    let names: Vec<_> = values.iter().filter_map(|value| value.as_str()).collect();
    format!("must be one of {}", names.join(", "))
}

fn must_be(description: &str, value: &Value) -> String {
    // The kind and never the value, which may be a secret.
    let actual = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    format!("must be {description}, not {actual}")
}

/// The first keyword of one schema that the value itself violates. Members and items are not checked.
fn broken_keyword(schema: &Map<String, Value>, value: &Value) -> Option<String> {
    if let Some(kind) = schema.get("type").filter(|kind| !has_type(kind, value)) {
        let kinds = kind
            .as_array()
            .map_or(std::slice::from_ref(kind), Vec::as_slice);
        let names: Vec<_> = kinds
            .iter()
            .filter_map(Value::as_str)
            .map(with_article)
            .collect();
        return Some(must_be(&names.join(" or "), value));
    }
    let allowed = allowed_values(schema);
    if !allowed.is_empty() && !allowed.contains(&value) {
        return Some(one_of(&allowed));
    }
    let bound = |key| schema.get(key).and_then(Value::as_f64);
    if let Some(number) = value.as_f64() {
        let minimum = bound("minimum").filter(|minimum| number < *minimum);
        let exclusive_minimum = bound("exclusiveMinimum").filter(|minimum| number <= *minimum);
        let maximum = bound("maximum").filter(|maximum| number > *maximum);
        return minimum
            .map(|minimum| format!("must be at least {minimum}"))
            .or_else(|| exclusive_minimum.map(|minimum| format!("must be more than {minimum}")))
            .or_else(|| maximum.map(|maximum| format!("must be at most {maximum}")));
    }
    let min_items = schema.get("minItems").and_then(Value::as_u64)?;
    let is_short = u64::try_from(value.as_array()?.len()).is_ok_and(|length| length < min_items);
    is_short.then(|| format!("must have at least {min_items} item"))
}

/// The values to which `enum` and `const` of a schema restrict a value; empty without these keywords.
fn allowed_values(schema: &Map<String, Value>) -> Vec<&Value> {
    let listed = schema.get("enum").and_then(Value::as_array);
    listed
        .into_iter()
        .flatten()
        .chain(schema.get("const"))
        .collect()
}

fn with_article(kind: &str) -> &str {
    match kind {
        "string" => "a string",
        "number" => "a number",
        "integer" => "an integer",
        "boolean" => "a boolean",
        "array" => "a list",
        "object" => "an object",
        other => other,
    }
}

/// Whether a value is of a type, or of one of a list of types.
fn has_type(kind: &Value, value: &Value) -> bool {
    match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| has_type(kind, value)),
        _ => match kind.as_str() {
            Some("null") => value.is_null(),
            Some("boolean") => value.is_boolean(),
            // Stricter than JSON Schema, where `1.0` is an integer: serde does not read it into one.
            Some("integer") => value.is_i64() || value.is_u64(),
            Some("number") => value.is_number(),
            Some("string") => value.is_string(),
            Some("array") => value.is_array(),
            Some("object") => value.is_object(),
            _ => true,
        },
    }
}

/// Checks a rule that JSON Schema cannot express. Returns the member that violates it, with the reason.
fn broken_rule(rule: &str, value: &Value) -> Option<(&'static str, &'static str)> {
    let text = |key| value.get(key).and_then(Value::as_str);
    match rule {
        "folder" => text("url")
            .filter(|url| !url.ends_with('/'))
            .map(|_| ("url", "folder context url must end with '/'")),
        "strategy" => (text("type") == Some("retry")
            && text("instructions").unwrap_or_default().is_empty())
        .then_some(("instructions", "is required by retry")),
        "constant" => (value.get("type").is_none_or(Value::is_null)
            && value.get("const").is_none())
        .then_some(("type", "must be given unless there is a const")),
        "approval" => {
            let is_empty = |key| {
                value
                    .get(key)
                    .and_then(Value::as_array)
                    .is_none_or(Vec::is_empty)
            };
            let problem = if value.get("tools").is_none() && value.get("tool_sets").is_some() {
                ("tool_sets", "must name tool sets, or tools must be given")
            } else {
                ("tools", "must name tools, or tool_sets must be given")
            };
            (is_empty("tools") && is_empty("tool_sets")).then_some(problem)
        }
        "guardrail" => {
            let tools = value.get("tools").and_then(Value::as_array)?;
            let event = text("event").unwrap_or_default();
            if event.ends_with("_model") {
                Some(("tools", "is only for before_tool and after_tool"))
            } else {
                let problem = ("tools", "must name tools, or be left out for all tools");
                tools.is_empty().then_some(problem)
            }
        }
        "mcp-server" => {
            let name = text("url").and_then(|url| url.strip_prefix("stdio:"));
            match (text("protocol") == Some("stdio"), name) {
                (true, None | Some("")) => Some(("url", "must be stdio:{name} for protocol stdio")),
                (false, Some(_)) => Some(("protocol", "must be stdio for a url of stdio:")),
                (true, Some(_)) | (false, None) => None,
            }
        }
        _ => None,
    }
}

/// `path.key`, or `key` alone at the top of the document.
pub(super) fn join_member_path(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}
