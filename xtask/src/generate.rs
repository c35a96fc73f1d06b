//! `cargo xtask generate`: writes every file of the tree that is generated, or checks it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use prost::Message as _;
use prost_build::{Config, Service, ServiceGenerator};
use prost_types::FileDescriptorSet;
use sha2::{Digest as _, Sha256};

use crate::{
    message_limits, monitoring, python_client, python_contracts, step, tidy, tool_definitions,
    typescript_contracts,
};

/// The area of the bus for each protobuf service.
pub(crate) const SERVICE_AREAS: [(&str, &str); 14] = [
    ("Approvals", "approval"),
    ("Artifacts", "artifact"),
    ("ClientFiles", "clientfile"),
    ("Deliveries", "delivery"),
    ("Egress", "egress"),
    ("EgressQuestions", "question"),
    ("EgressPolicies", "policy"),
    ("Files", "file"),
    ("Previews", "preview"),
    ("Reading", "reading"),
    ("Sandboxes", "sandbox"),
    ("Sessions", "session"),
    ("Tickets", "ticket"),
    ("ToolCalls", "file"),
];

/// Generated files by path, relative to the workspace root.
type GeneratedFiles = BTreeMap<String, Vec<u8>>;

/// Pages of `docs/` that the binary writes, by their names in `dray reference`.
const GENERATED_PAGES: [&str; 5] = ["cli", "configuration", "faults", "metrics", "subjects"];

/// The distributed mode on one machine.
const COMPOSE_FILE: &str = "docker-compose.yml";

/// What stands before the digest in [`COMPOSE_FILE`].
const CONFIGURATION_LABEL: &str = "dray.nats.configuration: \"";

/// Policies of the object store, one for each identity.
const STORE_POLICIES: &str = "deploy/minio/policies";

/// Writes every generated file, or with `check` only compares.
pub(crate) fn run_generators(root: &Path, check: bool) -> anyhow::Result<()> {
    // The pages come from a binary that is built from the contracts.
    generate_contracts(root, check)?;
    step::cargo_step(root)
        // Tests are built too, as the test commands do: without them, features differ and every crate is compiled
        // again.
        .args(["build", "--quiet", "--package", "dray", "--bins", "--tests"])
        .run()?;
    generate_pages(root, check, &root.join("target/debug/dray"))
}

/// Generates the Rust, Python and TypeScript types of `proto/`, and the shared parts of the clients.
pub(crate) fn generate_contracts(root: &Path, check: bool) -> anyhow::Result<()> {
    let mut files = compile_proto(root)?;
    files.extend(python_client::client_files(root)?);
    files.extend(tool_definitions::client_files(root)?);
    files.extend(message_limits::client_files(root)?);
    let mut stale = stale_files(root, &files);
    let directories = [
        "crates/dray-proto/src/generated",
        typescript_contracts::MODULE_DIRECTORY,
    ];
    let mut extra = Vec::new();
    for directory in directories {
        extra.extend(extra_files(root, &root.join(directory), &files)?);
    }
    stale.extend(extra.clone());
    if check {
        return ensure_up_to_date(&stale);
    }
    // The directories contain only generated files, so removing those that are no longer generated loses no
    // hand-written file.
    for path in extra {
        fs::remove_file(root.join(path))?;
    }
    write_all(root, &files)
}

/// Generates the reference pages and the files of `deploy/` with this binary.
pub(crate) fn generate_pages(root: &Path, check: bool, binary: &Path) -> anyhow::Result<()> {
    let mut files = GeneratedFiles::new();
    for page in GENERATED_PAGES {
        let mut text = step::program_step(binary)
            .args(["reference", page])
            .output()?;
        match page {
            "metrics" => files.extend(monitoring::monitoring_files(&text)?),
            // The program knows the codes and the list of the fetcher; the other details stand in the code alone.
            "faults" => text.push_str(&tidy::details_section(root)?),
            _ => {}
        }
        files.insert(format!("docs/{page}.md"), text.into_bytes());
    }
    let asyncapi = step::program_step(binary)
        .args(["reference", "asyncapi"])
        .output()?;
    files.insert("docs/asyncapi.json".to_owned(), asyncapi.into_bytes());
    files.extend(deployment_files(binary)?);
    let compose = compose_file(root, &files)?;
    files.insert(COMPOSE_FILE.to_owned(), compose);
    let mut stale = stale_files(root, &files);
    let policies = extra_files(root, &root.join(STORE_POLICIES), &files)?;
    stale.extend(policies.clone());
    if check {
        return ensure_up_to_date(&stale);
    }
    // Only the policies are removed: the other files are among pages that people write.
    for path in policies {
        fs::remove_file(root.join(path))?;
    }
    write_all(root, &files)
}

