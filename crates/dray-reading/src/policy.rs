//! The policy for reading: allowed files and limits, the keys `attachments.policy.*` (read-attachment 6).

use dray_documents::classify::Kind;
use dray_documents::limits::Limits;
use dray_types::whole_millis;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The policy. A value that makes no sense falls back to the default, with a warning in the log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(default)]
pub struct Policy {
    /// Largest file in bytes; checked before any content is read.
    pub max_file_bytes: u64,
    /// Largest Markdown that is returned inline, in bytes.
    pub inline_text_budget_bytes: usize,
    /// A kind that is missing here is refused everywhere.
    #[schemars(with = "Vec<String>")]
    pub allow_kinds: Vec<Kind>,
    /// Most paragraphs, rows, pages, slides and chapters together.
    pub convert_max_elements: u64,
    /// Most bytes of extracted text.
    pub convert_max_decompressed_bytes: u64,
    /// Longest duration of a conversion, in seconds.
    pub convert_wall_clock_seconds: f64,
    /// Most bytes inflated from all parts together.
    pub convert_max_inflated_bytes: u64,
    /// Most entries of a ZIP.
    pub convert_max_entries: u64,
    /// Deepest nesting of XML, HTML, JSON, PDF objects and forms, tables.
    pub convert_max_depth: u32,
    /// Address space of the worker, bytes.
    pub convert_memory_bytes: u64,
}

/// Most bytes of one part of a container.
const MAX_PART_BYTES: u64 = 64 << 20;
/// Longest time that a policy can set, in seconds.
const MAX_SECONDS: f64 = 3600.0;

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_file_bytes: 26_214_400,
            inline_text_budget_bytes: 100_000,
            allow_kinds: Kind::ALL.to_vec(),
            convert_max_elements: 50_000,
            convert_max_decompressed_bytes: 5_000_000,
            convert_wall_clock_seconds: 15.0,
            convert_max_inflated_bytes: 268_435_456,
            convert_max_entries: 10_000,
            convert_max_depth: 256,
            convert_memory_bytes: 1_073_741_824,
        }
    }
}

impl Policy {
    /// Parses the keys of an object. Missing and invalid keys keep their defaults, and unknown keys are ignored. The
    /// second value lists the invalid keys.
    pub fn from_value(value: &Value) -> (Self, Vec<String>) {
        let mut policy = Self::default();
        let mut invalid_keys = Vec::new();
        let Some(object) = value.as_object() else {
            if !value.is_null() {
                invalid_keys.push("attachments.policy".to_owned());
            }
            return (policy, invalid_keys);
        };
        for (key, value) in object {
            if policy.set(key, value).is_none() {
                invalid_keys.push(format!("attachments.policy.{key}"));
            }
        }
        (policy, invalid_keys)
    }

    /// Sets one key; returns `None` for an invalid value. Unknown keys are ignored.
    fn set(&mut self, key: &str, value: &Value) -> Option<()> {
        match key {
            "max_file_bytes" => self.max_file_bytes = positive(value)?,
            "inline_text_budget_bytes" => {
                self.inline_text_budget_bytes = usize::try_from(whole(value)?).ok()?;
            }
            "allow_kinds" => self.allow_kinds = Vec::<Kind>::deserialize(value).ok()?,
            "convert_max_elements" => self.convert_max_elements = positive(value)?,
            "convert_max_decompressed_bytes" => {
                self.convert_max_decompressed_bytes = positive(value)?;
            }
            "convert_wall_clock_seconds" => {
                let seconds = value.as_f64()?;
                self.convert_wall_clock_seconds =
                    // NaN fails both comparisons and is refused like other invalid values.
                    (seconds > 0.0 && seconds <= MAX_SECONDS).then_some(seconds)?;
            }
            "convert_max_inflated_bytes" => self.convert_max_inflated_bytes = positive(value)?,
            "convert_max_entries" => self.convert_max_entries = positive(value)?,
            "convert_max_depth" => {
                self.convert_max_depth = u32::try_from(positive(value)?).ok()?;
            }
            "convert_memory_bytes" => self.convert_memory_bytes = positive(value)?,
            _ => {}
        }
        Some(())
    }

