//! The provenance of a release: an in-toto Statement v1 with SLSA Provenance v1
//! (`https://slsa.dev/spec/v1.0/provenance`).

use std::path::Path;

use serde_json::{Value, json};

use super::digest::FileDigest;
use super::program::ProgramBuild;
use crate::step;

/// Identifies the meaning of the parameters below; a name, as the specification requires, and not a URL.
const BUILD_TYPE: &str = "urn:drayage:build:cargo-xtask-dist:v1";
/// The same for files that are no release: the parameters describe this machine, and nothing of them is claimed of the program.
const TRIAL_BUILD_TYPE: &str = "urn:drayage:build:cargo-xtask-dist:trial:v1";
/// Repository in the reference to the source. The repository has no public URL.
const SOURCE_URI: &str = "urn:drayage:source";

/// The statement about these files. `libraries` are the C library of a static program and the packages of the image, each with
/// its URI and digest.
///
/// The statement contains no start and no end time, so that two builds of a commit have equal statements.
pub(super) fn statement(
    root: &Path,
    subjects: &[FileDigest],
    build: &ProgramBuild,
    builder: &str,
    libraries: Vec<Value>,
) -> anyhow::Result<Value> {
    let compiler = step::program_step("rustc")
        .arg("-vV")
        .inside(root)
        .output()?;
    let lock = FileDigest::of(&root.join("Cargo.lock"))?;
    let mut materials = vec![
        json!({"uri": SOURCE_URI, "digest": {"gitCommit": build.commit.hash}}),
        json!({"name": lock.name, "digest": {"sha256": lock.sha256}}),
    ];
    materials.extend(libraries);
    Ok(document(subjects, build, builder, &compiler, &materials))
}

fn document(
    subjects: &[FileDigest],
    build: &ProgramBuild,
    builder: &str,
    compiler: &str,
    materials: &[Value],
) -> Value {
    let subjects: Vec<Value> = subjects
        .iter()
        .map(|file| json!({"name": file.name, "digest": {"sha256": file.sha256}}))
        .collect();
    let build_type = if build.deviations.is_empty() {
        BUILD_TYPE
    } else {
        TRIAL_BUILD_TYPE
    };
    let mut parameters = json!({
        "source": {"uri": SOURCE_URI, "digest": {"gitCommit": build.commit.hash}},
        "package": "dray",
        "profile": "dist",
        "target": build.target.triple,
    });
    if let Some(parameters) = parameters.as_object_mut()
        && !build.deviations.is_empty()
    {
        parameters.insert("notForRelease".to_owned(), json!(build.deviations));
    }
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": build_type,
                "externalParameters": parameters,
                "internalParameters": {
                    "compiler": compiler.lines().collect::<Vec<_>>(),
                    "SOURCE_DATE_EPOCH": build.commit.seconds,
                },
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": builder}},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::program::SourceCommit;
    use super::super::target::ReleaseTarget;
    use super::*;

    #[test]
    fn subjects_source_and_compiler_are_named() {
        let file = |name: &str, digit: &str| FileDigest {
            name: name.to_owned(),
            sha256: digit.repeat(64),
        };
        let mut build = ProgramBuild {
            target: ReleaseTarget::choose(Some("x86_64-unknown-linux-musl")).unwrap(),
            commit: SourceCommit {
                hash: "c".repeat(40),
                seconds: 1_700_000_000,
                is_changed: false,
            },
            deviations: Vec::new(),
        };
        let subjects = [file("dray.tar.gz", "1"), file("dray", "2")];
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let package =
            json!({"uri": "pkg:generic/musl@1.2.5", "digest": {"sha256": "3".repeat(64)}});
        let libraries = vec![package.clone()];
        let document = statement(&root, &subjects, &build, "urn:builder", libraries).unwrap();
        let value_at = |pointer: &str| document.pointer(pointer).unwrap().clone();
        assert_eq!(
            value_at("/subject/1"),
            json!({"name": "dray", "digest": {"sha256": "2".repeat(64)}})
        );
        let definition = "/predicate/buildDefinition";
        assert_eq!(
            value_at(&format!(
                "{definition}/externalParameters/source/digest/gitCommit"
            )),
            "c".repeat(40)
        );
        let compiler = value_at(&format!("{definition}/internalParameters/compiler/0"));
        assert!(compiler.as_str().unwrap().starts_with("rustc "));
        let lock = FileDigest::of(&root.join("Cargo.lock")).unwrap();
        assert_eq!(
            value_at(&format!("{definition}/resolvedDependencies")),
            json!([
                {"uri": SOURCE_URI, "digest": {"gitCommit": "c".repeat(40)}},
                {"name": "Cargo.lock", "digest": {"sha256": lock.sha256}},
                package,
            ])
        );
        assert_eq!(value_at("/predicate/runDetails/builder/id"), "urn:builder");
        assert_eq!(value_at(&format!("{definition}/buildType")), BUILD_TYPE);

        // Files that are no release say so.
        build.deviations = vec!["the program was not built by this command"];
        let trial = statement(&root, &subjects, &build, "urn:builder", Vec::new()).unwrap();
        let definition = trial.pointer(definition).unwrap();
        assert_eq!(definition["buildType"], TRIAL_BUILD_TYPE);
        assert_eq!(
            definition["externalParameters"]["notForRelease"],
            json!(build.deviations)
        );
    }
}
