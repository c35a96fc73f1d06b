//! Containers that sleep, and volumes.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::{BUSYBOX_IMAGE, SHELL_LESS_IMAGE, api};

/// Options of a new container.
#[derive(Clone, Debug, Default)]
pub struct ContainerOptions {
    /// The container's name; a random one when empty.
    pub name: String,
    /// User, as for `docker run --user`; root when empty.
    pub user: String,
    /// Working directory; `/workspace` when empty.
    pub working_directory: String,
    /// Environment of its processes, each entry `NAME=value`.
    pub environment: Vec<String>,
    /// Mount points of memory file systems with their options, which may be empty.
    pub tmpfs: Vec<(String, String)>,
    /// Volumes or host directories, as for `docker run --volume`: `source:/target[:ro]`.
    pub volumes: Vec<String>,
    /// Network that it is attached to, of an engine with networks; none when empty.
    pub network: String,
    /// Whether its root is read-only.
    pub read_only: bool,
    /// Whether its image contains only the running program, without a shell or tools.
    pub shell_less: bool,
    /// Whether the container is only created and not started.
    pub created_only: bool,
}

/// A container, without network unless its options name one. Removed when dropped.
#[derive(Debug)]
pub struct Container {
    socket: PathBuf,
    id: String,
    name: String,
    pid: OnceLock<i64>,
}

/// How a command in a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 137 for a command that was killed.
    pub status: i64,
    /// Standard output of the command.
    pub stdout: Vec<u8>,
    /// Standard error of the command.
    pub stderr: Vec<u8>,
}

impl Container {
    pub(super) fn run(socket: PathBuf, options: ContainerOptions) -> Self {
        let (image, program) = if options.shell_less {
            (SHELL_LESS_IMAGE, "/app/sleep")
        } else {
            (BUSYBOX_IMAGE, "/bin/sleep")
        };
        let name = if options.name.is_empty() {
            unique_name("box")
        } else {
            options.name
        };
        let directory = if options.working_directory.is_empty() {
            "/workspace".to_owned()
        } else {
            options.working_directory
        };
        let network = match options.network.as_str() {
            "" => "none",
            network => network,
        };
        let tmpfs: serde_json::Map<String, Value> = options
            .tmpfs
            .into_iter()
            .map(|(path, options)| (path, Value::String(options)))
            .collect();
        let created = api::expect_success(
            &socket,
            "POST",
            &format!("/containers/create?name={name}"),
            &json!({
                "Image": image,
                "Cmd": [program, "1000000"],
                "User": options.user,
                "WorkingDir": directory,
                "Env": options.environment,
                // Process 1 ignores signals without a handler, and `sleep` has none: a stop would take its full
                // timeout.
                "StopSignal": "SIGKILL",
                "NetworkDisabled": network == "none",
                "HostConfig": {
                    "NetworkMode": network,
                    "ReadonlyRootfs": options.read_only,
                    "Tmpfs": tmpfs,
                    "Binds": options.volumes,
                },
            }),
        );
        let container = Self {
            id: created.text("Id"),
            socket,
            name,
            pid: OnceLock::new(),
        };
        if !options.created_only {
            container.start();
            container.pid();
        }
        container
    }

    /// Id of 64 hexadecimal digits, which is never reused.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Name from the options or a random one, unique on the engine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts it; also again after [`Container::stop`], with the same id and files.
    pub fn start(&self) {
        self.post("start");
    }

    /// Stops it; its files stay.
    pub fn stop(&self) {
        self.post("stop?t=0");
    }

    /// Freezes its processes; the engine then refuses commands in it.
    pub fn pause(&self) {
        self.post("pause");
    }

    /// Resumes the processes.
    pub fn unpause(&self) {
        self.post("unpause");
    }

    /// Attaches it to a further network of its engine.
    pub fn attach(&self, network: &str) {
        let target = format!("/networks/{network}/connect");
        let body = json!({"Container": self.id});
        api::expect_success(&self.socket, "POST", &target, &body);
    }

    /// Renames the container.
    pub fn rename(&mut self, name: &str) {
        self.post(&format!("rename?name={name}"));
        name.clone_into(&mut self.name);
    }

    /// Removes it, running or not.
    pub fn remove(&self) {
        let target = format!("/containers/{}?force=1&v=1", self.id);
        api::expect_success(&self.socket, "DELETE", &target, &Value::Null);
    }

