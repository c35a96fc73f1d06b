//! Fields under the names that they had before: an old name still works, with a warning.

use serde_json::Value;

use super::check::FindingCollector;
use super::layer::ConfigLayer;

/// A field of a section that was renamed.
#[derive(Clone, Copy, Debug)]
pub struct FormerName {
    /// The name that operators may still have in files, variables and flags.
    pub former: &'static str,
    /// The name of the field today.
    pub field: &'static str,
}

/// The name today of the field `name` at the top of a section.
pub(super) fn current_name<'a>(names: &[FormerName], name: &'a str) -> &'a str {
    let renamed = names.iter().find(|renamed| renamed.former == name);
    renamed.map_or(name, |renamed| renamed.field)
}

/// Moves values under former names to the current names, with a warning for each. A layer that has both is refused,
/// because one of the values would be lost.
pub(super) fn rename_fields(layer: &mut ConfigLayer, collector: &mut FindingCollector<'_>) {
    let ConfigLayer { source, tree } = layer;
    let sections = collector.sections;
    for section in sections {
        let Some(Value::Object(fields)) = tree.get_mut(section.name) else {
            continue;
        };
        for FormerName { former, field } in section.former_names {
            let Some(value) = fields.remove(*former) else {
                continue;
            };
            let (key, now) = (
                format!("{}.{former}", section.name),
                format!("{}.{field}", section.name),
            );
            if fields.contains_key(*field) {
                let message =
                    format!("is the former name of {now}, which is set as well; remove it");
                collector.add_finding(&key, source, None, message);
                continue;
            }
            fields.insert((*field).to_owned(), value);
            collector
                .warnings
                .push(format!("{source}: {key} is named {now} now; rename it"));
        }
    }
}
