//! The software bill of materials of a release, in `CycloneDX` 1.6 (ECMA-424): every package that the program is built
//! from, with its digest from `Cargo.lock`, its licence and its dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::digest::{FileDigest, hexadecimal};
use super::program::SourceCommit;
use super::static_library::StaticLibrary;
use crate::step;

/// Package whose program is released.
const RELEASED_PACKAGE: &str = "dray";

/// The packages of a program and their dependencies.
#[derive(Debug)]
pub(super) struct BillOfMaterials {
    /// Packages by the id that cargo gives them; only dependencies of the program.
    packages: BTreeMap<String, BilledPackage>,
    /// Id of the package of the program.
    root: String,
    /// The C library, if it is linked into the program.
    library: Option<StaticLibrary>,
}

#[derive(Debug)]
struct BilledPackage {
    name: String,
    version: String,
    licence: Option<String>,
    /// Whether it is from a registry; otherwise it is a part of this repository.
    is_external: bool,
    /// SHA-256 of the package file, from `Cargo.lock`.
    sha256: Option<String>,
    /// Ids of its dependencies and build dependencies.
    dependencies: BTreeSet<String>,
}

impl BilledPackage {
    /// Reference within the document. For packages of a registry, it is the package URL (`pkg:cargo`, purl
    /// specification).
    fn reference(&self) -> String {
        let (name, version) = (&self.name, &self.version);
        // Build metadata in a version has a `+`, which a package URL escapes.
        let version = version.replace('+', "%2B");
        if self.is_external {
            format!("pkg:cargo/{name}@{version}")
        } else {
            format!("drayage:{name}@{version}")
        }
    }

    fn component(&self, kind: &str) -> Map<String, Value> {
        let mut component = Map::new();
        component.insert("type".to_owned(), json!(kind));
        component.insert("bom-ref".to_owned(), json!(self.reference()));
        component.insert("name".to_owned(), json!(self.name));
        component.insert("version".to_owned(), json!(self.version));
        if let Some(sha256) = &self.sha256 {
            let hashes = json!([{"alg": "SHA-256", "content": sha256}]);
            component.insert("hashes".to_owned(), hashes);
        }
        if let Some(licence) = &self.licence {
            // Older manifests separate alternatives with a slash, which is not SPDX.
            let expression = licence.replace('/', " OR ").replace("  ", " ");
            component.insert("licenses".to_owned(), json!([{"expression": expression}]));
        }
        if self.is_external {
            component.insert("purl".to_owned(), json!(self.reference()));
        }
        component
    }
}

impl BillOfMaterials {
    /// Reads the resolved graph of this target, whose programs contain `library`.
    pub(super) fn read(
        root: &Path,
        target: &str,
        library: Option<StaticLibrary>,
    ) -> anyhow::Result<Self> {
        let metadata = step::cargo_step(root)
            .args(["metadata", "--locked", "--format-version", "1"])
            .args(["--filter-platform", target])
            .output()?;
        let lock = fs::read_to_string(root.join("Cargo.lock"))?;
        let bill = Self::parse(&serde_json::from_str(&metadata)?, &checksums(&lock)?)?;
        Ok(Self { library, ..bill })
    }

    fn parse(
        metadata: &Value,
        checksums: &BTreeMap<(String, String), String>,
    ) -> anyhow::Result<Self> {
        let list = |pointer: &str| {
            let list = metadata.pointer(pointer).and_then(Value::as_array);
            list.context("cargo metadata without packages or their graph")
        };
        let mut packages = BTreeMap::new();
        for package in list("/packages")? {
            let text = |key: &str| package.get(key).and_then(Value::as_str).map(str::to_owned);
            let missing = "cargo metadata with an incomplete package";
            let (name, version) = (
                text("name").context(missing)?,
                text("version").context(missing)?,
            );
            let sha256 = checksums.get(&(name.clone(), version.clone())).cloned();
            let entry = BilledPackage {
                name,
                version,
                licence: text("license"),
                is_external: text("source").is_some(),
                sha256,
                dependencies: BTreeSet::new(),
            };
            packages.insert(text("id").context(missing)?, entry);
        }
        for node in list("/resolve/nodes")? {
            let id = node.get("id").and_then(Value::as_str).unwrap_or_default();
            if let Some(package) = packages.get_mut(id) {
                package.dependencies = dependencies(node);
            }
        }
        let root = packages
            .iter()
            .find(|(_, package)| package.name == RELEASED_PACKAGE && !package.is_external)
            .map(|(id, _)| id.clone())
            .context("cargo metadata without the package of the program")?;
        let needed = reachable(&packages, &root);
        packages.retain(|id, _| needed.contains(id));
        Ok(Self {
            packages,
            root,
            library: None,
        })
    }

