//! The target of a release: by default a static program for the processor of this machine. Checks what its build needs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::static_library::StaticLibrary;
use crate::{required_programs, step};

/// A target of the Rust compiler.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReleaseTarget {
    /// Target triple, such as `x86_64-unknown-linux-musl`.
    pub(super) triple: String,
}

impl ReleaseTarget {
    /// The target that the caller named, or else the static one of this machine.
    pub(super) fn choose(named: Option<&str>) -> anyhow::Result<Self> {
        let triple = match named {
            Some(triple) => triple.to_owned(),
            None => format!("{}-unknown-linux-musl", processor_of(&host_triple()?)),
        };
        Ok(Self { triple })
    }

    /// Whether the C library is linked into the programs of this target.
    pub(super) fn is_static(&self) -> bool {
        self.triple.contains("-linux-musl")
    }

    /// The C compiler, if it differs from the one that build scripts find by themselves.
    ///
    /// They look for `aarch64-linux-musl-gcc`, which Debian does not have.
    pub(super) fn c_compiler(&self) -> anyhow::Result<Option<(String, String)>> {
        if !self.is_built_by_musl_gcc()? {
            return Ok(None);
        }
        let variable = format!("CC_{}", self.triple.replace('-', "_"));
        Ok(Some((variable, "musl-gcc".to_owned())))
    }

    /// Refuses a target whose standard library is not installed, and installs or names the C compiler that a build needs.
    pub(super) fn ensure_toolchain(&self, root: &Path, is_built: bool) -> anyhow::Result<()> {
        self.check_standard_library(&sysroot(root)?)?;
        if is_built && self.is_built_by_musl_gcc()? {
            required_programs::ensure_programs(required_programs::STATIC_PROGRAMS)?;
        }
        Ok(())
    }

    /// The C library that is linked into a program of this target; `None` for a program that loads it.
    pub(super) fn linked_library(&self, root: &Path) -> anyhow::Result<Option<StaticLibrary>> {
        if !self.is_static() {
            return Ok(None);
        }
        let directory = self.library_directory(&sysroot(root)?);
        StaticLibrary::read(&directory.join("self-contained/libc.a")).map(Some)
    }

    fn check_standard_library(&self, sysroot: &Path) -> anyhow::Result<()> {
        if self.library_directory(sysroot).is_dir() {
            return Ok(());
        }
        let triple = &self.triple;
        bail!(
            "the Rust compiler has no standard library for {triple}; install it and run the same command again:\n  \
             rustup target add {triple}"
        )
    }

    fn library_directory(&self, sysroot: &Path) -> PathBuf {
        sysroot.join("lib/rustlib").join(&self.triple).join("lib")
    }

    /// Whether `musl-gcc` compiles C for this target: it knows only the processor of its machine.
    fn is_built_by_musl_gcc(&self) -> anyhow::Result<bool> {
        Ok(self.is_static() && processor_of(&self.triple) == processor_of(&host_triple()?))
    }
}

/// The directory of the compiler and of its standard libraries.
fn sysroot(root: &Path) -> anyhow::Result<PathBuf> {
    let directory = step::program_step("rustc")
        .args(["--print", "sysroot"])
        .inside(root)
        .output()?;
    Ok(PathBuf::from(directory.trim()))
}

/// The target triple of this machine.
pub(super) fn host_triple() -> anyhow::Result<String> {
    let text = step::program_step("rustc").arg("-vV").output()?;
    text.lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc does not name its host")
}

/// The first part of a target triple.
fn processor_of(triple: &str) -> &str {
    triple.split('-').next().unwrap_or(triple)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn target(triple: &str) -> ReleaseTarget {
        ReleaseTarget::choose(Some(triple)).unwrap()
    }

    #[test]
    fn a_release_is_a_static_program_unless_another_target_is_named() {
        let default = ReleaseTarget::choose(None).unwrap();
        let processor = std::env::consts::ARCH;
        assert_eq!(default.triple, format!("{processor}-unknown-linux-musl"));
        assert!(default.is_static());
        let dynamic = target("x86_64-unknown-linux-gnu");
        assert_eq!(dynamic.triple, "x86_64-unknown-linux-gnu");
        assert!(!dynamic.is_static());
    }

    #[test]
    fn a_missing_standard_library_is_reported_with_the_command_that_installs_it() {
        let sysroot = tempfile::tempdir().unwrap();
        let target = target("x86_64-unknown-linux-musl");
        let error = target.check_standard_library(sysroot.path());
        let error = error.unwrap_err().to_string();
        assert!(
            error.ends_with("\n  rustup target add x86_64-unknown-linux-musl"),
            "{error}"
        );
        let directory = "lib/rustlib/x86_64-unknown-linux-musl/lib";
        fs::create_dir_all(sysroot.path().join(directory)).unwrap();
        target.check_standard_library(sysroot.path()).unwrap();
    }

    #[test]
    fn build_scripts_use_musl_gcc_for_the_processor_of_this_machine_alone() {
        let default = ReleaseTarget::choose(None).unwrap();
        let (variable, compiler) = default.c_compiler().unwrap().unwrap();
        let processor = std::env::consts::ARCH;
        assert_eq!(variable, format!("CC_{processor}_unknown_linux_musl"));
        assert_eq!(compiler, "musl-gcc");
        for other in ["riscv64gc-unknown-linux-musl", "x86_64-unknown-linux-gnu"] {
            assert_eq!(target(other).c_compiler().unwrap(), None);
        }
    }
}
