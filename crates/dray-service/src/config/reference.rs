//! The reference page of all settings, written from the same schemas that the loader reads by.

use std::fmt::Write as _;

use serde_json::Value;

use super::schema::{SchemaNode, SectionSpec, ValueKind};

/// Writes the Markdown of `docs/configuration.md` for these sections.
pub fn configuration_page(sections: &[SectionSpec]) -> String {
    let mut page = String::from(CONFIGURATION_PAGE_HEAD);
    for section in sections {
        // Writing to a `String` cannot fail.
        let _ = write!(page, "\n## `{}`\n", section.name);
        let about = section.root().description();
        if !about.is_empty() {
            let _ = write!(page, "\n{}\n", one_line(about));
        }
        page.push_str("\n| key | variable | default | meaning |\n|---|---|---|---|\n");
        write_rows(&mut page, section, section.root(), "", &section.defaults);
        write_aliases(&mut page, section);
    }
    page
}

const CONFIGURATION_PAGE_HEAD: &str = "# Configuration

This page is generated (`cargo xtask generate`); the text comes from the code.

Sources, each winning over the one before: compiled defaults, one TOML file (`--config FILE` or the variable
`DRAY_CONFIG`), the files in a directory (`DRAY_SECRETS_DIR`), variables, flags (`--set section.field=value`). Keys
that nothing reads are errors, in every source; a variable that has our prefix but names no section (`DRAY_BIN`) is
ignored with a warning. `dray config check` loads and checks, `dray config show` prints every value in force and where
it came from.

Variables are named `DRAY_<SECTION>__<FIELD>`, with two underscores before every level. Sizes are written
`64KiB`, `25MiB` or as a number of bytes, lengths of time `250ms`, `30s`, `1h30m`, lists `a,b` or as JSON. A
secret can be read from a file: add `_file` to its key or `_FILE` to its variable.

`DRAY_SECRETS_DIR` names a directory with one file for each setting: the name of the file is that of a variable, and its
text the value, without one line break at its end. Secrets of Kubernetes and Docker can be mounted so, and then are not
in the environment. Names that begin with a dot are skipped.

A change needs a restart, except in five sections, whose services read file and directory again while they run:
`platform-delivery` ([deliveries.md](deliveries.md#changing-accounts)), `sandbox-transfer`
([transfers.md](backends/transfers.md#changing-sandboxes-and-credentials)), `orchestrator`
([orchestrator.md](orchestrator.md#changing-settings)), `file-resolver`
([file-resolver.md](file-resolver.md#changing-settings)) and `egress-fetcher`
([egress.md](egress.md#changing-credentials-and-limits)). Files with authorities or keys that settings of these sections name
by their path count as a part of the setting: it changes when their content does. The log names settings that need a restart
when they change. Policy files, and certificates and identities of listeners, are read again as their pages say.

Every service reads the credentials of the bus (`bus.nats.user`, `password`, `nkey_seed`, `credentials_file`) and of the store
(`store.s3.access_key`, `secret_key`, `session_token`, `credentials_expire_at_ms`) again every 2 s. The store gets the new ones
with the next request. The bus gets a new identity with the next connection, for which the files that `bus.nats` names are read
again, too. So give the server the new identity first, then the services, and then take the old one from the server, which ends
the connections that use it.
";

fn write_rows(
    page: &mut String,
    section: &SectionSpec,
    node: SchemaNode<'_>,
    prefix: &str,
    defaults: &Value,
) {
    for (name, field) in node.fields() {
        let path = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}.{name}")
        };
        let default = defaults.get(name).unwrap_or(&Value::Null);
        // A table that is unset by default has one row: its fields are needed only when it is set.
        if field.kind() == ValueKind::Fields && !default.is_null() {
            write_rows(page, section, field, &path, default);
            continue;
        }
        let variable = path.to_ascii_uppercase().replace('.', "__");
        let _ = writeln!(
            page,
            "| `{path}` | `DRAY_{}__{variable}` | {} | {} |",
            section.variable_part(),
            default_text(default),
            field_meaning(field),
        );
    }
}

fn field_meaning(field: SchemaNode<'_>) -> String {
    // A bar would end the cell of the table.
    let mut meaning = one_line(field.description()).replace('|', "\\|");
    if let Some(words) = field.choices() {
        let _ = write!(meaning, " One of: {}.", words.join(", "));
    }
    if field.is_secret() {
        meaning.push_str(" Secret.");
    }
    meaning
}

fn default_text(default: &Value) -> String {
    match default {
        Value::Null => "unset".to_owned(),
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::Array(items) if items.is_empty() => "empty".to_owned(),
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}

/// Joins a text to one line: line breaks inside a paragraph become spaces.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn write_aliases(page: &mut String, section: &SectionSpec) {
    if section.aliases.is_empty() {
        return;
    }
    page.push_str(
        "\nOther names of the same settings. A variable here and its `DRAY_` variable may both be set only to the \
         same value.\n\n| variable | key |\n|---|---|\n",
    );
    for alias in section.aliases {
        let _ = writeln!(
            page,
            "| `{}` | `{}.{}` |",
            alias.variable, section.name, alias.field
        );
    }
    for prefix in section.strict_prefixes {
        let _ = write!(
            page,
            "\nEvery other variable that begins with `{prefix}` is a start-up error.\n"
        );
    }
}
