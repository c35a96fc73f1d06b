//! The `server.json` that describes this server to the MCP registry.
//!
//! Source: <https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json>, and for bundles
//! `package-types.mdx` of <https://github.com/modelcontextprotocol/registry>: the address of a bundle contains `mcp`,
//! and `fileSha256` is required.

use serde_json::{Value, json};
use url::Url;

use super::SERVER_DESCRIPTION;
use super::bundle::{Bundle, PackageError, validate_version};

/// The newest released schema.
pub const SERVER_SCHEMA: &str =
    "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";

/// Longest name of a server, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// A bundle at the address where it is published.
#[derive(Clone, Debug)]
pub struct PublishedBundle {
    /// The address of the file: a release at GitHub or GitLab.
    pub url: String,
    /// The file, for its digest.
    pub bundle: Bundle,
}

/// The content of `server.json`.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// The name in reverse-DNS form, such as `io.github.example/drayage`. The registry proves that the publisher owns
    /// the part before the slash.
    pub name: String,
    /// The version of the program: `MAJOR.MINOR.PATCH`, with the suffixes of semantic versioning.
    pub version: String,
    /// The address of the source repository, if it is public.
    pub repository: Option<String>,
    /// The bundles of this version, one for each operating system.
    pub bundles: Vec<PublishedBundle>,
}

/// Makes the content of `server.json`.
///
/// # Errors
///
/// [`PackageError::InvalidOption`] when the registry would refuse a name, version or address.
pub fn server_json(options: &RegistryOptions) -> Result<Value, PackageError> {
    validate_name(&options.name)?;
    validate_version(&options.version)?;
    let packages: Result<Vec<Value>, PackageError> = options
        .bundles
        .iter()
        .map(|published| package_json(published, &options.version))
        .collect();
    let mut document = json!({
        "$schema": SERVER_SCHEMA,
        "name": options.name,
        "title": "Drayage",
        "description": SERVER_DESCRIPTION,
        "version": options.version,
        "packages": packages?,
    });
    if let Some(repository) = &options.repository {
        let source = repository_host(repository)?;
        let value = json!({ "url": repository, "source": source });
        if let Some(fields) = document.as_object_mut() {
            fields.insert("repository".to_owned(), value);
        }
    }
    Ok(document)
}

fn package_json(published: &PublishedBundle, version: &str) -> Result<Value, PackageError> {
    repository_host(&published.url)?;
    if !published.url.contains("mcp") {
        return Err(PackageError::InvalidOption(format!(
            "the registry requires `mcp` in the address {}",
            published.url
        )));
    }
    Ok(json!({
        "registryType": "mcpb",
        "identifier": published.url,
        "version": version,
        "fileSha256": published.bundle.sha256,
        "transport": { "type": "stdio" },
    }))
}

/// The registry's name of the repository host.
fn repository_host(address: &str) -> Result<&'static str, PackageError> {
    let url = Url::parse(address)
        .ok()
        .filter(|url| url.scheme() == "https");
    match url.as_ref().and_then(Url::host_str) {
        Some("github.com") => Ok("github"),
        Some("gitlab.com") => Ok("gitlab"),
        _ => Err(PackageError::InvalidOption(format!(
            "`{address}` is not an address at https://github.com or https://gitlab.com"
        ))),
    }
}

fn validate_name(name: &str) -> Result<(), PackageError> {
    let is_part = |part: &str, extra: &str| {
        let is_allowed =
            |character: char| character.is_ascii_alphanumeric() || extra.contains(character);
        !part.is_empty() && part.chars().all(is_allowed)
    };
    let is_valid = name
        .split_once('/')
        .is_some_and(|(namespace, server)| is_part(namespace, ".-") && is_part(server, "._-"));
    if is_valid && name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    Err(PackageError::InvalidOption(format!(
        "`{name}` is not a name such as io.github.example/drayage"
    )))
}