/// The Compose file with the digest of what NATS reads at its start: the file of accounts among `files`, and its own.
fn compose_file(root: &Path, files: &GeneratedFiles) -> anyhow::Result<Vec<u8>> {
    let accounts = files
        .get("deploy/nats/accounts.conf")
        .context("no file of accounts")?;
    let settings = fs::read(root.join("deploy/nats/nats.conf"))?;
    let mut hasher = Sha256::new();
    hasher.update(accounts);
    hasher.update(settings);
    let text = fs::read_to_string(root.join(COMPOSE_FILE))?;
    let text = with_configuration_label(&text, &hasher.finalize())?;
    Ok(text.into_bytes())
}

/// Sets the value of the label in the text of the Compose file.
fn with_configuration_label(text: &str, digest: &[u8]) -> anyhow::Result<String> {
    let message = "docker-compose.yml has no label for the configuration of NATS";
    let (before, rest) = text.split_once(CONFIGURATION_LABEL).context(message)?;
    let (_, after) = rest.split_once('"').context(message)?;
    let mut digits = String::with_capacity(digest.len() * 2);
    for byte in digest {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    Ok(format!("{before}{CONFIGURATION_LABEL}{digits}\"{after}"))
}

/// The files of `deploy/` with the permissions of the bus and of the store, as this binary writes them.
fn deployment_files(binary: &Path) -> anyhow::Result<GeneratedFiles> {
    let text = step::program_step(binary)
        .args(["reference", "deployment"])
        .output()?;
    let files: BTreeMap<String, String> = serde_json::from_str(&text)?;
    Ok(files
        .into_iter()
        .map(|(path, content)| (path, content.into_bytes()))
        .collect())
}

/// Fails if generated files are stale, and names them.
fn ensure_up_to_date(stale: &[String]) -> anyhow::Result<()> {
    if !stale.is_empty() {
        bail!(
            "run `cargo xtask generate`; these files are not up to date: {}",
            stale.join(", ")
        );
    }
    Ok(())
}

fn write_all(root: &Path, files: &GeneratedFiles) -> anyhow::Result<()> {
    for (path, content) in files {
        let path = root.join(path);
        if fs::read(&path).is_ok_and(|current| current == *content) {
            // The file is not written again, because a new modification time would make cargo rebuild all dependents.
            continue;
        }
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Paths whose content on disk differs from the generated content.
fn stale_files(root: &Path, files: &GeneratedFiles) -> Vec<String> {
    files
        .iter()
        .filter(|(path, content)| {
            // A missing file differs as well.
            fs::read(root.join(path)).ok().as_deref() != Some(content.as_slice())
        })
        .map(|(path, _)| path.clone())
        .collect()
}

/// Files of a directory that are not among the generated ones.
fn extra_files(
    root: &Path,
    directory: &Path,
    files: &GeneratedFiles,
) -> anyhow::Result<Vec<String>> {
    let mut extra = Vec::new();
    if directory.exists() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let relative = path.strip_prefix(root)?.to_string_lossy().into_owned();
            if !files.contains_key(&relative) {
                extra.push(relative);
            }
        }
    }
    Ok(extra)
}

/// The descriptors of `proto/`, with comments.
pub(crate) fn compile_descriptors(root: &Path) -> anyhow::Result<FileDescriptorSet> {
    let proto = root.join("proto");
    let mut sources: Vec<_> = fs::read_dir(proto.join("dray/v1"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    // The order of a directory is not the same on every machine, and it decides the order of the output.
    sources.sort();
    // The compiler is a Rust library, so that no `protoc` has to be installed.
    Ok(protox::compile(&sources, [&proto])?)
}

/// Rust types, the descriptor set, the Python and the TypeScript types of `proto/`.
fn compile_proto(root: &Path) -> anyhow::Result<GeneratedFiles> {
    let descriptors = compile_descriptors(root)?;
    let out = tempfile::tempdir()?;
    let mut config = Config::new();
    config
        .enable_type_names()
        // These fields have up to 64 KiB of content, which `Bytes` shares instead of copying.
        .bytes([".dray.v1.Content.inline", ".dray.v1.DocumentSource.inline"])
        .out_dir(out.path())
        .service_generator(Box::new(CallGenerator))
        .compile_fds(descriptors.clone())?;
    let mut files = GeneratedFiles::new();
    let generated = "crates/dray-proto/src/generated";
    files.insert(
        format!("{generated}/dray.v1.rs"),
        fs::read(out.path().join("dray.v1.rs"))?,
    );
    files.insert(
        format!("{generated}/descriptors.bin"),
        descriptors.encode_to_vec(),
    );
    files.extend(python_contracts::client_files(&descriptors)?);
    files.extend(typescript_contracts::client_files(root, &descriptors)?);
    Ok(files)
}

/// Writes `impl Call` for the request type of every method, so that subjects are never written by hand.
struct CallGenerator;

#[expect(
    clippy::panic,
    clippy::expect_used,
    reason = "the trait cannot return an error, and only people who edit proto/ see this one"
)]
impl ServiceGenerator for CallGenerator {
    fn generate(&mut self, service: Service, buffer: &mut String) {
        let area = SERVICE_AREAS
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
            if method.server_streaming {
                writeln!(
                    buffer,
                    "impl crate::contract::StreamingCall for {} {{}}",
                    method.input_type
                )
                .expect("writing to a string cannot fail");
            }
        }
    }
}

