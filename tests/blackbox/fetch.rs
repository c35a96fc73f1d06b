//! One run of `dray fetch`: its options and its output.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::namespace::NetworkNamespace;

/// Longest duration of one run. The binary's own limits end a run far sooner.
const RUN_TIMEOUT: Duration = Duration::from_secs(40);

/// One fetch to be made.
#[derive(Clone, Debug)]
pub(crate) struct FetchCommand {
    /// The URL as the command line gets it.
    pub(crate) url: String,
    environment: Vec<(String, Option<String>)>,
    policy: Option<Value>,
    arguments: Vec<String>,
    reference: Option<&'static str>,
    has_changing_answer: bool,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub(crate) struct FetchOutcome {
    /// The exit status of the command.
    pub(crate) status: ExitStatus,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
    /// Content of the file named by `-o`, when there is one.
    pub(crate) file: Option<Vec<u8>>,
}

impl FetchCommand {
    /// A fetch of this URL in the environment that the network sets.
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            environment: Vec::new(),
            policy: None,
            arguments: Vec::new(),
            reference: None,
            has_changing_answer: false,
        }
    }

    /// Sets a variable, replacing another value.
    pub(crate) fn set(mut self, variable: &str, value: impl Into<String>) -> Self {
        self.environment
            .push((variable.to_owned(), Some(value.into())));
        self
    }

    /// Removes a variable that the network sets.
    pub(crate) fn unset(mut self, variable: &str) -> Self {
        self.environment.push((variable.to_owned(), None));
        self
    }

    /// Sets the policy of an app.
    pub(crate) fn policy(mut self, policy: Value) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets a size limit in bytes.
    pub(crate) fn limit(mut self, bytes: u64) -> Self {
        self.arguments
            .extend(["--size-limit".to_owned(), bytes.to_string()]);
        self
    }

    /// Sets the total timeout in seconds.
    pub(crate) fn timeout(mut self, seconds: u64) -> Self {
        self.arguments
            .extend(["--timeout".to_owned(), seconds.to_string()]);
        self
    }

    /// Fetches by a reference of this kind (`text` or `base64`) in the arguments of a tool call: `dray resolve`.
    pub(crate) fn referred(mut self, kind: &'static str) -> Self {
        self.reference = Some(kind);
        self
    }

    /// Says that the name has another answer when the fetch is repeated, so that its verdict may be another one.
    pub(crate) fn with_changing_answer(mut self) -> Self {
        self.has_changing_answer = true;
        self
    }

    /// Whether a repetition of the fetch may be judged otherwise.
    pub(crate) const fn has_changing_answer(&self) -> bool {
        self.has_changing_answer
    }

    /// Whether the URL is in the arguments of a tool call, for which there is no explanation.
    pub(crate) const fn is_reference(&self) -> bool {
        self.reference.is_some()
    }

    /// Has the binary explain the judgement of the URL with its name looked up, in the environment of the fetch.
    pub(crate) fn explain(
        &self,
        binary: &Path,
        namespace: &NetworkNamespace,
        directory: &Path,
        environment: &[(&str, &str)],
    ) -> FetchOutcome {
        let mut command = namespace.command(binary.to_str().unwrap());
        command.args(["policy", "explain", "--json", "--resolve"]);
        command.arg("--state").arg(directory.join("state"));
        self.add_policy(&mut command, directory);
        command.arg("--").arg(&self.url);
        self.execute(&mut command, directory, environment)
    }

    /// Runs the binary in the namespace. `directory` is empty and used only for this run.
    pub(crate) fn run(
        &self,
        binary: &Path,
        namespace: &NetworkNamespace,
        directory: &Path,
        environment: &[(&str, &str)],
    ) -> FetchOutcome {
        let content = directory.join("content");
        let mut command = namespace.command(binary.to_str().unwrap());
        command.arg(if self.reference.is_some() {
            "resolve"
        } else {
            "fetch"
        });
        command
            .arg("--json")
            .arg("--state")
            .arg(directory.join("state"));
        self.add_policy(&mut command, directory);
        command.args(&self.arguments);
        match self.reference {
            Some(kind) => {
                let reference = format!("file:{kind}::{}", self.url);
                command
                    .arg("--arguments")
                    .arg(json!({ "file": reference }).to_string());
            }
            // The URL follows `--`, so that no URL is read as an option.
            None => {
                command.arg("-o").arg(&content).arg("--").arg(&self.url);
            }
        }
        self.execute(&mut command, directory, environment)
    }

    /// Adds the policy of the app.
    fn add_policy(&self, command: &mut Command, directory: &Path) {
        if let Some(policy) = &self.policy {
            let file = directory.join("policy.json");
            fs::write(&file, policy.to_string()).unwrap();
            command.arg("--app-policy").arg(file);
        }
    }

    /// Runs a command in the environment of the fetch, and waits for its end.
    fn execute(
        &self,
        command: &mut Command,
        directory: &Path,
        environment: &[(&str, &str)],
    ) -> FetchOutcome {
        let (stdout, stderr) = (directory.join("stdout"), directory.join("stderr"));
        command
            .env("HOME", directory)
            .env("TMPDIR", directory)
            .envs(environment.iter().copied());
        for (variable, value) in &self.environment {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        command
            .current_dir(directory)
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap());
        let status = wait(&mut command.spawn().unwrap());
        let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        FetchOutcome {
            status,
            stdout: text(stdout),
            stderr: text(stderr),
            file: fs::read(directory.join("content")).ok(),
        }
    }
}

/// Waits until the program ends, and kills it after the limit.
fn wait(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + RUN_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            return child.wait().unwrap();
        }
        thread::park_timeout(Duration::from_millis(5));
    }
}
