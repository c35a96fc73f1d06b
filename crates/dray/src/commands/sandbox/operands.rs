//! The operands of `get`, `put` and `cp`, as they are typed.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use dray_presentation::name;

use crate::cli::{SandboxCommand, SandboxCp, SandboxPut};
use crate::commands::reach;
use crate::outcome::CommandFailure;

/// The operands of `put`: at least one file, then the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PutOperands<'a> {
    pub(super) files: &'a [PathBuf],
    pub(super) sandbox: &'a str,
    pub(super) directory: &'a Path,
}

impl SandboxPut {
    /// Finds files, sandbox and directory: the first operand after a file that reads `KIND:NAME` is the sandbox.
    pub(super) fn parse(&self) -> Result<PutOperands<'_>, CommandFailure> {
        let is_sandbox = |operand: &PathBuf| {
            operand
                .to_str()
                .is_some_and(|text| reach::check_address(text).is_ok())
        };
        // The first operand is a file, even when it reads like a sandbox.
        let found = self.operands.iter().skip(1).position(is_sandbox);
        let (files, rest) = match found {
            Some(position) => self.operands.split_at(position + 1),
            None => return Err(self.no_sandbox()),
        };
        let (sandbox, directory) = match rest {
            [sandbox] => (sandbox, Path::new(".")),
            [sandbox, directory] => (sandbox, directory.as_path()),
            _ => {
                let text = "write at most one directory after the sandbox, and the files before it";
                return Err(CommandFailure::Usage(text.to_owned()));
            }
        };
        let operands = PutOperands {
            files,
            sandbox: sandbox.to_str().unwrap_or_default(),
            directory,
        };
        self.check(operands)?;
        Ok(operands)
    }

    /// The failure for a missing sandbox, which shows the operand that should have been one.
    fn no_sandbox(&self) -> CommandFailure {
        let last = self.operands.last().map(|last| last.to_string_lossy());
        let refused = reach::check_address(&last.unwrap_or_default());
        refused.err().unwrap_or_else(|| {
            CommandFailure::Usage(
                "name the sandbox after the files, for example docker:web".to_owned(),
            )
        })
    }

    fn check(&self, operands: PutOperands<'_>) -> Result<(), CommandFailure> {
        let usage = |text: &str| Err(CommandFailure::Usage(text.to_owned()));
        let has_input = operands.files.iter().any(|file| file == Path::new("-"));
        match operands.files {
            [_] if has_input && self.name.is_none() => {
                usage("standard input has no name: add --name NAME")
            }
            [_] if has_input && self.transfer.resume => {
                usage("standard input cannot be continued: leave out --resume")
            }
            [_] => Ok(()),
            _ if has_input => usage(
                "standard input cannot be combined with files; write ./- for a file that is named -",
            ),
            _ if self.name.is_some() => usage("--name can be used with one file only"),
            _ => Ok(()),
        }
    }
}

/// One operand of `cp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopyOperand {
    /// Address of the sandbox; `None` for this machine.
    pub(super) sandbox: Option<String>,
    /// Path in the sandbox or on this machine.
    pub(super) path: Vec<u8>,
}

impl CopyOperand {
    /// Reads `KIND:NAME:PATH`, `KIND:NAME`, or a path of this machine.
    pub(super) fn parse(typed: &Path) -> Self {
        let bytes = typed.as_os_str().as_bytes();
        let here = || Self {
            sandbox: None,
            path: bytes.to_vec(),
        };
        let Some(colon) = bytes.iter().position(|byte| *byte == b':') else {
            return here();
        };
        // A path such as `./a:b` or `A:b` is not a sandbox: kinds are lower-case words.
        let kind = bytes.get(..colon).unwrap_or_default();
        let is_word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if kind.is_empty() || !kind.iter().all(is_word) {
            return here();
        }
        let name_at = colon + 1;
        let rest = bytes.get(name_at..).unwrap_or_default();
        // Names may contain colons (`ssh:me@host:22`): the path begins at a colon before `/`, `~` or `.`, and the name
        // is not empty.
        let is_path = |window: &[u8]| matches!(window, [b':', b'/' | b'~' | b'.']);
        let split = rest.windows(2).skip(1).position(is_path).map(|at| at + 1);
        let (name, path) = match split {
            Some(at) => (rest.get(..at), rest.get(at + 1..)),
            None => (
                // An operand without a path means the working directory of the sandbox.
                Some(rest.strip_suffix(b":").unwrap_or(rest)),
                Some(&b"."[..]),
            ),
        };
        let address = [kind, b":", name.unwrap_or_default()].concat();
        match String::from_utf8(address) {
            Ok(sandbox) if !name.unwrap_or_default().is_empty() => Self {
                sandbox: Some(sandbox),
                path: path.unwrap_or_default().to_vec(),
            },
            _ => here(),
        }
    }
}

