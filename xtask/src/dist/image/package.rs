//! Debian packages with a fixed version and digest: the list of them, their download, and the files in them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use dray_archive::name::safe_parts;
use dray_archive::tar::{BLOCK_BYTES, DecodeStep, Decoder, Entry, EntryKind, TarRules, padding};

use super::super::digest::FileDigest;
use super::super::target::ReleaseTarget;
use super::tree::{FileTree, NodeContent, ROOT_OWNER};
use crate::step;

/// The packages of a base, as the list in `deploy/image` has them.
#[derive(Clone, Debug)]
pub(in super::super) struct BaseList {
    /// Name of the Debian release.
    pub(super) distribution: String,
    /// Architecture of the image, as Debian names it.
    pub(super) architecture: String,
    pub(super) packages: Vec<BasePackage>,
}

/// One package with the digest that it must have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BasePackage {
    pub(super) name: String,
    pub(super) version: String,
    /// Architecture of the package, or `all`.
    pub(super) architecture: String,
    /// SHA-256 of the package file.
    pub(super) sha256: String,
    /// Names of the files and directories (with a slash at the end) that go into the image.
    pub(super) keep: Vec<String>,
    /// Whether only programs need it that load their C library: it is not in the image of a static program.
    pub(super) is_only_for_dynamic: bool,
}

impl BaseList {
    /// Reads the list.
    pub(in super::super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not a list of packages", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let table: toml::Table = text.parse()?;
        let packages = table.get("package").and_then(toml::Value::as_array);
        let packages = packages.context("no packages")?.iter();
        Ok(Self {
            distribution: text_of(&table, "distribution")?,
            architecture: text_of(&table, "architecture")?,
            packages: packages
                .map(BasePackage::parse)
                .collect::<anyhow::Result<_>>()?,
        })
    }

    /// The packages for programs of this target.
    pub(super) fn for_target(mut self, target: &ReleaseTarget) -> Self {
        self.packages
            .retain(|package| !(package.is_only_for_dynamic && target.is_static()));
        self
    }

    /// The package of glibc. None in the base of a static program.
    pub(super) fn c_library(&self) -> Option<&BasePackage> {
        self.packages.iter().find(|package| package.name == "libc6")
    }

    /// Writes the versions and digests that the package sources of this machine offer now into the list.
    pub(in super::super) fn update_versions(path: &Path) -> anyhow::Result<()> {
        let list = Self::read(path)?;
        let downloads = tempfile::tempdir()?;
        let mut text = fs::read_to_string(path)?;
        for package in &list.packages {
            let directory = downloads.path().join(&package.name);
            fs::create_dir(&directory)?;
            step::program_step("apt-get")
                .arg("download")
                .arg(&package.name)
                .inside(&directory)
                .run()?;
            let file = fs::read_dir(&directory)?.next();
            let file = file.context("apt-get downloaded nothing")??.path();
            let version = control_field(&file, "Version")?;
            let digest = FileDigest::of(&file)?.sha256;
            text = replace_version(&text, package, version.trim(), &digest)?;
            eprintln!("{} {} -> {}", package.name, package.version, version.trim());
        }
        fs::write(path, text)?;
        Ok(())
    }
}

/// The list with another version of a package.
fn replace_version(
    text: &str,
    package: &BasePackage,
    version: &str,
    sha256: &str,
) -> anyhow::Result<String> {
    let lines = |version: &str, sha256: &str| {
        let BasePackage {
            name, architecture, ..
        } = package;
        format!(
            "name = \"{name}\"\nversion = \"{version}\"\narchitecture = \"{architecture}\"\nsha256 = \"{sha256}\"\n"
        )
    };
    let earlier = lines(&package.version, &package.sha256);
    if !text.contains(&earlier) {
        bail!("the list does not contain these lines:\n{earlier}");
    }
    Ok(text.replace(&earlier, &lines(version, sha256)))
}

impl BasePackage {
    fn parse(value: &toml::Value) -> anyhow::Result<Self> {
        let table = value.as_table().context("a package is not a table")?;
        let keep = table.get("keep").and_then(toml::Value::as_array);
        let keep = keep.context("a package without `keep`")?.iter();
        let only_for_dynamic = table.get("only_for_dynamic").map(toml::Value::as_bool);
        Ok(Self {
            name: text_of(table, "name")?,
            version: text_of(table, "version")?,
            architecture: text_of(table, "architecture")?,
            sha256: text_of(table, "sha256")?,
            keep: keep
                .map(|name| Some(name.as_str()?.to_owned()))
                .collect::<Option<_>>()
                .context("`keep` is not a list of names")?,
            is_only_for_dynamic: only_for_dynamic
                .unwrap_or(Some(false))
                .context("`only_for_dynamic` is neither true nor false")?,
        })
    }

