//! One program that a command runs. Its command line is shown before it starts, and its failure is one sentence.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// A program with its arguments, before it runs.
pub(crate) struct ProgramStep {
    command: Command,
}

/// `cargo`, in the workspace.
pub(crate) fn cargo_step(root: &Path) -> ProgramStep {
    // The cargo that built this program, so that the toolchain is the same.
    program_step(env!("CARGO")).inside(root)
}

/// Any program by name or path.
pub(crate) fn program_step(name: impl AsRef<OsStr>) -> ProgramStep {
    ProgramStep {
        command: Command::new(name),
    }
}

impl ProgramStep {
    /// Adds one argument, passed to the program without a shell.
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments, each passed to the program without a shell.
    pub(crate) fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets an environment variable only for the program.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets environment variables only for the program.
    pub(crate) fn envs(mut self, variables: &[(String, String)]) -> Self {
        self.command
            .envs(variables.iter().map(|(name, value)| (name, value)));
        self
    }

    /// Removes all variables of this process from the environment of the program, and sets these.
    pub(crate) fn only_envs(
        mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        self.command.env_clear().envs(variables);
        self
    }

    /// The directory to run in.
    pub(crate) fn inside(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Shows the command line, runs the program, and fails if the program fails.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        let line = self.line();
        eprintln!("$ {line}");
        let status = self
            .command
            .status()
            .with_context(|| format!("cannot start `{line}`"))?;
        if !status.success() {
            bail!("`{line}` failed ({status})");
        }
        Ok(())
    }

    /// Runs the program and returns its standard output without showing it.
    pub(crate) fn output(mut self) -> anyhow::Result<String> {
        let line = self.line();
        let output = self
            .command
            // Errors of the program are shown to the user; only its output is returned.
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start `{line}`"))?;
        if !output.status.success() {
            bail!("`{line}` failed ({})", output.status);
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Like [`Self::output`], without the warnings of the program.
    pub(crate) fn quiet_output(mut self) -> anyhow::Result<String> {
        let line = self.line();
        let output = self.command.output();
        let output = output.with_context(|| format!("cannot start `{line}`"))?;
        if !output.status.success() {
            bail!("`{line}` failed ({})", output.status);
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs the program with `input` on its standard input, and returns its standard output.
    pub(crate) fn output_for(mut self, input: Vec<u8>) -> anyhow::Result<Vec<u8>> {
        let line = self.line();
        let mut process = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{line}`"))?;
        let mut stdin = process.stdin.take().context("the program has no input")?;
        // The input is written on a separate thread, because a program that writes before it has read all input would
        // otherwise block.
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = process.wait_with_output()?;
        let written = writer.join();
        if !output.status.success() {
            bail!("`{line}` failed ({})", output.status);
        }
        if !matches!(written, Ok(Ok(()))) {
            bail!("`{line}` did not read its input");
        }
        Ok(output.stdout)
    }

    /// Whether the program exists and succeeds. Its output is not shown.
    pub(crate) fn succeeds(mut self) -> bool {
        self.command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }

    /// The command as a user would type it; `cargo` by its name.
    fn line(&self) -> String {
        // The path of a toolchain's cargo is long and does not help in a log.
        let program = Path::new(self.command.get_program());
        let mut line = program
            .file_name()
            .unwrap_or(program.as_os_str())
            .to_string_lossy()
            .into_owned();
        for argument in self.command.get_args() {
            // Writing to a string cannot fail.
            let _ = write!(line, " {}", argument.to_string_lossy());
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_line_and_the_status() {
        let error = program_step("sh").args(["-c", "exit 3"]).run().unwrap_err();
        assert_eq!(error.to_string(), "`sh -c exit 3` failed (exit status: 3)");
    }

    #[test]
    fn a_program_gets_more_input_than_a_pipe_holds() {
        let input = vec![b'a'; 1 << 20];
        let output = program_step("cat").output_for(input.clone()).unwrap();
        assert_eq!(output, input);
        let failed = program_step("sh").args(["-c", "cat >/dev/null; exit 3"]);
        let error = failed.output_for(input).unwrap_err().to_string();
        assert!(error.ends_with("failed (exit status: 3)"), "{error}");
    }

    #[test]
    fn a_missing_program_does_not_succeed() {
        assert!(!program_step("no-such-program-here").succeeds());
        assert!(program_step("true").succeeds());
    }

    #[test]
    fn variables_are_set_only_for_the_program() {
        let output = program_step("sh")
            .args(["-c", "printf %s \"$DRAY_STEP\""])
            .env("DRAY_STEP", "here")
            .output()
            .unwrap();
        assert_eq!(output, "here");
    }

    #[test]
    fn a_program_with_chosen_variables_gets_no_others() {
        let variables = [("A".into(), "1".into()), ("B".into(), "2".into())];
        // Cargo and nextest set variables for this test, which must not arrive.
        assert!(std::env::vars_os().count() > 2);
        let output = program_step("/usr/bin/env").only_envs(variables).output();
        let mut lines: Vec<_> = output.as_ref().unwrap().lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["A=1", "B=2"]);
    }
}