    /// Runs a shell script as root and returns its output.
    ///
    /// # Panics
    /// The command failed.
    pub fn sh(&self, script: &str) -> Vec<u8> {
        let output = self.exec("0", &["sh", "-ec", script]);
        assert_eq!(
            output.status,
            0,
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }

    /// Runs a shell script in a directory of the container without the engine, which may be blocked by the container.
    /// The container must be running.
    pub fn inside(&self, user: u32, directory: &str, script: &str) -> Output {
        let ids = [format!("--setuid={user}"), format!("--setgid={user}")];
        let output = Command::new("nsenter")
            .arg(format!("--target={}", self.pid()))
            .args(["--mount", "--pid", "--root"])
            .args(ids)
            .args(["/bin/sh", "-c", "cd \"$1\" && eval \"$2\"", "sh"])
            .args([directory, script])
            .env_clear()
            .env("PATH", "/bin:/usr/bin:/sbin:/usr/sbin")
            .output();
        let output = output.expect("nsenter of util-linux runs");
        Output {
            status: output.status.code().unwrap_or(-1).into(),
            stdout: output.stdout,
            stderr: output.stderr,
        }
    }

    /// The process on this host that is process 1 of the container; requested once, before an operation blocks the
    /// container.
    pub fn pid(&self) -> i64 {
        *self.pid.get_or_init(|| {
            let target = format!("/containers/{}/json", self.id);
            let details = api::expect_success(&self.socket, "GET", &target, &Value::Null).json();
            let pid = details.get("State").and_then(|state| state.get("Pid"));
            pid.and_then(Value::as_i64).expect("it runs")
        })
    }

    /// Runs a command as this user.
    pub fn exec(&self, user: &str, command: &[&str]) -> Output {
        let created = api::expect_success(
            &self.socket,
            "POST",
            &format!("/containers/{}/exec", self.id),
            &json!({"User": user, "AttachStdout": true, "AttachStderr": true, "Cmd": command}),
        );
        let id = created.text("Id");
        let target = format!("/exec/{id}/start");
        let output = api::expect_success(&self.socket, "POST", &target, &json!({"Tty": false}));
        let (stdout, stderr) = split_frames(&output.body);
        let target = format!("/exec/{id}/json");
        // The details are requested after the end of the output, because the status is unknown earlier.
        let details = api::expect_success(&self.socket, "GET", &target, &Value::Null).json();
        let status = details.get("ExitCode").and_then(Value::as_i64);
        Output {
            status: status.expect("it has ended when its output has"),
            stdout,
            stderr,
        }
    }

    fn post(&self, description: &str) {
        let target = format!("/containers/{}/{description}", self.id);
        api::expect_success(&self.socket, "POST", &target, &Value::Null);
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let target = format!("/containers/{}?force=1&v=1", self.id);
        // Errors are ignored: the test may have removed it, or killed the engine.
        drop(api::call_engine(&self.socket, "DELETE", &target, "", &[]));
    }
}

/// Splits the stream of the engine into standard output and standard error.
fn split_frames(mut bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    // Without a terminal, a frame has the stream, three zero bytes and the length (sandbox-transfer 4.5).
    while let Some(([stream, _, _, _, length @ ..], rest)) = bytes.split_first_chunk::<8>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).expect("it fits");
        let (data, rest) = rest.split_at_checked(length).expect("a whole frame");
        if *stream == 2 {
            stderr.extend_from_slice(data);
        } else {
            stdout.extend_from_slice(data);
        }
        bytes = rest;
    }
    (stdout, stderr)
}

/// A volume in memory. Removed when dropped; drop the containers that use it first.
#[derive(Debug)]
pub struct Volume {
    socket: PathBuf,
    name: String,
}

impl Volume {
    pub(super) fn create(socket: PathBuf, bytes: u64) -> Self {
        let name = unique_name("volume");
        let options =
            json!({"type": "tmpfs", "device": "tmpfs", "o": format!("size={bytes},mode=1777")});
        api::expect_success(
            &socket,
            "POST",
            "/volumes/create",
            &json!({"Name": name, "Driver": "local", "DriverOpts": options}),
        );
        Self { socket, name }
    }

    /// Name for the `source` of a mount, unique on this machine.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Errors are ignored: a container may still use it, or the engine has been killed.
        let target = format!("/volumes/{}?force=1", self.name);
        drop(api::call_engine(&self.socket, "DELETE", &target, "", &[]));
    }
}

/// A name that no other process on this machine uses.
fn unique_name(description: &str) -> String {
    let directory = tempfile::Builder::new().prefix(description).tempdir();
    let directory = directory.expect("a directory with a unique name");
    let name = directory
        .path()
        .file_name()
        .expect("a directory has a name");
    format!("{}-{}", name.to_string_lossy(), std::process::id())
}