    /// The document for this program. The same program and commit give the same document.
    pub(super) fn document(
        &self,
        program: &FileDigest,
        commit: &SourceCommit,
    ) -> anyhow::Result<Value> {
        let root = self.packages.get(&self.root).context("no program")?;
        let mut application = root.component("application");
        let hashes = json!([{"alg": "SHA-256", "content": program.sha256}]);
        application.insert("hashes".to_owned(), hashes);
        let others = self.packages.iter().filter(|(id, _)| **id != self.root);
        let components: Vec<_> = others
            .map(|(_, package)| Value::Object(package.component("library")))
            .chain(self.library.iter().map(StaticLibrary::component))
            .collect();
        let graph: Vec<Value> = self
            .packages
            .iter()
            .map(|(id, package)| self.edges(id, package))
            .chain(
                self.library
                    .iter()
                    .map(|library| json!({"ref": library.package_url(), "dependsOn": []})),
            )
            .collect();
        Ok(json!({
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": serial_number(program, commit),
            "version": 1,
            "metadata": {
                "timestamp": timestamp(commit)?,
                "lifecycles": [{"phase": "build"}],
                "tools": {"components": [{"type": "application", "name": "cargo xtask dist"}]},
                "component": application,
            },
            "components": components,
            "dependencies": graph,
        }))
    }

    fn edges(&self, id: &str, package: &BilledPackage) -> Value {
        let mut needed: BTreeSet<String> = package
            .dependencies
            .iter()
            .filter_map(|id| Some(self.packages.get(id)?.reference()))
            .collect();
        if id == self.root {
            needed.extend(self.library.iter().map(StaticLibrary::package_url));
        }
        json!({"ref": package.reference(), "dependsOn": needed})
    }
}

/// The time of a commit (RFC 3339).
pub(super) fn timestamp(commit: &SourceCommit) -> anyhow::Result<String> {
    let time = step::program_step("date")
        .args(["--utc", "+%Y-%m-%dT%H:%M:%SZ", "--date"])
        .arg(format!("@{}", commit.seconds))
        .output()?;
    Ok(time.trim().to_owned())
}

/// A UUID of version 8 (RFC 9562) that only this product and commit have.
pub(super) fn serial_number(product: &FileDigest, commit: &SourceCommit) -> String {
    let digest = Sha256::digest(format!("{}\n{}", product.sha256, commit.hash));
    let mut digits = hexadecimal(&digest);
    digits.truncate(32);
    // The digit of the version, then the two bits of the variant.
    digits.replace_range(12..13, "8");
    digits.replace_range(16..17, "a");
    for index in [20, 16, 12, 8] {
        digits.insert(index, '-');
    }
    format!("urn:uuid:{digits}")
}

/// Ids of the normal and the build dependencies of one node, without dependencies of tests.
fn dependencies(node: &Value) -> BTreeSet<String> {
    let edges = node.get("deps").and_then(Value::as_array);
    let is_built = |edge: &&Value| {
        let kinds = edge.get("dep_kinds").and_then(Value::as_array);
        let mut kinds = kinds.into_iter().flatten();
        kinds.any(|kind| kind.get("kind").and_then(Value::as_str) != Some("dev"))
    };
    let ids = edges.into_iter().flatten().filter(is_built);
    ids.filter_map(|edge| Some(edge.get("pkg")?.as_str()?.to_owned()))
        .collect()
}

fn reachable(packages: &BTreeMap<String, BilledPackage>, root: &str) -> BTreeSet<String> {
    let mut visited = BTreeSet::new();
    let mut pending = vec![root.to_owned()];
    while let Some(id) = pending.pop() {
        if let Some(package) = packages.get(&id)
            && visited.insert(id)
        {
            pending.extend(package.dependencies.iter().cloned());
        }
    }
    visited
}

