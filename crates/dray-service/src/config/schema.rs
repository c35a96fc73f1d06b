//! The fields of a section, read from its JSON schema. The loader checks keys and reads variables by it, and the
//! reference page is written from it.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use schemars::generate::SchemaSettings;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::{ConfigProblem, FormerName, Section, VariableAlias};

/// A section with its type erased: name, schema, defaults, aliases, and the checks of its type.
#[derive(Clone, Debug)]
pub struct SectionSpec {
    /// Name in the TOML file; variables use it in capitals with `_` for `-`.
    pub(super) name: &'static str,
    /// Built when a key of the section is first checked, because most commands set few keys or none.
    schema: Arc<OnceLock<Value>>,
    build_schema: fn() -> Value,
    pub(super) defaults: Value,
    pub(super) aliases: &'static [VariableAlias],
    pub(super) former_names: &'static [FormerName],
    pub(super) strict_prefixes: &'static [&'static str],
    /// Fields that apply only at the next start; `None` for all.
    restart_fields: Option<Vec<&'static str>>,
    /// Reads the values of the section as its type.
    pub(super) read: fn(Value) -> Result<CheckedSection, InvalidValue>,
}

/// A value that a section's type cannot read.
#[derive(Clone, Debug)]
pub(super) struct InvalidValue {
    /// The field within the section, dots between levels; empty if the problem concerns the complete section.
    pub(super) field: String,
    /// The message of the type's deserializer.
    pub(super) message: String,
}

/// A section after its type has read it.
#[derive(Clone, Debug)]
pub(super) struct CheckedSection {
    /// The section itself, as its own type behind [`Any`].
    pub(super) section: Arc<dyn Any + Send + Sync>,
    /// The values as the type writes them; secrets are `***`.
    pub(super) redacted: Value,
    /// Problems that the type's own checks found.
    pub(super) problems: Vec<ConfigProblem>,
}

impl SectionSpec {
    /// Describes the section `name` of type `S`.
    pub fn of<S: Section>(name: &'static str) -> Self {
        Self {
            name,
            schema: Arc::new(OnceLock::new()),
            build_schema: || {
                SchemaSettings::draft2020_12()
                    .for_deserialize()
                    .into_generator()
                    .into_root_schema_for::<S>()
                    .to_value()
            },
            defaults: serde_json::to_value(S::default()).unwrap_or_default(),
            aliases: S::aliases(),
            former_names: S::former_names(),
            strict_prefixes: S::strict_prefixes(),
            restart_fields: S::restart_settings()
                .map(|settings| settings.iter().map(|setting| setting.name).collect()),
            read: |values| {
                let section: S = serde_path_to_error::deserialize(values).map_err(invalid_value)?;
                Ok(CheckedSection {
                    problems: section.validate(),
                    redacted: serde_json::to_value(&section).unwrap_or_default(),
                    section: Arc::new(section),
                })
            },
        }
    }

    /// The section's name in the file.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The section's part of a variable's name: `EGRESS_FETCHER` for `egress-fetcher`.
    pub(super) fn variable_part(&self) -> String {
        self.name.to_ascii_uppercase().replace('-', "_")
    }

    /// Whether a changed setting applies only at the next start: the field, or a table that contains it, is listed.
    pub(super) fn needs_restart(&self, path: &str) -> bool {
        let Some(fields) = &self.restart_fields else {
            return true;
        };
        fields.iter().any(|field| {
            let below = path.strip_prefix(field);
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    pub(super) fn root(&self) -> SchemaNode<'_> {
        let schema = self.schema.get_or_init(self.build_schema);
        SchemaNode::new(schema, schema)
    }
}

/// Converts the error. It is not generic over the section, so that it is compiled once.
fn invalid_value(error: serde_path_to_error::Error<serde_json::Error>) -> InvalidValue {
    let segments: Vec<String> = error.path().iter().map(segment_text).collect();
    InvalidValue {
        field: segments.join("."),
        message: error.into_inner().to_string(),
    }
}

fn segment_text(segment: &Segment) -> String {
    match segment {
        Segment::Seq { index } => index.to_string(),
        Segment::Map { key } => key.clone(),
        Segment::Enum { variant } => variant.clone(),
        Segment::Unknown => "?".to_owned(),
    }
}

/// A place in a schema, with references and the `null` of an optional value resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaNode<'a> {
    document: &'a Value,
    /// The schema as written at the field, which has the description.
    outer: &'a Value,
    /// The schema that it refers to, which has the type.
    inner: &'a Value,
    nullable: bool,
}

/// The form in which a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Bool,
    Integer,
    Number,
    Text,
    ByteSize,
    Period,
    Secret,
    List,
    /// A struct, whose fields are known.
    Fields,
    /// A map, or a shape that the loader does not look into.
    Any,
}

impl ValueKind {
    /// The accepted form of the value, as the rest of a sentence.
    pub(super) fn expectation(self) -> &'static str {
        match self {
            Self::Bool => "must be `true` or `false`",
            Self::Integer => "must be a whole number",
            Self::Number => "must be a number",
            Self::Text | Self::Secret => "must be text",
            Self::ByteSize => "must be a size, such as 64KiB, 25MiB or a number of bytes",
            Self::Period => "must be a length of time, such as 250ms, 30s or 5m",
            Self::List => "must be a list: items separated by commas, or JSON",
            // Tables are not read from text, so their fields are set one by one.
            Self::Fields => "is a table; set its fields",
            Self::Any => "must be JSON of the documented shape",
        }
    }
}

