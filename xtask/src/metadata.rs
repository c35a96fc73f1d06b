//! The part of `cargo metadata` that the commands use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::step;

/// All packages of the resolved graph.
#[derive(Debug, Default)]
pub(crate) struct CargoMetadata {
    /// Packages by their id, which distinguishes two versions of one name.
    pub(crate) packages: BTreeMap<String, CargoPackage>,
}

/// One package of the graph, of this workspace or from a registry.
#[derive(Debug, Default, Clone)]
pub(crate) struct CargoPackage {
    pub(crate) name: String,
    pub(crate) version: String,
    /// SPDX expression, when there is one.
    pub(crate) licence: Option<String>,
    /// `None` for a package of this repository.
    pub(crate) source: Option<String>,
    /// Whether the package is a member of this workspace.
    pub(crate) is_member: bool,
    /// Directory of the manifest, relative to the workspace; only for members.
    pub(crate) directory: String,
    /// Names of its test binaries.
    pub(crate) tests: Vec<String>,
    /// The dependencies in its manifest.
    pub(crate) declared: Vec<DeclaredDependency>,
    /// Ids of its normal dependencies, without development and build dependencies.
    pub(crate) normal: BTreeSet<String>,
}

/// A line under `[dependencies]`, `[dev-dependencies]` or `[build-dependencies]`.
#[derive(Debug, Default, Clone)]
pub(crate) struct DeclaredDependency {
    pub(crate) name: String,
    /// The name in source code, when it is another.
    pub(crate) rename: Option<String>,
    /// Whether the dependency is under `[dev-dependencies]`.
    pub(crate) is_dev: bool,
}

impl CargoMetadata {
    /// Runs `cargo metadata` for the whole graph with all features.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let text = step::cargo_step(root)
            // All features are on, to include the dependencies of each.
            .args(["metadata", "--format-version", "1", "--all-features"])
            .output()?;
        Self::parse(&text)
    }

    /// Parses the output of cargo.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let root = value_at(&value, "/workspace_root")
            .as_str()
            .unwrap_or_default();
        let members: BTreeSet<&str> = array_at(value_at(&value, "/workspace_members"))
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let mut packages = BTreeMap::new();
        for package in array_at(value_at(&value, "/packages")) {
            let id = text_of(package, "id")?;
            let is_member = members.contains(id.as_str());
            packages.insert(id, parse_package(package, is_member, root)?);
        }
        for node in array_at(value_at(&value, "/resolve/nodes")) {
            let id = text_of(node, "id")?;
            if let Some(package) = packages.get_mut(&id) {
                package.normal = normal_dependencies(node);
            }
        }
        Ok(Self { packages })
    }

    /// The members of this workspace, in the order of their ids.
    pub(crate) fn members(&self) -> impl Iterator<Item = &CargoPackage> {
        self.packages.values().filter(|package| package.is_member)
    }

    /// Names of the workspace's packages with a test binary of this name.
    pub(crate) fn with_test(&self, name: &str) -> Vec<String> {
        self.members()
            .filter(|package| package.tests.iter().any(|test| test == name))
            .map(|package| package.name.clone())
            .collect()
    }

    /// Names of everything that a package is built from, itself excluded.
    pub(crate) fn normal_tree(&self, name: &str) -> BTreeSet<&str> {
        let mut visited = BTreeSet::new();
        let mut pending: Vec<&str> = self
            .packages
            .values()
            .filter(|package| package.name == name)
            .flat_map(|package| package.normal.iter().map(String::as_str))
            .collect();
        while let Some(id) = pending.pop() {
            // A package is reached by many paths; following each of them again would take exponential time.
            if !visited.insert(id) {
                continue;
            }
            if let Some(package) = self.packages.get(id) {
                pending.extend(package.normal.iter().map(String::as_str));
            }
        }
        visited
            .into_iter()
            .filter_map(|id| self.packages.get(id))
            .map(|package| package.name.as_str())
            .collect()
    }
}