    /// Name of the file that `apt-get download` writes.
    fn file_name(&self) -> String {
        // An epoch ends with a colon, which is escaped in file names.
        let version = self.version.replace(':', "%3a");
        format!("{}_{version}_{}.deb", self.name, self.architecture)
    }

    /// The package URL (`pkg:deb`, purl specification).
    pub(super) fn package_url(&self, distribution: &str) -> String {
        let version = self.version.replace('+', "%2B").replace(':', "%3A");
        format!(
            "pkg:deb/debian/{}@{version}?arch={}&distro={distribution}",
            self.name, self.architecture
        )
    }

    /// The package file in `directory`, downloaded if it is missing.
    ///
    /// # Errors
    ///
    /// The version is not available, or the file has another digest.
    pub(super) fn locate_file(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let path = directory.join(self.file_name());
        if !path.exists() {
            let version = format!("{}={}", self.name, self.version);
            step::program_step("apt-get")
                .args(["download", &version])
                .inside(directory)
                .run()
                .with_context(|| {
                    format!(
                        "no {} for the base of the image. `--update-base` takes the versions that Debian offers now, \
                         `--base-packages DIR` files that you have, and `--no-image` makes no image",
                        path.display()
                    )
                })?;
        }
        let digest = FileDigest::of(&path)?.sha256;
        if digest != self.sha256 {
            bail!(
                "{} has the SHA-256 {digest}, not {}",
                path.display(),
                self.sha256
            );
        }
        Ok(path)
    }

    /// Adds the kept files of this package, and its control file where scanners of images look for it.
    pub(super) fn add_to(&self, tree: &mut FileTree, file: &Path) -> anyhow::Result<()> {
        let tar = step::program_step("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(file)
            .output_for(Vec::new())?;
        let entries = read_entries(&tar);
        for (entry, data) in entries.with_context(|| format!("cannot read {}", file.display()))? {
            let parts = safe_parts(&entry.name).context("a package with an unsafe name")?;
            let name = String::from_utf8(parts.join(&b'/'))?;
            if self.is_kept(&name) {
                let content = node_content(&entry, data)
                    .with_context(|| format!("{name} of {} is a special file", self.name))?;
                tree.add_node(&name, entry.mode, ROOT_OWNER, content);
            }
        }
        let control = step::program_step("dpkg-deb").arg("--field").arg(file);
        let status = format!("var/lib/dpkg/status.d/{}", self.name);
        tree.add_file(&status, 0o644, control.output()?);
        Ok(())
    }

    fn is_kept(&self, name: &str) -> bool {
        self.keep.iter().any(|kept| match kept.strip_suffix('/') {
            Some(directory) => name
                .strip_prefix(directory)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            None => name == kept,
        })
    }
}

fn text_of(table: &toml::Table, key: &str) -> anyhow::Result<String> {
    let value = table.get(key).and_then(toml::Value::as_str);
    Ok(value.with_context(|| format!("no `{key}`"))?.to_owned())
}

/// One field of the control file.
fn control_field(file: &Path, name: &str) -> anyhow::Result<String> {
    let step = step::program_step("dpkg-deb").arg("--field").arg(file);
    step.arg(name).output()
}

/// All entries of a tar, each with its content.
fn read_entries(mut tar: &[u8]) -> anyhow::Result<Vec<(Entry, &[u8])>> {
    let mut decoder = Decoder::new(TarRules::Strict);
    let mut entries = Vec::new();
    loop {
        let block = tar.split_first_chunk::<BLOCK_BYTES>();
        tar = block.map_or(tar, |(_, rest)| rest);
        match decoder.block(block.map(|(block, _)| block))? {
            DecodeStep::Next | DecodeStep::Map => {}
            DecodeStep::Extension(size) => {
                decoder.extension(take_content(&mut tar, size)?)?;
            }
            DecodeStep::Entry(entry) => {
                let data = take_content(&mut tar, entry.size)?;
                entries.push((entry, data));
            }
            DecodeStep::End => return Ok(entries),
        }
    }
}

/// The next `size` bytes, without their padding.
fn take_content<'a>(tar: &mut &'a [u8], size: u64) -> anyhow::Result<&'a [u8]> {
    let padded = usize::try_from(size + padding(size))?;
    let (content, rest) = tar.split_at_checked(padded).context("it ends early")?;
    *tar = rest;
    content.get(..usize::try_from(size)?).context("too large")
}

fn node_content(entry: &Entry, data: &[u8]) -> Option<NodeContent> {
    match entry.kind {
        EntryKind::Directory => Some(NodeContent::Directory),
        EntryKind::File => Some(NodeContent::File(data.to_vec())),
        EntryKind::Symlink => Some(NodeContent::Symlink(
            String::from_utf8(entry.link.clone()).ok()?,
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