/// Digests of package files by name and version.
fn checksums(lock: &str) -> anyhow::Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = lock.parse().context("cannot read Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let entry = |package: &toml::Value| {
        let text = |key: &str| package.get(key)?.as_str().map(str::to_owned);
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.into_iter().flatten().filter_map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::super::static_library;
    use super::*;

    /// `dray` is built from `ours`, and `ours` from `theirs` with `builder`; `tester` is only for tests of `dray`.
    fn bill() -> BillOfMaterials {
        let package = |name: &str, source: Option<&str>| {
            json!({"id": format!("{name}-id"), "name": name, "version": "1.0.0+x", "license": "MIT/Apache-2.0",
                   "source": source})
        };
        let registry = Some("registry+https://packages.example");
        let edge = |name: &str, kind: Option<&str>| json!({"pkg": format!("{name}-id"), "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("dray", None), package("ours", None), package("theirs", registry),
                         package("builder", registry), package("tester", registry), package("other", None)],
            "resolve": {"nodes": [
                {"id": "dray-id", "deps": [edge("ours", None), edge("tester", Some("dev"))]},
                {"id": "ours-id", "deps": [edge("theirs", None), edge("builder", Some("build"))]},
                {"id": "theirs-id", "deps": [edge("theirs", None)]},
            ]},
        });
        let lock = "version = 4\n[[package]]\nname = \"theirs\"\nversion = \"1.0.0+x\"\nchecksum = \"abc\"\n\
                    [[package]]\nname = \"ours\"\nversion = \"1.0.0+x\"\n";
        BillOfMaterials::parse(&metadata, &checksums(lock).unwrap()).unwrap()
    }

    fn program(digit: &str) -> FileDigest {
        FileDigest {
            name: "dray".to_owned(),
            sha256: digit.repeat(64),
        }
    }

    fn commit() -> SourceCommit {
        SourceCommit {
            hash: "c".repeat(40),
            seconds: 1_700_000_000,
            is_changed: false,
        }
    }

    fn document(digit: &str) -> Value {
        bill().document(&program(digit), &commit()).unwrap()
    }

    #[test]
    fn the_bill_names_the_packages_of_the_program_without_test_dependencies() {
        let document = document("1");
        let components = document["components"].as_array().unwrap();
        let names: Vec<_> = components
            .iter()
            .map(|component| component["name"].clone())
            .collect();
        assert_eq!(names, ["builder", "ours", "theirs"]);
        assert_eq!(
            components[2],
            json!({
                "type": "library",
                "bom-ref": "pkg:cargo/theirs@1.0.0%2Bx",
                "name": "theirs",
                "version": "1.0.0+x",
                "hashes": [{"alg": "SHA-256", "content": "abc"}],
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
                "purl": "pkg:cargo/theirs@1.0.0%2Bx",
            })
        );
        assert_eq!(components[1].get("purl"), None, "ours is in no registry");
        let ours = &document["dependencies"][2];
        assert_eq!(
            *ours,
            json!({
                "ref": "drayage:ours@1.0.0%2Bx",
                "dependsOn": ["pkg:cargo/builder@1.0.0%2Bx", "pkg:cargo/theirs@1.0.0%2Bx"],
            })
        );
        let program = &document["metadata"]["component"];
        assert_eq!(program["hashes"][0]["content"], "1".repeat(64));
        assert_eq!(document["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    }

    #[test]
    fn the_bill_of_a_static_program_names_the_c_library_in_it() {
        let library = static_library::tests::library();
        let bill = BillOfMaterials {
            library: Some(library.clone()),
            ..bill()
        };
        let document = bill.document(&program("1"), &commit()).unwrap();
        let components = document["components"].as_array().unwrap();
        assert_eq!(components.last(), Some(&library.component()));
        let url = "pkg:generic/musl@1.2.5";
        let graph = document["dependencies"].as_array().unwrap();
        assert_eq!(
            graph.last(),
            Some(&json!({"ref": url, "dependsOn": []})),
            "{graph:?}"
        );
        let of_program = &graph[1];
        assert_eq!(of_program["ref"], "drayage:dray@1.0.0%2Bx");
        assert_eq!(
            of_program["dependsOn"],
            json!(["drayage:ours@1.0.0%2Bx", url])
        );
        let dynamic = self::document("1").to_string();
        assert!(!dynamic.contains("musl"), "{dynamic}");
    }

    #[test]
    fn the_document_depends_only_on_the_program_and_programs_have_different_serial_numbers() {
        assert_eq!(document("1"), document("1"));
        let serial = |digit| document(digit)["serialNumber"].as_str().unwrap().to_owned();
        assert_ne!(serial("1"), serial("2"));
        let groups: Vec<usize> = serial("1")["urn:uuid:".len()..]
            .split('-')
            .map(str::len)
            .collect();
        assert_eq!(groups, [8, 4, 4, 4, 12]);
    }
}
