//! `cargo xtask heavy`: the time of a new contributor's first build, as a tree.
//!
//! Every crate appears once, under the nearest crate that needs it, with the seconds of all crates below it. Shared
//! crates are near the root; dependencies of only one crate are under that crate. Seconds depend on the load of the
//! machine; the percentage of the total next to them hardly does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::metadata::CargoMetadata;
use crate::step;

/// Crates below this share of the total are left out.
const MIN_SHOWN_SHARE: f64 = 0.015;
/// Deepest level that is shown.
const MAX_DEPTH: usize = 4;
/// Beginning of the line in CONTRIBUTING.md after which the tree begins.
const BEGIN_MARKER: &str = "<!-- heavy:begin";
/// Line in CONTRIBUTING.md before which the tree ends.
const END_MARKER: &str = "<!-- heavy:end -->";

/// Seconds of the compiler for each package, and the time from the first start to the last end.
#[derive(Debug, Default, PartialEq)]
struct CompileTimings {
    /// Seconds by package name; build scripts count towards their package.
    seconds: BTreeMap<String, f64>,
    /// Seconds from the first start to the last end.
    elapsed: f64,
}

/// Builds from scratch in a separate directory, or reads the report of another build; prints the tree or writes it.
pub(crate) fn run_report(root: &Path, report: Option<PathBuf>, write: bool) -> anyhow::Result<()> {
    let report = match report {
        Some(report) => report,
        None => clean_build(root)?,
    };
    let html =
        fs::read_to_string(&report).with_context(|| format!("cannot read {}", report.display()))?;
    let timings = parse_timings(&html)?;
    let text = dependency_tree(&CargoMetadata::read(root)?, &timings);
    if !write {
        eprint!("{text}");
        return Ok(());
    }
    let page = root.join("CONTRIBUTING.md");
    let old = fs::read_to_string(&page)?;
    fs::write(&page, replace_tree(&old, &text)?)?;
    Ok(())
}

/// Builds from scratch, as a new contributor does, and returns the path of the timing report.
fn clean_build(root: &Path) -> anyhow::Result<PathBuf> {
    let directory = root.join("target/heavy");
    if directory.exists() {
        // The directory is removed, because an incremental build would show only changed crates.
        fs::remove_dir_all(&directory)?;
    }
    step::cargo_step(root)
        .args(["build", "--release", "--package", "dray", "--timings"])
        .arg("--target-dir")
        .arg(&directory)
        .run()?;
    Ok(directory.join("cargo-timings/cargo-timing.html"))
}

/// Reads the list of units from cargo's report.
fn parse_timings(html: &str) -> anyhow::Result<CompileTimings> {
    let (_, rest) = html
        // The report is a page for people. Its data is a literal of JavaScript that is valid JSON.
        .split_once("const UNIT_DATA = ")
        .context("not a timing report of cargo")?;
    let (json, _) = rest
        .split_once("];")
        .context("the timing report is cut off")?;
    let units: Vec<Value> = serde_json::from_str(&format!("{json}]"))?;
    let mut timings = CompileTimings::default();
    for unit in &units {
        let number = |key: &str| unit.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        let name = unit.get("name").and_then(Value::as_str).unwrap_or_default();
        // A package has several units: build script, library, sometimes a second version.
        *timings.seconds.entry(name.to_owned()).or_default() += number("duration");
        timings.elapsed = timings.elapsed.max(number("start") + number("duration"));
    }
    Ok(timings)
}

/// Formats the tree as text.
fn dependency_tree(metadata: &CargoMetadata, timings: &CompileTimings) -> String {
    let parents = nearest_parents(metadata, "dray");
    let mut children_of: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in timings.seconds.keys().filter(|name| *name != "dray") {
        // Dependencies of build scripts are not in the graph of normal dependencies.
        let parent = parents.get(name.as_str()).map_or("dray", String::as_str);
        children_of.entry(parent).or_default().insert(name);
    }
    let total: f64 = timings.seconds.values().sum();
    let tree = DependencyTree {
        seconds: &timings.seconds,
        children_of,
        total,
    };
    let mut text = format!(
        "dray: {total:.0} s of compiler time, {:.0} s from start to end\n",
        timings.elapsed
    );
    tree.write(&mut text, "dray", "", 1);
    text
}

/// For each crate, the dependent that is nearest to the root.
fn nearest_parents(metadata: &CargoMetadata, root: &str) -> BTreeMap<String, String> {
    let mut parents = BTreeMap::new();
    // Breadth first, so that the first parent that is found is the nearest.
    let mut pending: VecDeque<_> = metadata
        .packages
        .values()
        .filter(|package| package.name == root)
        .collect();
    while let Some(package) = pending.pop_front() {
        for id in &package.normal {
            let Some(needed) = metadata.packages.get(id) else {
                continue;
            };
            if needed.name != root && !parents.contains_key(&needed.name) {
                parents.insert(needed.name.clone(), package.name.clone());
                pending.push_back(needed);
            }
        }
    }
    parents
}