impl SandboxCp {
    /// The sources and the target. Exactly one or both sides are in a sandbox.
    pub(super) fn parse(&self) -> Result<(Vec<CopyOperand>, CopyOperand), CommandFailure> {
        let mut operands: Vec<_> = self
            .operands
            .iter()
            .map(|path| CopyOperand::parse(path))
            .collect();
        let usage = |text: &str| CommandFailure::Usage(text.to_owned());
        let to = operands
            .pop()
            .ok_or_else(|| usage("name the target of the copy"))?;
        if operands
            .iter()
            .chain([&to])
            .any(|operand| operand.path == b"-")
        {
            return Err(usage(
                "cp cannot copy standard input or output: use put and get; write ./- for a file that is named -",
            ));
        }
        // Use the system's `cp` for a copy within this machine.
        if to.sandbox.is_none() && operands.iter().any(|from| from.sandbox.is_none()) {
            return Err(usage(
                "one side must be in a sandbox, written SANDBOX:PATH, for example docker:web:/data/a.csv",
            ));
        }
        if operands
            .iter()
            .any(|from| from.sandbox != operands.first().and_then(|first| first.sandbox.clone()))
        {
            return Err(usage(
                "all sources must be in the same sandbox or on this machine",
            ));
        }
        Ok((operands, to))
    }
}

/// Adds how a path is written, where the end of a sandbox's name may have been meant as one: `docker:web:data.csv`.
pub(super) fn with_path_advice(failure: CommandFailure, sandbox: &str) -> CommandFailure {
    let (address, path) = sandbox.rsplit_once(':').unwrap_or_default();
    // The number is the port of a host.
    let is_port = path.bytes().all(|byte| byte.is_ascii_digit());
    match failure {
        CommandFailure::Fault(fault) if address.contains(':') && !is_port => {
            let [address, path] = [address, path].map(|part| name::shown_text(part, 200));
            let advice = format!(
                "{} A path in a sandbox begins with `/`, `~` or `.`: if {path} is one, write {address}:./{path}.",
                fault.advice
            );
            fault.advice(advice.trim_start()).into()
        }
        failure => failure,
    }
}

