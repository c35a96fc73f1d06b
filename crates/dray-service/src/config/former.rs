//! Fields under the names that they had before: an old name still works, with a warning.

use serde_json::Value;

use super::check::FindingCollector;
use super::layer::ConfigLayer;

/// A field that was renamed.
#[derive(Clone, Copy, Debug)]
pub struct FormerName {
    /// Path of the table that contains the field, from the top of the section: keys with dots between them, where `*`
    /// stands for every key. Empty for the section itself.
    pub table: &'static str,
    /// The name that operators may still have in files, variables and flags.
    pub former: &'static str,
    /// The name of the field today.
    pub field: &'static str,
}

impl FormerName {
    /// Renames a field at the top of the section.
    pub const fn new(former: &'static str, field: &'static str) -> Self {
        Self::below("", former, field)
    }

    /// Renames a field of the tables that `table` matches.
    pub const fn below(table: &'static str, former: &'static str, field: &'static str) -> Self {
        Self {
            table,
            former,
            field,
        }
    }

    fn table_keys(&self) -> impl Iterator<Item = &'static str> {
        self.table.split('.').filter(|key| !key.is_empty())
    }
}

/// Replaces former names in the path of a field, from the top of a section, by their names today.
pub(super) fn rename_path(names: &[FormerName], path: &mut [&str]) {
    for renamed in names {
        let depth = renamed.table_keys().count();
        let Some((tables, [name, ..])) = path.split_at_mut_checked(depth) else {
            continue;
        };
        let matches_table = renamed
            .table_keys()
            .zip(tables)
            .all(|(pattern, key)| pattern == "*" || pattern == *key);
        if matches_table && *name == renamed.former {
            *name = renamed.field;
        }
    }
}

/// Moves values under former names to the current names, with a warning for each. A layer that has both is refused,
/// because one of the values would be lost.
pub(super) fn rename_fields(layer: &mut ConfigLayer, collector: &mut FindingCollector<'_>) {
    let ConfigLayer { source, tree } = layer;
    let sections = collector.sections;
    for section in sections {
        for renamed in section.former_names {
            let Some(tree) = tree.get_mut(section.name) else {
                break;
            };
            let mut tables = vec![(section.name.to_owned(), tree)];
            for key in renamed.table_keys() {
                tables = tables
                    .into_iter()
                    .flat_map(|(path, tree)| inner_tables(&path, tree, key))
                    .collect();
            }
            for (path, tree) in tables {
                rename_field(*renamed, &path, source, tree, collector);
            }
        }
    }
}

/// The values of `tree` under `key`, or all of them for `*`, with their paths.
fn inner_tables<'a>(path: &str, tree: &'a mut Value, key: &str) -> Vec<(String, &'a mut Value)> {
    let Value::Object(fields) = tree else {
        return Vec::new();
    };
    fields
        .iter_mut()
        .filter(|(name, _)| key == "*" || name.as_str() == key)
        .map(|(name, inner)| (format!("{path}.{name}"), inner))
        .collect()
}

fn rename_field(
    renamed: FormerName,
    path: &str,
    source: &str,
    tree: &mut Value,
    collector: &mut FindingCollector<'_>,
) {
    let FormerName { former, field, .. } = renamed;
    let Value::Object(fields) = tree else {
        return;
    };
    let Some(value) = fields.remove(former) else {
        return;
    };
    let (key, now) = (format!("{path}.{former}"), format!("{path}.{field}"));
    if fields.contains_key(field) {
        let message = format!("is the former name of {now}, which is set as well; remove it");
        collector.add_finding(&key, source, None, message);
        return;
    }
    fields.insert(field.to_owned(), value);
    collector
        .warnings
        .push(format!("{source}: {key} is named {now} now; rename it"));
}
