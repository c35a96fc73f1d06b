//! `cargo xtask dist`: the files of a release, created so that a second build results in the same bytes.
//!
//! The archive contains the program, its completions and its manual pages; the image contains the program and a base
//! without a shell. The other files are software bills of materials (`CycloneDX` 1.6), a provenance statement (in-toto
//! Statement v1 with SLSA Provenance v1) and `SHA256SUMS`. Each of them is signed if the caller has a key.

mod archive;
mod bill_of_materials;
mod digest;
mod image;
mod program;
mod provenance;
mod signature;
mod static_library;
mod target;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;

use self::archive::GzipLevel;
use self::bill_of_materials::BillOfMaterials;
use self::digest::FileDigest;
use self::image::{BaseList, ImageBase, ImageOptions};
use self::program::{ProgramBuild, SourceCommit};
use self::signature::SigningKey;
use self::static_library::StaticLibrary;
use self::target::ReleaseTarget;
use crate::step;

/// Options of the command line.
#[derive(clap::Args)]
pub(crate) struct DistOptions {
    /// Directory for the files; `target/dist-files` by default. It is emptied first.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Target triple; by default `x86_64-unknown-linux-musl` or that of another processor: a static program.
    #[arg(long)]
    target: Option<String>,
    /// Build once more from an export of the commit in another directory, and fail when the programs differ.
    #[arg(long)]
    verify: bool,
    /// Take this program instead of building one, to look at the other files. Not for a release: nothing is signed, and the
    /// provenance says so.
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    program: Option<PathBuf>,
    /// Accept files that differ from the commit. Not for a release: nothing is signed, and the provenance says so.
    #[arg(long)]
    allow_dirty: bool,
    /// URI of the builder, for the provenance.
    #[arg(long, default_value = "urn:drayage:builder:local")]
    builder: String,
    /// Sign every file with this private key: ECDSA on the curve P-256, in PEM, without a passphrase. Each signature is
    /// in `NAME.sig`, as `cosign verify-blob` reads it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["program", "allow_dirty"])]
    signing_key: Option<PathBuf>,
    #[command(flatten)]
    image: ImageOptions,
}

impl DistOptions {
    /// Why the program may be another than the one that the commit gives; empty for a release.
    fn deviations(&self, commit: &SourceCommit) -> Vec<&'static str> {
        let given = self.program.is_some();
        [
            (given, "the program was not built by this command"),
            (commit.is_changed, "files differed from the commit"),
        ]
        .into_iter()
        .filter_map(|(applies, reason)| applies.then_some(reason))
        .collect()
    }
}

/// Creates all files of a release, and prints their digests.
pub(crate) fn run_dist(root: &Path, options: &DistOptions) -> anyhow::Result<()> {
    if options.image.update_base {
        return BaseList::update_versions(&options.image.list_path(root));
    }
    let out = match &options.out {
        Some(out) => out.clone(),
        None => root.join("target/dist-files"),
    };
    // The key is read first: a build takes longer than an operator waits.
    let key = options.signing_key.as_deref();
    let key = key.map(|path| open_key(path, &out)).transpose()?;
    let commit = SourceCommit::read(root, options.allow_dirty)?;
    let target = ReleaseTarget::choose(options.target.as_deref())?;
    target.ensure_toolchain(root, options.program.is_none())?;
    // The base is opened before the build, so that a missing package is reported early.
    let base = options.image.open_base(root, &target)?;
    let build = ProgramBuild {
        target,
        deviations: options.deviations(&commit),
        commit,
    };
    let program = open_program(root, options, &build, base.as_ref())?;
    if options.verify {
        verify(root, &build, &program)?;
    }
    if out.exists() {
        // Otherwise a file of an earlier version would be in the new list of digests.
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    let release = ReleaseFiles {
        root,
        out: &out,
        program: &program,
        level: match options.program {
            Some(_) => GzipLevel::Fast,
            None => GzipLevel::Best,
        },
        build: &build,
        builder: &options.builder,
    };
    release.write(base.as_ref())?;
    eprint!("{}", fs::read_to_string(out.join(digest::LIST_NAME))?);
    eprintln!("the files are in {}", out.display());
    if !build.deviations.is_empty() {
        eprintln!("not for a release: {}", build.deviations.join(", and "));
    }
    match key {
        Some(key) => {
            let count = key.sign_directory(&out)?;
            let fingerprint = &key.fingerprint;
            eprintln!("{count} files are signed; SHA-256 of the public key (DER): {fingerprint}");
        }
        None => eprintln!("nothing is signed; --signing-key FILE signs every file"),
    }
    Ok(())
}

/// Builds the program, or takes the one that the options name, and checks it.
fn open_program(
    root: &Path,
    options: &DistOptions,
    build: &ProgramBuild,
    base: Option<&ImageBase>,
) -> anyhow::Result<PathBuf> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build.run(root, &root.join("target/dist-build"))?,
    };
    program::check_libraries(&program, &build.target)?;
    if options.program.is_none() {
        program::check_symbols(&program)?;
    }
    if let Some(base) = base {
        base.check_program(&program)?;
    }
    Ok(program)
}

