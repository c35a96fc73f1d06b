//! Builds the program of a release: from one commit, without a path of this machine in it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::target::ReleaseTarget;
use crate::step;

/// Shared libraries that every Linux system with the GNU C library has. A dynamic program may need these alone; all other
/// libraries are linked statically.
const SYSTEM_LIBRARIES: &[&str] = &[
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// Variables of the caller that a build gets: where programs and packages are, and how registries are reached. Flags, profiles,
/// wrappers and compilers of the caller are not among them, because the provenance names none.
const KEPT_VARIABLES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "TMPDIR",
    "CARGO_HOME",
    "CARGO_BUILD_JOBS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];

/// What the names of further kept variables begin with.
const KEPT_PREFIXES: &[&str] = &[
    "RUSTUP_",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_TERM_",
];

/// The commit of a release.
#[derive(Clone, Debug)]
pub(super) struct SourceCommit {
    /// Hash in lower-case hexadecimal.
    pub(super) hash: String,
    /// Time of the commit, in seconds since the epoch: the time of all files of the release.
    pub(super) seconds: i64,
    /// Whether files of the working tree differ from it.
    pub(super) is_changed: bool,
}

impl SourceCommit {
    /// Reads the commit that is checked out.
    ///
    /// # Errors
    ///
    /// When files of the working tree differ from the commit, unless `allow_dirty`: the release would not match its
    /// commit.
    pub(super) fn read(root: &Path, allow_dirty: bool) -> anyhow::Result<Self> {
        let git = |arguments: &[&str]| {
            step::program_step("git")
                .args(arguments)
                .inside(root)
                .output()
        };
        let changed = git(&["status", "--porcelain"])?;
        let is_changed = !changed.trim().is_empty();
        if !allow_dirty && is_changed {
            bail!("files differ from the commit; commit them, or use --allow-dirty:\n{changed}");
        }
        let line = git(&["log", "-1", "--format=%H %ct"])?;
        let (hash, seconds) = line.trim().split_once(' ').context("git names no commit")?;
        Ok(Self {
            hash: hash.to_owned(),
            seconds: seconds.parse().context("git names no time")?,
            is_changed,
        })
    }

    /// The name of the source in labels: the hash, with a mark when the files were not those of the commit.
    pub(super) fn revision(&self) -> String {
        let mark = if self.is_changed { "-changed" } else { "" };
        format!("{}{mark}", self.hash)
    }
}

/// The target and the commit of a build of the program.
pub(super) struct ProgramBuild {
    pub(super) target: ReleaseTarget,
    pub(super) commit: SourceCommit,
    /// Why the program may be another than the one that the commit gives; empty for a release.
    pub(super) deviations: Vec<&'static str>,
}

impl ProgramBuild {
    /// Builds `source` below `target_directory`, and returns the path of the program.
    pub(super) fn run(&self, source: &Path, target_directory: &Path) -> anyhow::Result<PathBuf> {
        self.run_for(source, target_directory, std::env::vars_os())
    }

    /// Like [`Self::run`], for a caller with these environment variables.
    fn run_for(
        &self,
        source: &Path,
        target_directory: &Path,
        caller: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> anyhow::Result<PathBuf> {
        let kept = caller.into_iter().filter(|(name, _)| is_kept(name));
        step::cargo_step(source)
            .args([
                "build",
                "--locked",
                "--profile",
                "dist",
                "--package",
                "dray",
            ])
            // The target is named, so that flags for the program do not reach build scripts and macros.
            .args(["--target", &self.target.triple, "--target-dir"])
            .arg(target_directory)
            .only_envs(kept)
            .envs(&self.variables(source, target_directory)?)
            .run()?;
        Ok(target_directory
            .join(&self.target.triple)
            .join("dist")
            .join("dray"))
    }

    /// Environment variables that keep paths of this machine out of the program, and the C compiler of its target.
    fn variables(
        &self,
        source: &Path,
        target_directory: &Path,
    ) -> anyhow::Result<Vec<(String, String)>> {
        let names = machine_paths(source, target_directory)?;
        let flags = |flag: &str| {
            let flags = names
                .iter()
                .map(|(path, name)| format!("{flag}={path}={name}"));
            flags.collect::<Vec<_>>().join(" ")
        };
        let mut variables = vec![
            // The flags of every build, so that builds of different people have the same.
            (
                "RUSTFLAGS".to_owned(),
                format!("-Cstrip=symbols {}", flags("--remap-path-prefix")),
            ),
            ("CFLAGS".to_owned(), flags("-ffile-prefix-map")),
            // Tools write the time of the commit (reproducible-builds.org).
            (
                "SOURCE_DATE_EPOCH".to_owned(),
                self.commit.seconds.to_string(),
            ),
            ("CARGO_INCREMENTAL".to_owned(), "0".to_owned()),
            // Empty values turn off wrappers that a configuration file of cargo in the home directory names.
            ("RUSTC_WRAPPER".to_owned(), String::new()),
            ("RUSTC_WORKSPACE_WRAPPER".to_owned(), String::new()),
        ];
        variables.extend(self.target.c_compiler()?);
        Ok(variables)
    }
}

/// Whether a build gets this variable of its caller.
fn is_kept(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        KEPT_VARIABLES.contains(&name)
            || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    })
}

