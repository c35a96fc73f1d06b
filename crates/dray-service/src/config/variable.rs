//! Turns variables and flags into layers: names with our prefix, the aliases of each section, and `--set`.

use serde_json::Value;

use super::check::{FindingCollector, VariableClaim, lookup_field, unknown_name_message};
use super::former::rename_path;
use super::layer::ConfigLayer;
use super::schema::{SchemaNode, SectionSpec};
use super::secrets_dir::SECRETS_DIR_VARIABLE;
use super::text::read_text;
use super::{AliasValue, Environment, FieldOverride, VariableAlias};

/// Makes the layers of all variables: `DRAY_<SECTION>__<FIELD>` and aliases.
pub(super) fn variable_layers(
    collector: &mut FindingCollector<'_>,
    environment: &Environment,
) -> Vec<ConfigLayer> {
    let layers = named_layers(collector, environment, |name| format!("variable {name}"));
    for (variable, _) in environment.iter() {
        if !variable.starts_with("DRAY_") {
            check_prefix(collector, variable);
        }
    }
    for variable in environment.undecodable() {
        check_decoded(collector, variable);
    }
    layers
}

/// Refuses a variable of this program that is not Unicode: its setting would be silently absent.
fn check_decoded(collector: &mut FindingCollector<'_>, variable: &str) {
    let is_setting = |section: &SectionSpec| {
        let mut aliases = section.aliases.iter();
        let mut prefixes = section.strict_prefixes.iter();
        aliases.any(|alias| alias.variable == variable)
            || prefixes.any(|prefix| variable.starts_with(prefix))
    };
    if variable.starts_with("DRAY_") || collector.sections.iter().any(is_setting) {
        collector.add_finding(variable, "environment", None, "must be UTF-8 text");
    }
}

/// Makes the layers of all settings that have the name of a variable. `source_of` returns the source of a name, for
/// messages.
pub(super) fn named_layers(
    collector: &mut FindingCollector<'_>,
    settings: &Environment,
    source_of: impl Fn(&str) -> String,
) -> Vec<ConfigLayer> {
    let sections = collector.sections;
    let mut layers = Vec::new();
    for section in sections {
        // Aliases are read first, so that the `DRAY_` names override them. Two that differ are an error.
        for alias in section.aliases {
            if let Some(text) = settings.get(alias.variable) {
                let source = source_of(alias.variable);
                layers.extend(alias_layer(collector, section, alias, source, text));
            }
        }
    }
    for (variable, text) in settings.iter() {
        if let Some(rest) = variable.strip_prefix("DRAY_") {
            let source = source_of(variable);
            layers.extend(own_layer(collector, variable, rest, &source, text));
        }
    }
    layers
}

fn alias_layer(
    collector: &mut FindingCollector<'_>,
    section: &SectionSpec,
    alias: &VariableAlias,
    source: String,
    text: &str,
) -> Option<ConfigLayer> {
    let key = format!("{}.{}", section.name, alias.field);
    match (alias.parse)(text) {
        Ok(AliasValue::Value(value)) => {
            let path: Vec<&str> = std::iter::once(section.name)
                .chain(alias.field.split('.'))
                .collect();
            let layer = ConfigLayer::single(source, &path, value);
            collector.contenders.push(VariableClaim {
                section: section.name,
                field: alias.field,
                layer: layer.clone(),
            });
            Some(layer)
        }
        Ok(AliasValue::Unset(reason)) => {
            collector.warnings.push(format!("{source} {reason}"));
            None
        }
        Err(message) => {
            let secret = lookup_field(section, alias.field).is_some_and(SchemaNode::is_secret);
            let value = if secret { "***" } else { text };
            collector.add_finding(&key, &source, Some(value), message);
            None
        }
    }
}

/// Recognises variables that Kubernetes sets for a service whose name begins with `dray-`: `<NAME>_PORT`,
/// `<NAME>_PORT_4222_TCP_ADDR`, `<NAME>_SERVICE_HOST`.
fn is_service_link(variable: &str) -> bool {
    let has_port = variable.split_once("_PORT").is_some_and(|(_, rest)| {
        rest.is_empty()
            || rest
                .strip_prefix('_')
                .is_some_and(|rest| rest.starts_with(|character: char| character.is_ascii_digit()))
    });
    has_port || variable.contains("_SERVICE_HOST") || variable.contains("_SERVICE_PORT")
}