fn parse_package(package: &Value, is_member: bool, root: &str) -> anyhow::Result<CargoPackage> {
    let manifest = text_of(package, "manifest_path")?;
    let directory = Path::new(&manifest)
        .parent()
        .and_then(|directory| directory.strip_prefix(root).ok())
        .map(|directory| directory.to_string_lossy().into_owned())
        .unwrap_or_default();
    let declared = array_at(value_at(package, "/dependencies"))
        .iter()
        .map(|dependency| {
            Ok(DeclaredDependency {
                name: text_of(dependency, "name")?,
                rename: value_at(dependency, "/rename").as_str().map(str::to_owned),
                is_dev: value_at(dependency, "/kind").as_str() == Some("dev"),
            })
        })
        .collect::<anyhow::Result<_>>()?;
    let tests = array_at(value_at(package, "/targets"))
        .iter()
        .filter(|target| value_at(target, "/kind/0").as_str() == Some("test"))
        .filter_map(|target| value_at(target, "/name").as_str().map(str::to_owned))
        .collect();
    Ok(CargoPackage {
        name: text_of(package, "name")?,
        version: text_of(package, "version")?,
        licence: value_at(package, "/license").as_str().map(str::to_owned),
        source: value_at(package, "/source").as_str().map(str::to_owned),
        is_member,
        directory,
        tests,
        declared,
        normal: BTreeSet::new(),
    })
}

/// Ids of the dependencies of one node whose kind is neither `dev` nor `build`.
fn normal_dependencies(node: &Value) -> BTreeSet<String> {
    array_at(value_at(node, "/deps"))
        .iter()
        .filter(|dependency| {
            array_at(value_at(dependency, "/dep_kinds"))
                .iter()
                // A dependency can be of several kinds; cargo writes null for the normal one.
                .any(|kind| value_at(kind, "/kind").is_null())
        })
        .filter_map(|dependency| value_at(dependency, "/pkg").as_str().map(str::to_owned))
        .collect()
}

/// The value at a JSON pointer; null when it is absent.
fn value_at<'value>(value: &'value Value, pointer: &str) -> &'value Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

fn array_at(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value, key: &str) -> anyhow::Result<String> {
    value
        .get(key)
        .and_then(Value::as_str)
        .map(str::to_owned)
        .with_context(|| format!("cargo metadata without `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA_JSON: &str = r#"{
        "workspace_root": "/w",
        "workspace_members": ["ours"],
        "packages": [
            {"id": "ours", "name": "ours", "version": "1", "license": "MIT", "source": null,
             "manifest_path": "/w/crates/ours/Cargo.toml",
             "targets": [{"name": "ours", "kind": ["lib"]}, {"name": "soak", "kind": ["test"]}],
             "dependencies": [
                {"name": "theirs", "kind": null, "rename": null},
                {"name": "tester", "kind": "dev", "rename": "probe"}]},
            {"id": "theirs", "name": "theirs", "version": "2", "license": null, "source": "registry+x",
             "manifest_path": "/r/theirs/Cargo.toml", "dependencies": []},
            {"id": "deep", "name": "deep", "version": "3", "license": null, "source": "registry+x",
             "manifest_path": "/r/deep/Cargo.toml", "dependencies": []},
            {"id": "tester", "name": "tester", "version": "3", "license": null, "source": "registry+x",
             "manifest_path": "/r/tester/Cargo.toml", "dependencies": []}
        ],
        "resolve": {"nodes": [
            {"id": "ours", "deps": [
                {"pkg": "theirs", "dep_kinds": [{"kind": null}, {"kind": "dev"}]},
                {"pkg": "tester", "dep_kinds": [{"kind": "dev"}]}]},
            {"id": "theirs", "deps": [{"pkg": "deep", "dep_kinds": [{"kind": null}]}]},
            {"id": "deep", "deps": [{"pkg": "theirs", "dep_kinds": [{"kind": null}]}]}
        ]}
    }"#;

    #[test]
    fn the_normal_tree_is_transitive_and_has_no_development_dependencies() {
        let metadata = CargoMetadata::parse(METADATA_JSON).unwrap();
        let tree: Vec<_> = metadata.normal_tree("ours").into_iter().collect();
        assert_eq!(tree, ["deep", "theirs"]);
    }

    #[test]
    fn members_have_their_directory_and_dependencies() {
        let metadata = CargoMetadata::parse(METADATA_JSON).unwrap();
        let ours = metadata.members().next().unwrap();
        assert_eq!(ours.directory, "crates/ours");
        assert_eq!(ours.declared[1].rename.as_deref(), Some("probe"));
        assert!(ours.declared[1].is_dev);
        assert!(!ours.declared[0].is_dev);
        assert_eq!(metadata.with_test("soak"), ["ours"]);
        assert!(metadata.with_test("ours").is_empty());
    }
}