/// Directories of this machine that appear in messages of panics, each with the name that replaces it. If one
/// contains the other, the last one is applied, as `rustc` does.
fn machine_paths(
    source: &Path,
    target_directory: &Path,
) -> anyhow::Result<Vec<(String, &'static str)>> {
    let cargo_home = step::program_step("sh")
        .args(["-c", "printf %s \"${CARGO_HOME:-$HOME/.cargo}\""])
        .output()?;
    let mut paths = Vec::new();
    for (path, name) in [
        (Path::new(&cargo_home), "/cargo"),
        (source, "/drayage"),
        (target_directory, "/target"),
    ] {
        let path = path.to_str().context("a path is not UTF-8")?;
        if path.contains(char::is_whitespace) {
            // `RUSTFLAGS` is split at spaces.
            bail!("{path:?} contains a space; build in another directory");
        }
        paths.push((path.to_owned(), name));
    }
    Ok(paths)
}

/// Refuses a dynamic program that needs other shared libraries than the C library, and a static one that needs any.
pub(super) fn check_libraries(program: &Path, target: &ReleaseTarget) -> anyhow::Result<()> {
    let text = step::program_step("readelf")
        .args(["--wide", "--dynamic"])
        .arg(program)
        .output()?;
    let other = other_libraries(&text, target);
    if other.is_empty() {
        return Ok(());
    }
    let other = other.join(", ");
    if target.is_static() {
        bail!(
            "the program needs {other}, but one for {} needs no library; `--target` names the target of a program",
            target.triple
        );
    }
    bail!("the program needs {other}, which a system may not have")
}

/// Refuses a program that still has its symbols: they are a sixth of its size.
pub(super) fn check_symbols(program: &Path) -> anyhow::Result<()> {
    let text = step::program_step("readelf")
        .args(["--wide", "--section-headers"])
        .arg(program)
        .output()?;
    if text.contains(" .symtab ") {
        bail!("the program is not stripped");
    }
    Ok(())
}

