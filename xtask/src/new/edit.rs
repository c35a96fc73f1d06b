//! Insertions into text at places that must be found exactly once.

use anyhow::{Context as _, bail};

/// The text with `addition` before the only occurrence of `anchor`.
///
/// # Errors
///
/// When the anchor is missing or occurs more than once: the file has changed, and this command has to be adapted.
pub(super) fn insert_before(text: &str, anchor: &str, addition: &str) -> anyhow::Result<String> {
    let (before, after) = split_at_anchor(text, anchor)?;
    Ok(format!("{before}{addition}{anchor}{after}"))
}

/// The text with `addition` after the only occurrence of `anchor`.
///
/// # Errors
///
/// Those of [`insert_before`].
pub(super) fn insert_after(text: &str, anchor: &str, addition: &str) -> anyhow::Result<String> {
    let (before, after) = split_at_anchor(text, anchor)?;
    Ok(format!("{before}{anchor}{addition}{after}"))
}

fn split_at_anchor<'text>(
    text: &'text str,
    anchor: &str,
) -> anyhow::Result<(&'text str, &'text str)> {
    if text.matches(anchor).count() > 1 {
        bail!("`{}` occurs more than once", anchor.trim());
    }
    text.split_once(anchor)
        .with_context(|| format!("`{}` does not occur", anchor.trim()))
}

/// The text with `line` among the lines that begin with `prefix` and end with `suffix`, before the first greater line.
///
/// # Errors
///
/// When no line begins and ends like this, or when the line already exists.
pub(super) fn insert_line(
    text: &str,
    prefix: &str,
    suffix: &str,
    line: &str,
) -> anyhow::Result<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let matching: Vec<usize> = (0..)
        .zip(&lines)
        .filter(|(_, known)| known.starts_with(prefix) && known.ends_with(suffix))
        .map(|(index, _)| index)
        .collect();
    let last = matching
        .last()
        .with_context(|| format!("no line begins with `{prefix}`"))?;
    if matching
        .iter()
        .any(|index| lines.get(*index) == Some(&line))
    {
        bail!("`{line}` exists already");
    }
    let greater = matching
        .iter()
        .find(|index| lines.get(**index).is_some_and(|known| *known > line));
    let insert_at = greater.map_or(last + 1, |index| *index);
    lines.insert(insert_at, line);
    Ok(format!("{}\n", lines.join("\n")))
}

/// The text with an item among the quoted words of the list between `begin` and the next `]`, in order.
///
/// # Errors
///
/// When the list does not exist, or when the item is in it.
pub(super) fn insert_word(text: &str, begin: &str, word: &str) -> anyhow::Result<String> {
    let (before, rest) = text
        .split_once(begin)
        .with_context(|| format!("`{}` does not occur", begin.trim()))?;
    let (open, rest) = rest.split_once("&[").context("no list follows")?;
    let (list, after) = rest.split_once(']').context("the list has no end")?;
    let mut names: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    if names.contains(&word) {
        bail!("`{word}` is in the list already");
    }
    names.push(word);
    names.sort_unstable();
    let names: Vec<_> = names.iter().map(|word| format!("\"{word}\"")).collect();
    Ok(format!(
        "{before}{begin}{open}&[{}]{after}",
        names.join(", ")
    ))
}

/// The text with a variant in the list of kinds after `begin`: its description, and `Variant = "name"`, in order of the
/// names.
///
/// # Errors
///
/// When the list does not exist, or when the name is in it.
pub(super) fn insert_variant(
    text: &str,
    begin: &str,
    name: &str,
    entry: &str,
) -> anyhow::Result<String> {
    let (before, rest) = text
        .split_once(begin)
        .with_context(|| format!("`{}` does not occur", begin.trim()))?;
    let (list, after) = rest.split_once("\n    }").context("the list has no end")?;
    let mut entries: Vec<(&str, &str)> = list
        .split_inclusive("\",")
        .filter_map(|entry| Some((entry.rsplit('"').nth(1)?, entry.trim_matches('\n'))))
        .collect();
    if entries.iter().any(|(known, _)| *known == name) {
        bail!("`{name}` is in the list already");
    }
    entries.push((name, entry));
    entries.sort_unstable();
    let entries: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
    Ok(format!(
        "{before}{begin}\n{}\n    }}{after}",
        entries.join("\n")
    ))
}
