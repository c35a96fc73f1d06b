//! An `.mcpb` bundle: a zip archive with the program and a manifest, which Claude Desktop and others install.
//!
//! Source: <https://github.com/modelcontextprotocol/mcpb>, `MANIFEST.md`, version 0.3. The same program, version and
//! arguments give the same bytes, so that the digest in `server.json` can be computed again.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::{DEFAULT_NAME, OperatingSystem, SERVER_DESCRIPTION};

/// The version of the manifest: the newest that is not marked as experimental.
const MANIFEST_VERSION: &str = "0.3";

/// Mode of a program in the archive.
const PROGRAM_MODE: u32 = 0o755;

/// Mode of other files in the archive.
const FILE_MODE: u32 = 0o644;

/// The reason why a bundle or a `server.json` was not made.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// A version, name or address that the format does not allow.
    #[error("{0}")]
    InvalidOption(String),
    /// The program or the bundle cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The bundle cannot be written. An earlier bundle of that name is unchanged.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system or of the archive.
        #[source]
        source: io::Error,
    },
}

/// The content of a bundle.
#[derive(Clone, Debug)]
pub struct BundleOptions {
    /// The program, built for `system`. One bundle contains the program for one system.
    pub binary: PathBuf,
    /// The system that the program runs on.
    pub system: OperatingSystem,
    /// The version of the program: `MAJOR.MINOR.PATCH`, with the suffixes of semantic versioning.
    pub version: String,
    /// Arguments that start the server over standard streams.
    pub args: Vec<String>,
    /// The bundle to write. Its name ends with `.mcpb`.
    pub output: PathBuf,
}

/// A bundle that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The file.
    pub path: PathBuf,
    /// The bundle's size in bytes.
    pub size: u64,
    /// Its SHA-256 digest in hexadecimal, as `fileSha256` of `server.json` has it.
    pub sha256: String,
}

/// Writes a bundle. The program is streamed, so memory does not grow with it.
///
/// # Errors
///
/// [`PackageError`] when the version is not one, the program cannot be read, or the bundle cannot be written.
pub fn build_bundle(options: &BundleOptions) -> Result<Bundle, PackageError> {
    validate_version(&options.version)?;
    if options
        .output
        .extension()
        .is_none_or(|extension| extension != "mcpb")
    {
        let output = options.output.display();
        return Err(PackageError::InvalidOption(format!(
            "the name {output} does not end with .mcpb"
        )));
    }
    let read_error = |source| PackageError::Read {
        path: options.binary.clone(),
        source,
    };
    let mut program = File::open(&options.binary).map_err(read_error)?;
    if !program.metadata().map_err(read_error)?.is_file() {
        return Err(read_error(io::Error::other("it is not a regular file")));
    }
    let write_error = |source| PackageError::Write {
        path: options.output.clone(),
        source,
    };
    // The target of a link is replaced, and the link stays.
    let output = fs::canonicalize(&options.output).unwrap_or_else(|_| options.output.clone());
    if fs::metadata(&output).is_ok_and(|there| !there.is_file()) {
        return Err(write_error(io::Error::other("it is not a regular file")));
    }
    // A relative name without a directory has an empty parent.
    let parent = output
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    let staged = tempfile::Builder::new()
        .prefix(".dray-")
        .tempfile_in(directory)
        .map_err(write_error)?;
    write_archive(staged.as_file(), &mut program, options).map_err(write_error)?;
    make_readable(staged.as_file()).map_err(write_error)?;
    staged
        .persist(&output)
        .map_err(|error| write_error(error.error))?;
    describe_bundle(&options.output)
}

/// Size and digest of a bundle.
///
/// # Errors
///
/// [`PackageError::Read`] when the file cannot be read.
pub fn describe_bundle(path: &Path) -> Result<Bundle, PackageError> {
    let read_error = |source| PackageError::Read {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(read_error)?;
    let mut hasher = Sha256::new();
    let size = io::copy(&mut file, &mut hasher).map_err(read_error)?;
    let digest = hasher.finalize();
    Ok(Bundle {
        path: path.to_owned(),
        size,
        sha256: format!("{digest:x}"),
    })
}

/// The `manifest.json` of a bundle (MCPB), by which clients show, configure and start the server.
pub fn bundle_manifest(options: &BundleOptions) -> Value {
    let entry_point = entry_point(options.system);
    json!({
        "manifest_version": MANIFEST_VERSION,
        "name": DEFAULT_NAME,
        "display_name": "Drayage",
        "version": options.version,
        "description": SERVER_DESCRIPTION,
        "author": { "name": "The Drayage authors" },
        "server": {
            "type": "binary",
            "entry_point": entry_point,
            "mcp_config": {
                "command": format!("${{__dirname}}/{entry_point}"),
                "args": options.args,
                "env": {},
            },
        },
        // The list of tools depends on the arguments of the server, so none are named here.
        "tools_generated": true,
        "prompts_generated": true,
        "keywords": ["files", "documents", "delivery", "sandbox"],
        "license": env!("CARGO_PKG_LICENSE"),
        "compatibility": { "platforms": [platform_name(options.system)] },
    })
}

fn write_archive(
    output: &File,
    program: &mut File,
    options: &BundleOptions,
) -> Result<(), io::Error> {
    let manifest = serde_json::to_vec_pretty(&bundle_manifest(options))?;
    let mut archive = ZipWriter::new(output);
    archive.start_file("manifest.json", file_options(FILE_MODE))?;
    archive.write_all(&manifest)?;
    archive.start_file(entry_point(options.system), file_options(PROGRAM_MODE))?;
    io::copy(program, &mut archive)?;
    archive.finish()?.sync_all()
}

/// A fixed time, so that equal content results in an equal archive.
fn file_options(mode: u32) -> SimpleFileOptions {
    SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::default())
        .unix_permissions(mode)
}

const fn entry_point(system: OperatingSystem) -> &'static str {
    match system {
        OperatingSystem::Linux | OperatingSystem::MacOs => "server/dray",
        OperatingSystem::Windows => "server/dray.exe",
    }
}

/// The name of `process.platform`, which the manifest uses.
const fn platform_name(system: OperatingSystem) -> &'static str {
    match system {
        OperatingSystem::Linux => "linux",
        OperatingSystem::MacOs => "darwin",
        OperatingSystem::Windows => "win32",
    }
}

/// Refuses a text that is not one exact version. The registry refuses ranges and `latest`.
pub(super) fn validate_version(version: &str) -> Result<(), PackageError> {
    let numbers = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = numbers.split('.');
    let is_number = |part: Option<&str>| {
        part.is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let has_three = is_number(parts.next()) && is_number(parts.next()) && is_number(parts.next());
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+');
    if has_three && parts.next().is_none() && version.bytes().all(is_allowed) {
        return Ok(());
    }
    Err(PackageError::InvalidOption(format!(
        "`{version}` is not a version such as 1.2.3"
    )))
}

/// A temporary file is readable by its owner alone; a bundle is published.
#[cfg(unix)]
fn make_readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    file.set_permissions(fs::Permissions::from_mode(FILE_MODE))
}

#[cfg(not(unix))]
fn make_readable(file: &File) -> io::Result<()> {
    let mut permissions: fs::Permissions = file.metadata()?.permissions();
    permissions.set_readonly(false);
    file.set_permissions(permissions)
}