/// Opens the key for signatures.
///
/// # Errors
///
/// A key that cannot sign, or that would be removed with the files of an earlier release in `out`.
fn open_key(path: &Path, out: &Path) -> anyhow::Result<SigningKey> {
    let key = SigningKey::open(path)?;
    if let Ok(out) = out.canonicalize()
        && path.canonicalize()?.starts_with(&out)
    {
        bail!("the key is in {}, which is emptied", out.display());
    }
    Ok(key)
}

/// What the files of a release are made from.
struct ReleaseFiles<'a> {
    root: &'a Path,
    out: &'a Path,
    program: &'a Path,
    level: GzipLevel,
    build: &'a ProgramBuild,
    builder: &'a str,
}

impl ReleaseFiles<'_> {
    /// Writes all files, with an image if there is a base for it.
    fn write(&self, base: Option<&ImageBase>) -> anyhow::Result<()> {
        let archive = self.path("tar.gz");
        let commit = &self.build.commit;
        archive::write_archive(
            self.root,
            &archive,
            &self.stem(),
            self.program,
            commit,
            self.level,
        )?;
        let program_digest = FileDigest::of(self.program)?.named("dray");
        let target = &self.build.target;
        let library = target.linked_library(self.root)?;
        let bill = BillOfMaterials::read(self.root, &target.triple, library.clone())?;
        let bill = bill.document(&program_digest, commit)?;
        write_json(&self.path("cdx.json"), &bill)?;
        let mut subjects = vec![FileDigest::of(&archive)?, program_digest];
        let mut libraries: Vec<Value> = library.iter().map(StaticLibrary::material).collect();
        if let Some(base) = base {
            subjects.extend(self.write_image(base, bill)?);
            libraries.extend(image::package_materials(base));
        }
        let statement =
            provenance::statement(self.root, &subjects, self.build, self.builder, libraries)?;
        write_json(&self.path("provenance.json"), &statement)?;
        digest::write_list(self.out)
    }

    /// Writes the image and its bill of materials. Returns the digests of the file and of the image in it.
    fn write_image(&self, base: &ImageBase, bill: Value) -> anyhow::Result<[FileDigest; 2]> {
        let file = self.path("image.tar");
        let image = base.write_image(&file, self.program, &self.build.commit, self.level)?;
        let bill = image::image_bill(bill, &image, base, &self.build.commit);
        write_json(&self.path("image.cdx.json"), &bill)?;
        eprintln!(
            "the image is {} with the digest sha256:{}",
            image.name, image.sha256
        );
        let digest = FileDigest {
            name: image.name,
            sha256: image.sha256,
        };
        Ok([FileDigest::of(&file)?, digest])
    }

    /// What the names of the files begin with.
    fn stem(&self) -> String {
        format!(
            "dray-{}-{}",
            env!("CARGO_PKG_VERSION"),
            self.build.target.triple
        )
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.out.join(format!("{}.{extension}", self.stem()))
    }
}

