//! The archive of a release: equal trees result in equal bytes.

use std::fs;
use std::path::Path;

use super::program::SourceCommit;
use crate::step;

/// Files of the repository that go into the archive.
const INCLUDED_FILES: &[&str] = &["LICENSE", "README.md", "CHANGELOG.md"];
/// Shells with a completion script, and the name under which each of them looks for it.
const COMPLETION_SCRIPTS: &[(&str, &str)] = &[
    ("bash", "dray.bash"),
    ("zsh", "_dray"),
    ("fish", "dray.fish"),
];

/// Compression level of gzip.
#[derive(Clone, Copy, Debug)]
pub(super) enum GzipLevel {
    /// For a release.
    Best,
    /// For files that are only looked at: a fifth of the time.
    Fast,
}

/// Writes the archive with one directory `stem` in it.
pub(super) fn write_archive(
    root: &Path,
    archive: &Path,
    stem: &str,
    program: &Path,
    commit: &SourceCommit,
    level: GzipLevel,
) -> anyhow::Result<()> {
    let staging = tempfile::tempdir()?;
    let tree = staging.path().join(stem);
    fs::create_dir_all(tree.join("completions"))?;
    for name in INCLUDED_FILES {
        fs::copy(root.join(name), tree.join(name))?;
    }
    fs::copy(program, tree.join("dray"))?;
    for (shell, name) in COMPLETION_SCRIPTS {
        let script = step::program_step(program).args(["completions", shell]);
        fs::write(tree.join("completions").join(name), script.output()?)?;
    }
    step::program_step(program)
        .arg("man")
        .arg(tree.join("man"))
        .output()?;
    pack(staging.path(), stem, archive, commit, level)
}

/// Packs `parent/stem` as a gzip-compressed tar archive.
fn pack(
    parent: &Path,
    stem: &str,
    archive: &Path,
    commit: &SourceCommit,
    level: GzipLevel,
) -> anyhow::Result<()> {
    let tar = step::program_step("tar")
        .arg("--create")
        // Order, times, owners and modes would otherwise depend on this machine.
        .args(["--sort=name", "--format=gnu", "--numeric-owner"])
        .args(["--owner=0", "--group=0", "--mode=u=rwX,go=rX"])
        .arg(format!("--mtime=@{}", commit.seconds))
        .arg("--directory")
        .arg(parent)
        .arg(stem)
        .output_for(Vec::new())?;
    fs::write(archive, compress_gzip(tar, level)?)?;
    Ok(())
}

/// Compresses with gzip.
pub(super) fn compress_gzip(bytes: Vec<u8>, level: GzipLevel) -> anyhow::Result<Vec<u8>> {
    let level = match level {
        GzipLevel::Best => "--best",
        GzipLevel::Fast => "--fast",
    };
    step::program_step("gzip")
        // The output must not contain the name and the time of the input.
        .args(["--no-name", level])
        .output_for(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A tree whose files were written in this order, with this mode.
    fn pack_files(names: &[&str], mode: u32) -> Vec<u8> {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("tree")).unwrap();
        for name in names {
            let path = parent.path().join("tree").join(name);
            fs::write(&path, format!("text of {name}")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let archive = parent.path().join("tree.tar.gz");
        let commit = SourceCommit {
            hash: "c".repeat(40),
            seconds: 1_700_000_000,
            is_changed: false,
        };
        pack(parent.path(), "tree", &archive, &commit, GzipLevel::Best).unwrap();
        fs::read(archive).unwrap()
    }

    #[test]
    fn order_times_and_modes_of_the_machine_do_not_matter() {
        let archive = pack_files(&["a", "b"], 0o600);
        assert_eq!(archive, pack_files(&["b", "a"], 0o644));
        assert_ne!(
            archive,
            pack_files(&["a", "b"], 0o755),
            "programs stay executable"
        );
        assert_ne!(archive, pack_files(&["a", "c"], 0o600));
    }
}
