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
        page.push_str(
            "\n| key | variable | default | restart | meaning |\n|---|---|---|---|---|\n",
        );
        write_rows(
            &mut page,
            section,
            section.root(),
            "",
            Some(&section.defaults),
        );
        write_aliases(&mut page, section);
    }
    page
}

const CONFIGURATION_PAGE_HEAD: &str = "# Configuration

This page is generated (`cargo xtask generate`); the text comes from the code.

Settings come from these sources; a later one overrides an earlier one: compiled defaults, one TOML file
(`--config FILE` or the variable `DRAY_CONFIG`), the files in a directory (`DRAY_SECRETS_DIR`), variables, flags
(`--set section.field=value`). Unknown keys are errors in every source. A variable with the prefix `DRAY_` that names no
section, such as `DRAY_BIN`, is ignored with a warning. `dray config check` loads and checks the settings;
`dray config show` prints every value in force and where it came from.

Variables are named `DRAY_<SECTION>__<FIELD>`, with two underscores before every level. Sizes are written
`64KiB`, `25MiB` or as a number of bytes, durations `250ms`, `30s`, `1h30m`, lists `a,b` or as JSON. A
secret can be read from a file: add `_file` to its key or `_FILE` to its variable. In the column `default`, *unset* means
that there is no value, *empty* an empty text or list, and *required* that the table cannot be used without the key.

In a key, `*` stands for each name that you choose, and `[]` for each item of a list. A variable gives the name in capitals, and
it is read in small letters: `DRAY_PLATFORM_DELIVERY__ACCOUNTS__BOT__TELEGRAM__TOKEN` sets `accounts.bot.telegram.token`. Items of
lists have no variables of their own: the variable of the list takes JSON. A default after a name or in an item applies when its
table is set.

`DRAY_SECRETS_DIR` names a directory with one file for each setting. The name of the file is that of the variable, and its
text is the value, without one line break at its end. Secrets of Kubernetes and Docker that are mounted there are not in
the environment. Files whose names begin with a dot are skipped.

The column `restart` says whether a changed setting needs one. With *no*, the services read the file and the directory again every
`reload_interval` (2 s) while they run. A change counts after two equal reads and applies to what begins later:
`platform-delivery` ([deliveries.md](deliveries.md#changing-accounts)),
`sandbox-transfer` ([transfers.md](backends/transfers.md#changing-sandboxes-and-credentials)), `orchestrator`
([orchestrator.md](orchestrator.md#changing-settings)), `file-resolver` ([file-resolver.md](file-resolver.md#changing-settings)),
`egress-fetcher` ([egress.md](egress.md#changing-credentials-and-limits)), and the credentials of `bus` and `store`. Values of
variables and flags are those of the start. When the content of a file with authorities or keys changes that such a setting
names, the setting counts as changed. The log names changed settings that need a restart. Policy files, and certificates and
identities of listeners, are read again as their pages say.

Keys that all replicas must share are derived from `store.s3.derivation_key`, at least 32 characters, the same in all replicas
of a service: for turns that wait for their client, sign-ins at MCP servers, names of stored files, login links of the console,
and the key of the tickets' endpoint. Without it they come from `store.s3.secret_key` as it was at the start of the process.
Processes that started before and after a change of the credentials then do not accept what the others made, and a secret that
was replaced still makes valid login links and keys until all of them restart. So set it where credentials are temporary or
rotated. To change it, move the former value (or the `secret_key` from before there was one) to `previous_derivation_key` and
restart all processes; remove it when what was made with it has ended.

Every service reads the credentials of the bus and of the store again every 2 s. The store gets the new ones
with the next request. The bus gets a new identity with the next connection, for which the files that `bus.nats` names are read
again, too. To change an identity, give the new one to the server first, then to the services. Then remove the old one from the
server, which ends the connections that use it. Links that were signed with a key of the store work until the store removes that key:
keep it for the lifetime of links (`platform-delivery.link_lifetime`).
";

/// Writes a row for each setting of `node`. `defaults` are the values of its fields while the operator sets none; `None`
/// for a table that exists only when the operator adds it: then its schema has the defaults.
fn write_rows(
    page: &mut String,
    section: &SectionSpec,
    node: SchemaNode<'_>,
    prefix: &str,
    defaults: Option<&Value>,
) {
    for (name, field) in node.fields() {
        let path = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}.{name}")
        };
        let default = match defaults {
            Some(values) => values.get(name),
            None => field.default_value(),
        };
        let default = default.filter(|value| !value.is_null());
        let is_table = field.kind() == ValueKind::Fields;
        // A table that is set by default consists of its fields and has no row.
        if !is_table || default.is_none() {
            let is_required = defaults.is_none() && node.requires(name);
            let default = match default {
                None if is_required => "required".to_owned(),
                None => "unset".to_owned(),
                Some(value) => default_text(value),
            };
            write_row(page, section, field, &path, &default);
        }
        if is_table {
            write_rows(page, section, field, &path, default);
        } else if let Some((table, path)) = entry_table(field, &path) {
            write_rows(page, section, table, &path, None);
        }
    }
}

fn write_row(
    page: &mut String,
    section: &SectionSpec,
    field: SchemaNode<'_>,
    path: &str,
    default: &str,
) {
    let variable = if path.contains("[]") {
        "none".to_owned()
    } else {
        let name = path.to_ascii_uppercase().replace('.', "__");
        format!("`DRAY_{}__{name}`", section.variable_part())
    };
    let restart = if section.needs_restart(path) {
        "yes"
    } else {
        "no"
    };
    let meaning = field_meaning(field);
    let _ = writeln!(
        page,
        "| `{path}` | {variable} | {default} | {restart} | {meaning} |"
    );
}

/// The table that each entry of a map or each item of a list is, with its path: `accounts.*`, `credentials[]`.
fn entry_table<'a>(field: SchemaNode<'a>, path: &str) -> Option<(SchemaNode<'a>, String)> {
    let entry = field.values().map(|value| (value, format!("{path}.*")));
    let (entry, path) = entry.or_else(|| Some((field.items()?, format!("{path}[]"))))?;
    if entry.kind() == ValueKind::Fields {
        return Some((entry, path));
    }
    entry_table(entry, &path)
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