/// The addresses of all sandboxes that a command names.
pub(super) fn named_sandboxes(command: &SandboxCommand) -> Result<Vec<String>, CommandFailure> {
    Ok(match command {
        SandboxCommand::Probe { sandbox }
        | SandboxCommand::Stat { sandbox, .. }
        | SandboxCommand::Ls { sandbox, .. }
        | SandboxCommand::Rm { sandbox, .. } => vec![sandbox.clone()],
        SandboxCommand::Get(get) => vec![get.sandbox.clone()],
        // A word that is not an address is the id of a session.
        SandboxCommand::Exec(exec) if reach::check_address(&exec.sandbox).is_err() => Vec::new(),
        SandboxCommand::Exec(exec) => vec![exec.sandbox.clone()],
        SandboxCommand::Put(put) => vec![put.parse()?.sandbox.to_owned()],
        SandboxCommand::Cp(cp) => {
            let (from, to) = cp.parse()?;
            // All sources are in the same place, so the first names it.
            let first = from.into_iter().next();
            first
                .into_iter()
                .chain([to])
                .filter_map(|operand| operand.sandbox)
                .collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use dray_types::{Fault, FaultCode};

    use super::*;
    use crate::cli::{Cli, DrayCommand};

    fn put(operands: &[&str]) -> SandboxPut {
        let arguments = ["dray", "sandbox", "put"].iter().chain(operands);
        match Cli::try_parse_from(arguments).unwrap().command {
            DrayCommand::Sandbox(SandboxCommand::Put(put)) => put,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_precede_the_sandbox_and_one_directory_follows_it() {
        for (operands, files, sandbox, directory) in [
            (&["a", "docker:web"][..], 1, "docker:web", "."),
            (
                &["a", "b c", "docker:web", "/data"],
                2,
                "docker:web",
                "/data",
            ),
            (
                &["a", "local:/srv/box", "data"],
                1,
                "local:/srv/box",
                "data",
            ),
            (&["docker:a", "docker:web"], 1, "docker:web", "."),
            (&["a", "./docker:b", "docker:web"], 2, "docker:web", "."),
            (
                &["a", "docker:b", "docker:web"],
                1,
                "docker:b",
                "docker:web",
            ),
            (
                &["--", "-a", "ssh:me@host:22", "-b"],
                1,
                "ssh:me@host:22",
                "-b",
            ),
        ] {
            let put = put(operands);
            let parsed = put.parse().unwrap();
            let found = (parsed.files.len(), parsed.sandbox, parsed.directory);
            assert_eq!(
                found,
                (files, sandbox, Path::new(directory)),
                "{operands:?}"
            );
        }
    }

    #[test]
    fn an_invalid_put_is_refused_with_a_remedy() {
        for (operands, expected) in [
            (&["a", "web"][..], "write KIND:NAME"),
            (&["a", "docker:web", "x", "y"], "one directory"),
            (&["-", "docker:web"], "--name"),
            (&["a", "-", "docker:web"], "combined"),
            (&["a", "b", "docker:web", "--name", "c"], "one file"),
            (&["-", "docker:web", "--name", "c", "--resume"], "--resume"),
        ] {
            let message = put(operands).parse().unwrap_err().to_string();
            assert!(message.contains(expected), "{operands:?}: {message}");
        }
    }

    #[test]
    fn a_name_whose_end_may_be_a_path_is_reported_with_the_form_of_paths() {
        let advice = |sandbox: &str| {
            let gone = Fault::new(FaultCode::NotFound, "It is gone.").advice("Check it.");
            match with_path_advice(gone.into(), sandbox) {
                CommandFailure::Fault(fault) => fault.advice,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            advice("docker:web:data.csv"),
            "Check it. A path in a sandbox begins with `/`, `~` or `.`: if data.csv is one, write docker:web:./data.csv."
        );
        for sandbox in ["docker:web", "ssh:me@host:2222"] {
            assert_eq!(advice(sandbox), "Check it.", "{sandbox}");
        }
    }

    #[test]
    fn a_path_begins_after_the_first_colon_that_a_path_can_follow() {
        for (typed, sandbox, path) in [
            ("docker:web:/a b:/c", Some("docker:web"), "/a b:/c"),
            ("docker:web:~/x", Some("docker:web"), "~/x"),
            ("docker:web:./x", Some("docker:web"), "./x"),
            ("docker:web", Some("docker:web"), "."),
            ("docker:web:", Some("docker:web"), "."),
            ("ssh:me@host:2222:/a", Some("ssh:me@host:2222"), "/a"),
            ("ssh:me@[::1]:22:/a", Some("ssh:me@[::1]:22"), "/a"),
            (
                "local:/srv/box:/srv/box/a",
                Some("local:/srv/box"),
                "/srv/box/a",
            ),
            ("local:./box:./a", Some("local:./box"), "./a"),
            ("./docker:web", None, "./docker:web"),
            ("/a:/b", None, "/a:/b"),
            ("-x", None, "-x"),
            ("Report: final.txt", None, "Report: final.txt"),
        ] {
            let operand = CopyOperand::parse(Path::new(typed));
            assert_eq!(operand.sandbox.as_deref(), sandbox, "{typed}");
            assert_eq!(operand.path, path.as_bytes(), "{typed}");
        }
    }
}
