//! The values of one source, and its name.

use serde_json::Value;

/// Values from one place, and the name of that place.
#[derive(Clone, Debug)]
pub(super) struct ConfigLayer {
    pub(super) source: String,
    pub(super) tree: Value,
}

impl ConfigLayer {
    pub(super) fn new(source: impl Into<String>, tree: Value) -> Self {
        Self {
            source: source.into(),
            tree,
        }
    }

    /// Makes a layer with one value at `path`.
    pub(super) fn single(source: impl Into<String>, path: &[&str], value: Value) -> Self {
        let tree = path.iter().rev().fold(value, |inner, key| {
            let mut table = serde_json::Map::new();
            table.insert((*key).to_owned(), inner);
            Value::Object(table)
        });
        Self::new(source, tree)
    }

    /// Returns the value at `path`, if the layer has one.
    pub(super) fn find(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(&self.tree, |tree, key| tree.get(key))
    }
}