impl<'a> SchemaNode<'a> {
    fn new(document: &'a Value, outer: &'a Value) -> Self {
        let mut inner = outer;
        let mut nullable = false;
        // A schema that refers to itself would not end; schemas of sections are at most a few levels deep.
        for _ in 0..16 {
            if let Some(target) = inner.get("$ref").and_then(Value::as_str) {
                let Some(referenced) = target
                    .strip_prefix('#')
                    .and_then(|path| document.pointer(path))
                else {
                    break;
                };
                inner = referenced;
            // `schemars` writes an optional struct as `anyOf` of the struct and `null`.
            } else if let Some(choices) = inner.get("anyOf").and_then(Value::as_array) {
                let is_null =
                    |choice: &&Value| choice.get("type").and_then(Value::as_str) == Some("null");
                let mut others = choices.iter().filter(|choice| !is_null(choice));
                // More than one other choice is an enum with data, which the loader does not look into.
                let (Some(only), None) = (others.next(), others.next()) else {
                    break;
                };
                nullable |= choices.iter().any(|choice| is_null(&choice));
                inner = only;
            } else {
                break;
            }
        }
        nullable |= schema_types(inner).any(|name| name == "null");
        Self {
            document,
            outer,
            inner,
            nullable,
        }
    }

    pub(super) fn is_nullable(self) -> bool {
        self.nullable
    }

    pub(super) fn is_secret(self) -> bool {
        self.kind() == ValueKind::Secret
    }

    pub(super) fn kind(self) -> ValueKind {
        match self.inner.get("format").and_then(Value::as_str) {
            Some("byte-size") => return ValueKind::ByteSize,
            Some("duration") => return ValueKind::Period,
            Some("password") => return ValueKind::Secret,
            _ => {}
        }
        if self.inner.get("properties").is_some() {
            return ValueKind::Fields;
        }
        if self.inner.get("enum").is_some() || self.choices().is_some() {
            return ValueKind::Text;
        }
        match schema_types(self.inner).find(|name| *name != "null") {
            Some("boolean") => ValueKind::Bool,
            Some("integer") => ValueKind::Integer,
            Some("number") => ValueKind::Number,
            Some("string") => ValueKind::Text,
            Some("array") => ValueKind::List,
            _ => ValueKind::Any,
        }
    }

    /// The allowed words of a text field, if they are a closed set.
    pub(super) fn choices(self) -> Option<Vec<&'a str>> {
        if let Some(words) = self.inner.get("enum").and_then(Value::as_array) {
            return Some(words.iter().filter_map(Value::as_str).collect());
        }
        // The schema has variants with a doc comment as `oneOf` of constants, and those without as one `enum`.
        let variants = self.inner.get("oneOf")?.as_array()?;
        variants
            .iter()
            .map(|variant| variant.get("const").and_then(Value::as_str))
            .collect()
    }

    /// The documentation of the field, otherwise of its type.
    pub(super) fn description(self) -> &'a str {
        let of = |schema: &'a Value| schema.get("description").and_then(Value::as_str);
        of(self.outer)
            .or_else(|| of(self.inner))
            .unwrap_or_default()
    }

    /// The value of the field in a table that sets other fields only, as the schema has it.
    pub(super) fn default_value(self) -> Option<&'a Value> {
        self.outer.get("default")
    }

    /// Whether a table without this field is invalid.
    pub(super) fn requires(self, name: &str) -> bool {
        let required = self.inner.get("required").and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(|field| field == name))
    }

    pub(super) fn field(self, name: &str) -> Option<SchemaNode<'a>> {
        let schema = self.inner.get("properties")?.get(name)?;
        Some(Self::new(self.document, schema))
    }

    pub(super) fn fields(self) -> impl Iterator<Item = (&'a str, SchemaNode<'a>)> {
        let properties = self.inner.get("properties").and_then(Value::as_object);
        properties
            .into_iter()
            .flatten()
            .map(move |(name, schema)| (name.as_str(), Self::new(self.document, schema)))
    }

    /// The schema of a list's items.
    pub(super) fn items(self) -> Option<SchemaNode<'a>> {
        Some(Self::new(self.document, self.inner.get("items")?))
    }

    /// The schema of a map's values.
    pub(super) fn values(self) -> Option<SchemaNode<'a>> {
        let schema = self.inner.get("additionalProperties")?;
        schema.is_object().then(|| Self::new(self.document, schema))
    }
}

fn schema_types(schema: &Value) -> impl Iterator<Item = &str> {
    let (one, many) = match schema.get("type") {
        Some(Value::String(name)) => (Some(name.as_str()), None),
        Some(Value::Array(names)) => (None, Some(names)),
        _ => (None, None),
    };
    one.into_iter()
        .chain(many.into_iter().flatten().filter_map(Value::as_str))
}
