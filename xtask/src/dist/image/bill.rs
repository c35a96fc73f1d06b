//! The Debian packages of an image in the bill of materials and in the provenance.

use serde_json::{Value, json};

use super::super::bill_of_materials::serial_number;
use super::super::digest::FileDigest;
use super::super::program::SourceCommit;
use super::{ImageBase, ReleaseImage};

/// The bill of an image: that of its program, with the packages of the base.
#[expect(
    clippy::indexing_slicing,
    reason = "the bill of the program is an object, and a missing member of it reads as null"
)]
pub(in super::super) fn image_bill(
    mut bill: Value,
    image: &ReleaseImage,
    base: &ImageBase,
    commit: &SourceCommit,
) -> Value {
    let (name, tag) = image.name.split_once(':').unwrap_or_default();
    let url = format!("pkg:oci/{name}@sha256%3A{}?tag={tag}", image.sha256);
    let container = json!({
        "type": "container",
        "bom-ref": url,
        "name": name,
        "version": tag,
        "hashes": [{"alg": "SHA-256", "content": image.sha256}],
        "purl": url,
    });
    let program = std::mem::replace(&mut bill["metadata"]["component"], container);
    let mut parts = vec![program["bom-ref"].clone()];
    let digest = FileDigest {
        name: image.name.clone(),
        sha256: image.sha256.clone(),
    };
    bill["serialNumber"] = json!(serial_number(&digest, commit));
    let mut add = |list: &str, value: Value| {
        if let Some(list) = bill[list].as_array_mut() {
            list.push(value);
        }
    };
    add("components", program);
    for package in &base.list.packages {
        let url = package.package_url(&base.list.distribution);
        let hashes = json!([{"alg": "SHA-256", "content": package.sha256}]);
        let component = json!({
            "type": "library",
            "bom-ref": url,
            "name": package.name,
            "version": package.version,
            "hashes": hashes,
            "purl": url,
        });
        add("components", component);
        add("dependencies", json!({"ref": url, "dependsOn": []}));
        parts.push(json!(url));
    }
    add("dependencies", json!({"ref": url, "dependsOn": parts}));
    bill
}

/// The packages of the base as materials of a provenance.
pub(in super::super) fn package_materials(base: &ImageBase) -> Vec<Value> {
    let packages = base.list.packages.iter();
    packages
        .map(|package| {
            let uri = package.package_url(&base.list.distribution);
            json!({"uri": uri, "digest": {"sha256": package.sha256}})
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::BaseList;
    use super::super::tree::FileTree;
    use super::*;

    #[test]
    fn the_bill_of_an_image_adds_the_packages_of_its_base_to_those_of_the_program() {
        let program = json!({"type": "application", "bom-ref": "drayage:dray@1", "name": "dray"});
        let bill = json!({
            "serialNumber": "urn:uuid:0",
            "metadata": {"component": program},
            "components": [{"bom-ref": "pkg:cargo/a@1"}],
            "dependencies": [{"ref": "drayage:dray@1", "dependsOn": ["pkg:cargo/a@1"]}],
        });
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let base = ImageBase {
            list: BaseList::read(&root.join("../deploy/image/base-packages.toml")).unwrap(),
            tree: FileTree::default(),
        };
        let image = ReleaseImage {
            name: "dray:1".to_owned(),
            sha256: "1".repeat(64),
        };
        let commit = SourceCommit {
            hash: "c".repeat(40),
            seconds: 1_700_000_000,
            is_changed: false,
        };
        let bill = image_bill(bill, &image, &base, &commit);
        let url = format!("pkg:oci/dray@sha256%3A{}?tag=1", image.sha256);
        assert_eq!(bill["metadata"]["component"]["type"], "container");
        assert_eq!(bill["metadata"]["component"]["purl"], url);
        assert_ne!(bill["serialNumber"], "urn:uuid:0");
        let components = bill["components"].as_array().unwrap();
        assert_eq!(components.len(), 2 + base.list.packages.len());
        assert_eq!(components[1], program);
        let libc = components.iter().find(|part| part["name"] == "libc6");
        let libc = libc.unwrap();
        assert_eq!(
            libc["purl"],
            format!(
                "pkg:deb/debian/libc6@{}?arch=amd64&distro=bookworm",
                libc["version"].as_str().unwrap().replace('+', "%2B")
            )
        );
        let edges = bill["dependencies"].as_array().unwrap().last().unwrap();
        assert_eq!(edges["ref"], url);
        let parts = edges["dependsOn"].as_array().unwrap();
        assert_eq!(parts.len(), 1 + base.list.packages.len());
        assert!(parts.contains(&libc["bom-ref"]), "{parts:?}");
        let materials = package_materials(&base);
        assert!(
            materials.contains(&json!({
                "uri": libc["purl"],
                "digest": {"sha256": libc["hashes"][0]["content"]},
            })),
            "{materials:?}"
        );
    }
}
