//! The image of a release, as one file: an OCI image layout (image-spec 1.1) that also has the `manifest.json` of
//! `docker save`, because Docker before 25 reads no other layout.
//!
//! Two layers: the base from Debian packages, without a shell, and the program. No container engine is needed, and
//! nothing is pulled from a registry.

mod bill;
mod layout;
mod package;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use dray_archive::tar::Owner;

pub(super) use self::bill::{image_bill, package_materials};
pub(super) use self::package::BaseList;
use self::tree::{FileTree, NodeContent};
use super::archive::GzipLevel;
use super::program::SourceCommit;
use super::target::ReleaseTarget;
use crate::step;

/// The user of the container, as in the images of distroless.
const SERVICE_USER: Owner = Owner {
    uid: 65_532,
    gid: 65_532,
};
/// The users of the image. No program exists that could be a login shell.
const PASSWD_FILE: &str = "root:x:0:0:root:/root:/sbin/nologin\n\
    nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n\
    nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n";
const GROUP_FILE: &str = "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n";
/// Order of the sources of host names for glibc: `/etc/hosts` first. musl has this order without a file.
const NSSWITCH_FILE: &str = "hosts: files dns\n";
/// Authorities in the package, each in its own file.
const AUTHORITIES_DIRECTORY: &str = "usr/share/ca-certificates/";
/// The file that TLS clients read.
const AUTHORITIES_FILE: &str = "etc/ssl/certs/ca-certificates.crt";

/// Options of the image.
#[derive(clap::Args, Default)]
pub(super) struct ImageOptions {
    /// Make no image.
    #[arg(long)]
    no_image: bool,
    /// List of the Debian packages of the base; `deploy/image/base-packages.toml` by default.
    #[arg(long, value_name = "FILE")]
    base_list: Option<PathBuf>,
    /// Directory of the package files; `target/dist-packages` by default. `apt-get` downloads missing files into it.
    #[arg(long, value_name = "DIR")]
    base_packages: Option<PathBuf>,
    /// Write the versions that Debian offers now into the list, and end. Needs `apt-get` of the list's distribution.
    #[arg(long)]
    pub(super) update_base: bool,
}

impl ImageOptions {
    /// Path of the list.
    pub(super) fn list_path(&self, root: &Path) -> PathBuf {
        let default = || root.join("deploy/image/base-packages.toml");
        self.base_list.clone().unwrap_or_else(default)
    }

    /// The base for programs of this target. None without an image.
    pub(super) fn open_base(
        &self,
        root: &Path,
        target: &ReleaseTarget,
    ) -> anyhow::Result<Option<ImageBase>> {
        if self.no_image {
            return Ok(None);
        }
        let list = BaseList::read(&self.list_path(root))?.for_target(target);
        let architecture = debian_architecture(&target.triple);
        if architecture != Some(list.architecture.as_str()) {
            eprintln!(
                "no image for {}: the packages of the base are for {}",
                target.triple, list.architecture
            );
            return Ok(None);
        }
        let default = || root.join("target/dist-packages");
        let directory = self.base_packages.clone().unwrap_or_else(default);
        fs::create_dir_all(&directory)?;
        ImageBase::open(list, &directory).map(Some)
    }
}

/// Name of the processor of a target in Debian and in images. None for one that Debian or the service does not have.
fn debian_architecture(target: &str) -> Option<&'static str> {
    match target.split_once('-')? {
        ("x86_64", rest) if rest.contains("linux") => Some("amd64"),
        ("aarch64", rest) if rest.contains("linux") => Some("arm64"),
        _ => None,
    }
}

/// The files of the base and the packages that they are from.
#[derive(Debug)]
pub(super) struct ImageBase {
    list: BaseList,
    tree: FileTree,
}

/// An image that was written to a file.
#[derive(Debug, PartialEq)]
pub(super) struct ReleaseImage {
    /// Name with a tag.
    pub(super) name: String,
    /// SHA-256 of its manifest, by which registries and clusters name it.
    pub(super) sha256: String,
}