/// Shared libraries in the output of `readelf --dynamic` that systems for programs of this target may not have.
fn other_libraries<'a>(text: &'a str, target: &ReleaseTarget) -> Vec<&'a str> {
    let system_libraries = if target.is_static() {
        &[]
    } else {
        SYSTEM_LIBRARIES
    };
    text.lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0))
        .filter(|name| !system_libraries.contains(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::digest::FileDigest;
    use super::super::target::host_triple;
    use super::*;

    /// The target of this machine, whose standard library is installed everywhere.
    fn host_target() -> ReleaseTarget {
        ReleaseTarget::choose(Some(&host_triple().unwrap())).unwrap()
    }

    fn build() -> ProgramBuild {
        ProgramBuild {
            target: host_target(),
            commit: SourceCommit {
                hash: "c".repeat(40),
                seconds: 1_700_000_000,
                is_changed: false,
            },
            deviations: Vec::new(),
        }
    }

    /// Builds a small package `dray` below a new directory, with its path in the message of a panic: as a release for a caller
    /// with these further variables, or without the flags of a release.
    fn small_program(release_for: Option<&[(&str, &str)]>) -> (FileDigest, bool) {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        fs::create_dir_all(source.join("src")).unwrap();
        let manifest = "[package]\nname = \"dray\"\nedition = \"2024\"\n[profile.dist]\ninherits = \"release\"\n\
                        [profile.dist.package.dray]\nopt-level = \"s\"\n[workspace]\n";
        fs::write(source.join("Cargo.toml"), manifest).unwrap();
        fs::write(
            source.join("Cargo.lock"),
            "version = 4\n[[package]]\nname = \"dray\"\nversion = \"0.0.0\"\n",
        )
        .unwrap();
        let main = "#[path = \"PLACE/src/part.rs\"]\nmod part;\nfn main() { part::fail() }";
        let main = main.replace("PLACE", source.to_str().unwrap());
        fs::write(source.join("src/main.rs"), main).unwrap();
        let part = "pub fn fail() { assert!(std::env::args().len() > 9, \"{}\", file!()) }";
        fs::write(source.join("src/part.rs"), part).unwrap();
        let target = directory.path().join("target");
        let program = if let Some(further) = release_for {
            let further = further
                .iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value)));
            let caller = std::env::vars_os().chain(further);
            build().run_for(&source, &target, caller).unwrap()
        } else {
            step::cargo_step(&source)
                .args(["build", "--profile", "dist", "--target-dir"])
                .arg(&target)
                .run()
                .unwrap();
            target.join("dist/dray")
        };
        // Without the flags of a release, symbols stay.
        assert_eq!(check_symbols(&program).is_ok(), release_for.is_some());
        let bytes = fs::read(&program).unwrap();
        let path = directory.path().to_str().unwrap().as_bytes();
        let contains_path = bytes.windows(path.len()).any(|part| part == path);
        (FileDigest::of(&program).unwrap(), contains_path)
    }

    #[test]
    fn two_directories_give_the_same_program() {
        let (first, contains_path) = small_program(Some(&[]));
        assert!(!contains_path);
        // Cargo and `cc` prefer these to the variables that a release sets.
        let flags_of_the_caller = [
            ("CARGO_ENCODED_RUSTFLAGS", "-Cstrip=none\u{1f}-Copt-level=0"),
            ("CARGO_PROFILE_DIST_OPT_LEVEL", "0"),
            ("CARGO_PROFILE_DIST_DEBUG", "true"),
            ("RUSTC_WRAPPER", "/usr/bin/false"),
            ("RUSTC", "/usr/bin/false"),
            ("TARGET_CFLAGS", "-g"),
        ];
        assert_eq!(small_program(Some(&flags_of_the_caller)).0, first);
        // Without the flags the program contains its directory, so the comparison can fail.
        assert!(small_program(None).1);
    }

    #[test]
    fn a_build_gets_programs_and_registries_of_its_caller_but_no_flags() {
        let is_kept = |name: &str| is_kept(name.as_ref());
        for name in [
            "PATH",
            "CARGO_HOME",
            "RUSTUP_TOOLCHAIN",
            "CARGO_NET_OFFLINE",
        ] {
            assert!(is_kept(name), "{name}");
        }
        for name in [
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_PROFILE_DIST_LTO",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER",
            "RUSTC",
            "RUSTC_WRAPPER",
            "CFLAGS_x86_64_unknown_linux_musl",
            "LD_PRELOAD",
        ] {
            assert!(!is_kept(name), "{name}");
        }
    }

    #[test]
    fn the_crate_of_the_command_line_is_optimised_only_in_the_profile_dist() {
        let manifest = include_str!("../../../Cargo.toml");
        let manifest: toml::Table = manifest.parse().unwrap();
        let level = |profile: &str| {
            let profile = manifest["profile"][profile]["package"]["dray"].clone();
            profile["opt-level"].clone()
        };
        // Level 0 in the last crate would be the level of all crates at link time.
        assert_eq!(level("release"), toml::Value::Integer(0));
        assert_eq!(level("dist"), toml::Value::String("s".to_owned()));
    }

    #[test]
    fn libraries_other_than_the_c_library_are_found() {
        let text = "Dynamic section at offset 0x1:\n 0x01 (NEEDED)  Shared library: [libssl.so.3]\n \
                    0x01 (NEEDED)  Shared library: [libc.so.6]\n 0x0e (SONAME)  Library soname: [x.so]\n";
        let target = ReleaseTarget::choose(Some("x86_64-unknown-linux-gnu")).unwrap();
        assert_eq!(other_libraries(text, &target), ["libssl.so.3"]);
        let no_section = "There is no dynamic section in this file.";
        assert!(other_libraries(no_section, &target).is_empty());
        check_libraries(&std::env::current_exe().unwrap(), &host_target()).unwrap();
    }

    #[test]
    fn a_static_program_that_needs_any_library_is_refused() {
        let target = ReleaseTarget::choose(Some("x86_64-unknown-linux-musl")).unwrap();
        let text = " 0x01 (NEEDED)  Shared library: [libc.so.6]\n 0x1e (FLAGS)  BIND_NOW\n";
        assert_eq!(other_libraries(text, &target), ["libc.so.6"]);
        let flags = " 0x1e (FLAGS)  BIND_NOW\n 0x6ffffffb (FLAGS_1)  Flags: NOW PIE\n";
        assert!(other_libraries(flags, &target).is_empty());
        let dynamic_program = std::env::current_exe().unwrap();
        let error = check_libraries(&dynamic_program, &target).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("libc.so.6"), "{error}");
        assert!(error.contains("`--target`"), "{error}");
    }
}