fn write_json(path: &Path, value: &Value) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Builds the same commit in another directory, and fails if the programs differ.
fn verify(root: &Path, build: &ProgramBuild, program: &Path) -> anyhow::Result<()> {
    let export = tempfile::tempdir().context("cannot create a directory for the second build")?;
    let source = export.path().join("another/directory");
    fs::create_dir_all(&source)?;
    let tar = export.path().join("source.tar");
    step::program_step("git")
        .inside(root)
        .args(["archive", "--format", "tar", "--output"])
        .arg(&tar)
        .arg(&build.commit.hash)
        .run()?;
    step::program_step("tar")
        .arg("--extract")
        .arg("--directory")
        .arg(&source)
        .arg("--file")
        .arg(&tar)
        .run()?;
    // The directory is on the disk of the workspace: the second build is as large as the first, and /tmp may be small.
    let target = root.join("target/dist-verify");
    let second = build.run(&source, &target)?;
    let (first, second) = (FileDigest::of(program)?, FileDigest::of(&second)?);
    if first.sha256 != second.sha256 {
        bail!(
            "two builds of {} differ: {} and {}. Compare target/dist-build with target/dist-verify, for example with \
             `diffoscope`",
            build.commit.hash,
            first.sha256,
            second.sha256
        );
    }
    eprintln!("a second build in another directory gives the same program");
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use clap::error::ErrorKind;

    use super::*;

    /// Options that write to `out`.
    fn options(out: &Path) -> DistOptions {
        DistOptions {
            out: Some(out.to_owned()),
            target: None,
            verify: false,
            program: None,
            allow_dirty: false,
            builder: String::new(),
            signing_key: None,
            image: ImageOptions::default(),
        }
    }

    #[derive(clap::Parser)]
    struct DistCommand {
        #[command(flatten)]
        options: DistOptions,
    }

    #[test]
    fn a_foreign_program_and_changed_files_are_not_signed() {
        let parse = |options: &[&str]| {
            let words = ["dist", "--signing-key", "key.pem"];
            DistCommand::try_parse_from(words.iter().chain(options))
        };
        assert!(parse(&[]).is_ok());
        for options in [&["--program", "dray"][..], &["--allow-dirty"]] {
            let refused = parse(options).err().map(|error| error.kind());
            assert_eq!(refused, Some(ErrorKind::ArgumentConflict), "{options:?}");
        }
    }

    #[test]
    fn a_given_program_and_changed_files_are_no_release() {
        let mut commit = SourceCommit {
            hash: "c".repeat(40),
            seconds: 1_700_000_000,
            is_changed: false,
        };
        let mut options = options(Path::new("out"));
        assert!(options.deviations(&commit).is_empty());
        commit.is_changed = true;
        assert_eq!(options.deviations(&commit).len(), 1);
        options.program = Some(PathBuf::from("dray"));
        assert_eq!(options.deviations(&commit).len(), 2);
    }

    #[test]
    fn a_target_that_is_not_installed_ends_the_command_before_the_build() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let directory = tempfile::tempdir().unwrap();
        let earlier = directory.path().join("of an earlier release");
        fs::write(&earlier, "").unwrap();
        let options = DistOptions {
            target: Some("no-such-target-linux-musl".to_owned()),
            allow_dirty: true,
            ..options(directory.path())
        };
        let error = run_dist(&root, &options).unwrap_err().to_string();
        assert!(
            error.ends_with("rustup target add no-such-target-linux-musl"),
            "{error}"
        );
        assert!(earlier.exists());
    }

    #[test]
    fn a_key_that_cannot_be_used_ends_the_command_before_anything_else() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key.pem");
        let options = DistOptions {
            signing_key: Some(key.clone()),
            ..options(directory.path())
        };
        // The directory is not a repository, so every later step would fail with another error.
        let run = || format!("{:#}", run_dist(directory.path(), &options).unwrap_err());
        assert!(run().starts_with("cannot read the key"), "{}", run());
        step::program_step("openssl")
            .args([
                "ecparam",
                "-genkey",
                "-noout",
                "-name",
                "prime256v1",
                "-out",
            ])
            .arg(&key)
            .output()
            .unwrap();
        assert!(run().contains("which is emptied"), "{}", run());
        assert!(key.exists());
    }
}
