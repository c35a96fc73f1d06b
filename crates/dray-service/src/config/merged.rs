//! All layers on top of each other: the value in force at each key, and its source.

use serde_json::{Map, Value};

use super::layer::ConfigLayer;
use super::schema::SectionSpec;

/// The merged configuration. Tables merge key by key; any other value is replaced by the layer above.
#[derive(Clone, Debug, Default)]
pub(super) struct MergedConfig {
    layers: Vec<ConfigLayer>,
    values: Value,
}

impl MergedConfig {
    /// The defaults of `sections` with `layers` on top, the last one winning.
    pub(super) fn new(sections: &[SectionSpec], layers: Vec<ConfigLayer>) -> Self {
        let defaults: Map<String, Value> = sections
            .iter()
            .map(|section| (section.name.to_owned(), section.defaults.clone()))
            .collect();
        let mut values = Value::Object(defaults);
        for layer in &layers {
            merge_values(&mut values, &layer.tree);
        }
        Self { layers, values }
    }

    /// Returns a copy with one more layer on top.
    pub(super) fn with(&self, layer: ConfigLayer) -> Self {
        let mut merged = self.clone();
        merge_values(&mut merged.values, &layer.tree);
        merged.layers.push(layer);
        merged
    }

    /// The values of one section; an empty table for an unknown section.
    pub(super) fn section(&self, name: &str) -> Value {
        self.values
            .get(name)
            .cloned()
            .unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// The value in force at a key with dots between levels.
    pub(super) fn find(&self, key: &str) -> Option<&Value> {
        key.split('.')
            .try_fold(&self.values, |tree, name| match tree {
                Value::Array(items) => items.get(name.parse::<usize>().ok()?),
                other => other.get(name),
            })
    }

    /// Name of the source of the value at `key`; `None` for a compiled default.
    pub(super) fn source_of(&self, key: &str) -> Option<&str> {
        let path: Vec<&str> = key.split('.').collect();
        self.layers
            .iter()
            // The topmost layer that has the key is the one in force.
            .rev()
            .find(|layer| layer.find(&path).is_some())
            .map(|layer| layer.source.as_str())
    }
}

fn merge_values(base: &mut Value, above: &Value) {
    match (base, above) {
        (Value::Object(base), Value::Object(above)) => {
            for (key, value) in above {
                match base.get_mut(key) {
                    Some(below) => merge_values(below, value),
                    None => {
                        base.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        // Lists are replaced completely: merging them by index would mix unrelated items.
        (base, above) => *base = above.clone(),
    }
}