/// Whether a variable without two underscores begins with a section: then it is a misspelled variable of Drayage. Other
/// programs may have their own variables with the prefix (`DRAY_BIN`).
fn names_section(sections: &[SectionSpec], rest: &str) -> bool {
    sections.iter().any(|section| {
        rest.strip_prefix(&section.variable_part())
            .is_some_and(|field| field.starts_with('_'))
    })
}

fn own_layer(
    collector: &mut FindingCollector<'_>,
    variable: &str,
    rest: &str,
    source: &str,
    text: &str,
) -> Option<ConfigLayer> {
    // These variables name other sources.
    if rest == "CONFIG" || variable == SECRETS_DIR_VARIABLE {
        return None;
    }
    let Some((first, fields)) = rest.split_once("__") else {
        if names_section(collector.sections, rest) {
            collector.add_finding(
                variable,
                source,
                None,
                "is not known; variables are named DRAY_<SECTION>__<FIELD>, with two underscores",
            );
        } else if !is_service_link(variable) {
            collector.warnings.push(format!(
                "the variable {variable} is ignored: settings are named DRAY_<SECTION>__<FIELD> \
                 (docs/configuration.md lists them), and DRAY_CONFIG names the file"
            ));
        }
        return None;
    };
    let sections = collector.sections;
    let Some(section) = sections
        .iter()
        .find(|section| section.variable_part() == first)
    else {
        let known = sections.iter().map(|section| section.name);
        let message = unknown_name_message(
            "section",
            &first.to_ascii_lowercase().replace('_', "-"),
            known,
        );
        collector.add_finding(variable, source, None, message);
        return None;
    };
    let fields = fields.to_ascii_lowercase();
    let fields: Vec<&str> = fields.split("__").collect();
    let layer = text_layer(collector, section, source, &fields, text)?;
    let mut current = fields;
    rename_path(section.former_names, &mut current);
    let field = current.join(".");
    if let Some(alias) = section.aliases.iter().find(|alias| alias.field == field) {
        collector.contenders.push(VariableClaim {
            section: section.name,
            field: alias.field,
            layer: layer.clone(),
        });
    }
    Some(layer)
}

/// Makes the layer of one flag.
pub(super) fn flag_layer(
    collector: &mut FindingCollector<'_>,
    flag: &FieldOverride,
) -> Option<ConfigLayer> {
    let source = match &flag.flag {
        Some(name) => format!("flag {name}"),
        None => format!("flag --set {}", flag.key),
    };
    let (name, fields) = flag.key.split_once('.').unwrap_or((&flag.key, ""));
    let sections = collector.sections;
    let Some(section) = sections.iter().find(|section| section.name == name) else {
        let known = sections.iter().map(|section| section.name);
        let message = unknown_name_message("section", name, known);
        collector.add_finding(&flag.key, &source, None, message);
        return None;
    };
    let fields: Vec<&str> = fields.split('.').collect();
    text_layer(collector, section, &source, &fields, &flag.value)
}

/// Makes a layer from text, which is read by the schema of its field.
fn text_layer(
    collector: &mut FindingCollector<'_>,
    section: &SectionSpec,
    source: &str,
    fields: &[&str],
    text: &str,
) -> Option<ConfigLayer> {
    let path: Vec<&str> = std::iter::once(section.name)
        .chain(fields.iter().copied())
        .collect();
    // The layer keeps the name that the operator wrote, for the warning; its text is parsed as the current field.
    let mut fields = fields.to_vec();
    rename_path(section.former_names, &mut fields);
    // The check of the layer's tree reports an unknown key, so its value is not parsed.
    let value = match lookup_field(section, &fields.join(".")) {
        Some(node) => match read_text(node, text) {
            Ok(value) => value,
            Err(message) => {
                let value = if node.is_secret() { "***" } else { text };
                collector.add_finding(&path.join("."), source, Some(value), message);
                return None;
            }
        },
        None => Value::String(text.to_owned()),
    };
    Some(ConfigLayer::single(source, &path, value))
}

fn check_prefix(collector: &mut FindingCollector<'_>, variable: &str) {
    let sections = collector.sections;
    for section in sections {
        let strict = section
            .strict_prefixes
            .iter()
            .any(|prefix| variable.starts_with(prefix));
        let known = section
            .aliases
            .iter()
            .any(|alias| alias.variable == variable);
        // A mistyped restriction would otherwise be silently absent.
        if strict && !known {
            let names = section.aliases.iter().map(|alias| alias.variable);
            let message = unknown_name_message("variable", variable, names);
            collector.add_finding(variable, "environment", None, message);
        }
    }
}