struct DependencyTree<'a> {
    seconds: &'a BTreeMap<String, f64>,
    children_of: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// Seconds of all crates.
    total: f64,
}

impl DependencyTree<'_> {
    /// Seconds of a crate and of everything under it.
    fn sum(&self, name: &str) -> f64 {
        let own = self.seconds.get(name).copied().unwrap_or_default();
        own + self
            .children(name)
            .map(|child| self.sum(child))
            .sum::<f64>()
    }

    fn children(&self, name: &str) -> impl Iterator<Item = &str> {
        self.children_of.get(name).into_iter().flatten().copied()
    }

    fn write(&self, text: &mut String, name: &str, indent: &str, depth: usize) {
        let mut heavy: Vec<(f64, &str)> = self
            .children(name)
            .map(|child| (self.sum(child), child))
            .filter(|(seconds, _)| *seconds >= self.total * MIN_SHOWN_SHARE)
            .collect();
        heavy.sort_by(|left, right| right.0.total_cmp(&left.0));
        let last = heavy.len();
        for (index, (seconds, child)) in heavy.into_iter().enumerate() {
            let (branch, next) = if index + 1 == last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            let label = format!("{indent}{branch}{child}");
            // Writing to a string cannot fail.
            let share = seconds / self.total * 100.0;
            let _ = writeln!(text, "{label:<44}{seconds:>6.1} s {share:>5.1} %");
            if depth < MAX_DEPTH {
                self.write(text, child, &format!("{indent}{next}"), depth + 1);
            }
        }
    }
}

/// The page with the tree between its two lines.
fn replace_tree(page: &str, tree: &str) -> anyhow::Result<String> {
    let (Some(begin), Some(end)) = (page.find(BEGIN_MARKER), page.find(END_MARKER)) else {
        bail!("CONTRIBUTING.md has no markers for the tree");
    };
    let first_line = page
        .get(begin..end)
        .and_then(|between| between.lines().next());
    let (Some(before), Some(first_line), Some(after)) =
        (page.get(..begin), first_line, page.get(end..))
    else {
        bail!("the markers for the tree in CONTRIBUTING.md are in the wrong order");
    };
    Ok(format!(
        // The first line is kept, because it describes how to create the tree.
        "{before}{first_line}\n\n```text\n{tree}```\n\n{after}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::CargoPackage;

    const REPORT_HTML: &str = r#"<script>const UNIT_DATA = [
        {"name": "dray", "start": 30.0, "duration": 10.0},
        {"name": "aws", "start": 1.0, "duration": 20.0},
        {"name": "aws", "start": 0.0, "duration": 1.0},
        {"name": "store", "start": 21.0, "duration": 5.0},
        {"name": "tiny", "start": 0.0, "duration": 0.1},
        {"name": "cc", "start": 0.0, "duration": 4.0}
    ];
const CONCURRENCY_DATA = [];</script>"#;

    /// `dray` needs `store` and `tiny`, `store` needs `aws` and `tiny`.
    fn metadata() -> CargoMetadata {
        let package = |name: &str, normal: &[&str]| {
            let package = CargoPackage {
                name: name.to_owned(),
                normal: normal.iter().map(ToString::to_string).collect(),
                ..CargoPackage::default()
            };
            (name.to_owned(), package)
        };
        CargoMetadata {
            packages: BTreeMap::from([
                package("dray", &["store", "tiny"]),
                package("store", &["aws", "tiny"]),
                package("aws", &[]),
                package("tiny", &[]),
            ]),
        }
    }

    #[test]
    fn seconds_are_added_to_the_crate_that_needs_them() {
        let text = dependency_tree(&metadata(), &parse_timings(REPORT_HTML).unwrap());
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "dray: 40 s of compiler time, 40 s from start to end",
                "├─ store 26.0 s 64.8 %",
                "│ └─ aws 21.0 s 52.4 %",
                "└─ cc 4.0 s 10.0 %",
            ]
        );
    }

    #[test]
    fn malformed_reports_are_refused() {
        assert!(parse_timings("<html>").is_err());
        assert!(parse_timings("const UNIT_DATA = [{").is_err());
    }

    #[test]
    fn the_rest_of_the_page_stays() {
        let page = format!("before\n{BEGIN_MARKER} (how) -->\nold\n{END_MARKER}\nafter\n");
        let new = replace_tree(&page, "tree\n").unwrap();
        assert_eq!(
            new,
            format!(
                "before\n{BEGIN_MARKER} (how) -->\n\n```text\ntree\n```\n\n{END_MARKER}\nafter\n"
            )
        );
        assert_eq!(replace_tree(&new, "tree\n").unwrap(), new);
        assert!(replace_tree("nothing", "tree").is_err());
        assert!(replace_tree(&format!("{END_MARKER}{BEGIN_MARKER}"), "tree").is_err());
    }
}
