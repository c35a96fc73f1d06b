//! Checks that every path in the table of common changes in `CONTRIBUTING.md` exists. A file that is moved would
//! otherwise stay in the table under its old path.

use std::path::Path;

use anyhow::Context as _;

/// The heading above the table.
const TABLE_HEADING: &str = "## Common changes\n";

/// Paths of the table that do not exist.
pub(crate) fn violations(root: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join("CONTRIBUTING.md"))
        .context("cannot read CONTRIBUTING.md")?;
    Ok(missing_paths(&text, |path| root.join(path).exists()))
}

fn missing_paths(contributing: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let Some((_, section)) = contributing.split_once(TABLE_HEADING) else {
        return vec![format!(
            "CONTRIBUTING.md has no heading `{}`",
            TABLE_HEADING.trim()
        )];
    };
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    names
        // Everything else between backticks is a command or a name in code.
        .filter(|name| name.contains('/') && !name.contains(' '))
        .filter(|path| !exists(path))
        .map(|path| {
            format!("CONTRIBUTING.md: `{path}` does not exist; correct the table of common changes")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_paths_of_the_table_that_do_not_exist() {
        let text = "# Changing\n\n`gone/before.rs`\n\n## Common changes\n\n\
            `gone/text.rs`\n\n\
            | change | edit | then run |\n|---|---|---|\n\
            | a setting | `here/config.rs`, `Section::restart_settings` | `cargo xtask generate a/b` |\n\
            | an alert | `gone/alerts.rs`, `here` | |\n\n\
            ## Style\n\n| `gone/after.rs` |\n";
        assert_eq!(
            missing_paths(text, |path| path.starts_with("here")),
            [
                "CONTRIBUTING.md: `gone/alerts.rs` does not exist; correct the table of common changes"
            ]
        );
        assert_eq!(
            missing_paths("# Changing\n", |_| true),
            ["CONTRIBUTING.md has no heading `## Common changes`"]
        );
    }
}
