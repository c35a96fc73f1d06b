//! `cargo xtask generate`: everything in the tree that a program wrote.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use prost::Message as _;
use prost_build::{Config, Service, ServiceGenerator};

/// Which area of the bus answers a protobuf service.
const AREAS: [(&str, &str); 3] = [
    ("Egress", "egress"),
    ("Files", "file"),
    ("ToolCalls", "file"),
];

/// Generated files by path, relative to the workspace root.
type Files = BTreeMap<String, Vec<u8>>;

/// Writes every generated file, or with `check` only compares.
pub(crate) fn run(root: &Path, check: bool) -> anyhow::Result<()> {
    let files = contracts(root)?;
    let folder = root.join("crates/dray-proto/src/generated");
    let stale = stale_files(root, &folder, &files)?;
    if check {
        if !stale.is_empty() {
            bail!(
                "not up to date, run `cargo xtask generate`: {}",
                stale.join(", ")
            );
        }
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for (path, content) in &files {
        fs::write(root.join(path), content).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

/// Paths whose content on disk differs from what would be generated, files too many included.
fn stale_files(root: &Path, folder: &Path, files: &Files) -> anyhow::Result<Vec<String>> {
    let mut stale: Vec<String> = files
        .iter()
        .filter(|(path, content)| {
            fs::read(root.join(path)).ok().as_deref() != Some(content.as_slice())
        })
        .map(|(path, _)| path.clone())
        .collect();
    if folder.exists() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let relative = path.strip_prefix(root)?.to_string_lossy().into_owned();
            if !files.contains_key(&relative) {
                stale.push(relative);
            }
        }
    }
    Ok(stale)
}

/// Rust types and the descriptor set of `proto/`.
fn contracts(root: &Path) -> anyhow::Result<Files> {
    let proto = root.join("proto");
    let mut sources: Vec<_> = fs::read_dir(proto.join("dray/v1"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    sources.sort();
    let descriptors = protox::compile(&sources, [&proto])?;
    let out = tempfile::tempdir()?;
    let mut config = Config::new();
    config
        .enable_type_names()
        .bytes([".dray.v1.Content.inline"])
        .out_dir(out.path())
        .service_generator(Box::new(CallGenerator))
        .compile_fds(descriptors.clone())?;
    let mut files = Files::new();
    let generated = "crates/dray-proto/src/generated";
    files.insert(
        format!("{generated}/dray.v1.rs"),
        fs::read(out.path().join("dray.v1.rs"))?,
    );
    files.insert(
        format!("{generated}/descriptors.bin"),
        descriptors.encode_to_vec(),
    );
    Ok(files)
}

/// Writes `impl Call` for the request type of every method, so that no subject is ever written by hand.
struct CallGenerator;

#[expect(
    clippy::panic,
    clippy::expect_used,
    reason = "the trait has no way to report a failure, and this one is for whoever edits proto/"
)]
impl ServiceGenerator for CallGenerator {
    fn generate(&mut self, service: Service, buffer: &mut String) {
        let area = AREAS
            .iter()
            .find(|(name, _)| *name == service.proto_name)
            .map_or_else(
                || panic!("add the area of service {} to xtask", service.proto_name),
                |(_, area)| *area,
            );
        for method in service.methods {
            let verb = kebab_case(&method.proto_name);
            write!(
                buffer,
                "impl crate::contract::Call for {} {{\n    type Reply = {};\n    const AREA: &'static str = \"{area}\";\n    \
                 const VERB: &'static str = \"{verb}\";\n    const GRPC_PATH: &'static str = \"/{}.{}/{}\";\n}}\n",
                method.input_type, method.output_type, service.package, service.proto_name, method.proto_name
            )
            .expect("writing to a string cannot fail");
        }
    }
}

/// `FetchAll` becomes `fetch-all`.
fn kebab_case(name: &str) -> String {
    let mut verb = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() && !verb.is_empty() {
            verb.push('-');
        }
        verb.push(character.to_ascii_lowercase());
    }
    verb
}