impl ImageBase {
    /// Reads the packages, downloading those that are not in `directory`.
    fn open(list: BaseList, directory: &Path) -> anyhow::Result<Self> {
        let mut tree = FileTree::default();
        for package in &list.packages {
            package.add_to(&mut tree, &package.locate_file(directory)?)?;
        }
        collect_authorities(&mut tree)?;
        tree.add_file("etc/passwd", 0o644, PASSWD_FILE);
        tree.add_file("etc/group", 0o644, GROUP_FILE);
        if list.c_library().is_some() {
            tree.add_file("etc/nsswitch.conf", 0o644, NSSWITCH_FILE);
        }
        let home = "home/nonroot";
        tree.add_node(home, 0o700, SERVICE_USER, NodeContent::Directory);
        Ok(Self { list, tree })
    }

    /// Refuses a program that needs a later C library than that of the base.
    pub(super) fn check_program(&self, program: &Path) -> anyhow::Result<()> {
        let text = step::program_step("readelf")
            .args(["--wide", "--version-info"])
            .arg(program)
            .output()?;
        let (Some(needed), Some(libc)) = (needed_libc(&text), self.list.c_library()) else {
            return Ok(());
        };
        if minor_version(&libc.version).is_none_or(|available| available < needed) {
            bail!(
                "the program needs version 2.{needed} of the C library, and the base has {}: build on Debian {}, or \
                 use --no-image",
                libc.version,
                self.list.distribution
            );
        }
        Ok(())
    }

    /// Writes the image with this program to `path`.
    pub(super) fn write_image(
        &self,
        path: &Path,
        program: &Path,
        commit: &SourceCommit,
        level: GzipLevel,
    ) -> anyhow::Result<ReleaseImage> {
        let mut program_tree = FileTree::default();
        let program = fs::read(program).context("cannot read the program")?;
        program_tree.add_file("usr/local/bin/dray", 0o755, program);
        // The directory of the one-machine mode; services on NATS and S3 keep nothing on disk.
        let state = "var/lib/dray";
        program_tree.add_node(state, 0o750, SERVICE_USER, NodeContent::Directory);
        let seconds = u64::try_from(commit.seconds)?;
        let layers = [
            // At the epoch: the layer stays the same as long as its packages do, so registries and nodes keep it.
            layout::ImageLayer::compress("base of Debian packages", &self.tree.to_tar(0), level)?,
            layout::ImageLayer::compress("dray", &program_tree.to_tar(seconds), level)?,
        ];
        let (image, bytes) = layout::assemble_image(&layers, &self.list.architecture, commit)?;
        fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(image)
    }
}

/// Replaces the files of authorities with one file, as `update-ca-certificates` writes it.
fn collect_authorities(tree: &mut FileTree) -> anyhow::Result<()> {
    let mut bundle = Vec::new();
    for (name, node) in &tree.nodes {
        if let NodeContent::File(certificate) = &node.content
            && name.starts_with(AUTHORITIES_DIRECTORY)
        {
            bundle.extend_from_slice(certificate);
            if !bundle.ends_with(b"\n") {
                bundle.push(b'\n');
            }
        }
    }
    if bundle.is_empty() {
        bail!("the base has no authorities in {AUTHORITIES_DIRECTORY}");
    }
    let directory = AUTHORITIES_DIRECTORY.trim_end_matches('/');
    tree.nodes.retain(|name, _| !name.starts_with(directory));
    tree.add_file(AUTHORITIES_FILE, 0o644, bundle);
    Ok(())
}

/// The highest `GLIBC_2.MINOR` in the output of `readelf --version-info`. A static program needs none.
fn needed_libc(text: &str) -> Option<u32> {
    text.split("GLIBC_").skip(1).filter_map(minor_version).max()
}

/// `36` of `2.36-9+deb12u14`.
fn minor_version(version: &str) -> Option<u32> {
    let rest = version.strip_prefix("2.")?;
    let end = rest.find(|character: char| !character.is_ascii_digit());
    rest.get(..end.unwrap_or(rest.len()))?.parse().ok()
}

#[cfg(test)]
mod tests;