    /// The limits of one conversion.
    pub fn limits(&self) -> Limits {
        let wall = std::time::Duration::try_from_secs_f64(self.convert_wall_clock_seconds);
        let wall_ms = wall.map_or(15_000, |wall| whole_millis(wall).max(1));
        Limits {
            max_elements: self.convert_max_elements,
            max_text_bytes: self.convert_max_decompressed_bytes,
            wall_ms,
            max_inflated_bytes: self.convert_max_inflated_bytes,
            max_part_bytes: self.convert_max_inflated_bytes.min(MAX_PART_BYTES),
            max_member_bytes: self.max_file_bytes,
            max_entries: self.convert_max_entries,
            max_depth: self.convert_max_depth,
            memory_bytes: self.convert_memory_bytes,
        }
    }

    /// Whether a kind may be read.
    pub fn allows(&self, kind: Kind) -> bool {
        self.allow_kinds.contains(&kind)
    }

    /// Whether a kind is read: a document, a text or an archive, if it is allowed.
    pub fn reads(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Document | Kind::Text | Kind::Archive) && self.allows(kind)
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let (policy, invalid_keys) = Self::from_value(&value);
        for key in invalid_keys {
            tracing::warn!(key, "the value is invalid; the default applies");
        }
        Ok(policy)
    }
}

fn whole(value: &Value) -> Option<u64> {
    value.as_u64()
}

fn positive(value: &Value) -> Option<u64> {
    whole(value).filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_are_those_of_the_table() {
        assert_eq!(
            serde_json::to_value(Policy::default()).unwrap(),
            json!({
                "max_file_bytes": 26_214_400,
                "inline_text_budget_bytes": 100_000,
                "allow_kinds": ["image", "text", "document", "archive", "binary"],
                "convert_max_elements": 50_000,
                "convert_max_decompressed_bytes": 5_000_000,
                "convert_wall_clock_seconds": 15.0,
                "convert_max_inflated_bytes": 268_435_456,
                "convert_max_entries": 10_000,
                "convert_max_depth": 256,
                "convert_memory_bytes": 1_073_741_824,
            })
        );
        assert_eq!(Policy::default().limits(), Limits::default());
    }

    #[test]
    fn valid_values_apply_and_invalid_ones_keep_the_default_and_are_named() {
        let (policy, invalid_keys) = Policy::from_value(&json!({
            "max_file_bytes": 10,
            "inline_text_budget_bytes": 0,
            "allow_kinds": ["text"],
            "convert_max_elements": -1,
            "convert_wall_clock_seconds": 0.5,
            "convert_max_depth": "deep",
            "convert_memory_bytes": 0,
            "unknown": [],
        }));
        assert_eq!(policy.max_file_bytes, 10);
        assert_eq!(policy.inline_text_budget_bytes, 0);
        assert_eq!(policy.allow_kinds, [Kind::Text]);
        assert_eq!(policy.convert_max_elements, 50_000);
        assert_eq!(policy.limits().wall_ms, 500);
        assert_eq!(
            invalid_keys,
            [
                "attachments.policy.convert_max_elements",
                "attachments.policy.convert_max_depth",
                "attachments.policy.convert_memory_bytes"
            ]
        );
    }

    #[test]
    fn unknown_kinds_and_unlimited_times_keep_the_default() {
        for value in [
            json!({"allow_kinds": ["text", "film"]}),
            json!({"allow_kinds": "text"}),
            json!({"convert_wall_clock_seconds": 0}),
            json!({"convert_wall_clock_seconds": 1e300}),
        ] {
            let (policy, named) = Policy::from_value(&value);
            assert_eq!((policy, named.len()), (Policy::default(), 1), "{value}");
        }
        assert_eq!(Policy::from_value(&json!("x")).1, ["attachments.policy"]);
        let policy: Policy = serde_json::from_value(json!({"max_file_bytes": "big"})).unwrap();
        assert_eq!(policy, Policy::default());
    }

    #[test]
    fn only_documents_texts_and_archives_are_read() {
        let policy = Policy::default();
        let read: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|kind| policy.reads(*kind))
            .collect();
        assert_eq!(read, [Kind::Text, Kind::Document, Kind::Archive]);
        let none = Policy {
            allow_kinds: vec![Kind::Image],
            ..Policy::default()
        };
        assert!(!Kind::ALL.into_iter().any(|kind| none.reads(kind)));
    }
}