/// The verb of a method on the bus: `FetchAll` becomes `fetch-all`.
pub(crate) fn kebab_case(name: &str) -> String {
    let mut verb = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() && !verb.is_empty() {
            verb.push('-');
        }
        verb.push(character.to_ascii_lowercase());
    }
    verb
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> GeneratedFiles {
        let file = |name: &&str| (format!("made/{name}"), name.as_bytes().to_vec());
        names.iter().map(file).collect()
    }

    #[test]
    fn verbs_are_kebab_case() {
        for (method, verb) in [("Fetch", "fetch"), ("FetchAll", "fetch-all"), ("A", "a")] {
            assert_eq!(kebab_case(method), verb);
        }
    }

    #[test]
    fn generated_files_are_current_until_one_changes() {
        let root = tempfile::tempdir().unwrap();
        let (root, all) = (root.path(), files(&["one", "two"]));
        assert_eq!(stale_files(root, &all), ["made/one", "made/two"]);
        write_all(root, &all).unwrap();
        assert!(stale_files(root, &all).is_empty());

        fs::write(root.join("made/two"), "edited").unwrap();
        fs::write(root.join("made/three"), "forgotten").unwrap();
        assert_eq!(stale_files(root, &all), ["made/two"]);
        let extra = extra_files(root, &root.join("made"), &all).unwrap();
        assert_eq!(extra, ["made/three"]);
        let message = ensure_up_to_date(&extra).unwrap_err().to_string();
        assert!(
            message.contains("cargo xtask generate") && message.contains("made/three"),
            "{message}"
        );
    }

    fn resolve_all_method() -> prost_build::Method {
        prost_build::Method {
            name: "resolve_all".to_owned(),
            proto_name: "ResolveAll".to_owned(),
            comments: prost_build::Comments::default(),
            input_type: "Asked".to_owned(),
            output_type: "Answered".to_owned(),
            input_proto_type: ".dray.v1.Asked".to_owned(),
            output_proto_type: ".dray.v1.Answered".to_owned(),
            options: prost_types::MethodOptions::default(),
            client_streaming: false,
            server_streaming: false,
        }
    }

    fn files_service(method: prost_build::Method) -> Service {
        Service {
            name: "Files".to_owned(),
            proto_name: "Files".to_owned(),
            package: "dray.v1".to_owned(),
            comments: prost_build::Comments::default(),
            methods: vec![method],
            options: prost_types::ServiceOptions::default(),
        }
    }

    #[test]
    fn a_generated_call_has_its_subject_and_its_path() {
        let mut code = String::new();
        CallGenerator.generate(files_service(resolve_all_method()), &mut code);
        for part in [
            "impl crate::contract::Call for Asked",
            "type Reply = Answered;",
            "AREA: &'static str = \"file\"",
            "VERB: &'static str = \"resolve-all\"",
            "\"/dray.v1.Files/ResolveAll\"",
        ] {
            assert!(code.contains(part), "{part} in {code}");
        }
        assert!(!code.contains("StreamingCall"), "{code}");
    }

    #[test]
    fn a_method_with_a_stream_of_replies_is_marked() {
        let method = prost_build::Method {
            server_streaming: true,
            ..resolve_all_method()
        };
        let mut code = String::new();
        CallGenerator.generate(files_service(method), &mut code);
        assert!(code.contains("impl crate::contract::StreamingCall for Asked {}"));
    }
}
