//! A real Docker Engine for tests, private to them: its own data, socket and containerd, no network, and only images
//! that are made here.
//!
//! [`DockerEngine::shared`] is one engine for every test process of the machine: the first starts it, and it ends
//! automatically a few seconds after the last process has ended in any way. [`DockerEngine::start`] starts one for a
//! single test, which may kill it. [`DockerEngine::start_with_network`] has bridges and published ports, in its own
//! network namespaces. All need root and the Debian packages `docker.io` and `busybox-static`; the last one needs
//! `iproute2` also.
//!
//! [`DockerEngine::shared_podman`] is the service of Podman with the same API. It needs the package `podman`.

#![expect(
    clippy::expect_used,
    reason = "only tests call it, and it fails the test"
)]

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

mod api;
mod container;
mod image;
mod network;

pub use container::{Container, ContainerOptions, Output, Volume};
pub use image::{BUSYBOX_IMAGE, SHELL_LESS_IMAGE};
pub use network::{Network, OUTSIDE_ADDRESS, command_in_network_of};

/// How long an engine may take to be ready or to end.
const ENGINE_TIMEOUT: Duration = Duration::from_mins(1);
/// Pause between two checks of the engine.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Seconds without a test process after which the shared engine ends.
const IDLE_GRACE_SECONDS: &str = "10";
/// Version of the images in a shared engine. Raise it when they change.
const ENGINE_GENERATION: u32 = 2;

/// The program that serves the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineProgram {
    Dockerd,
    Podman,
}

impl EngineProgram {
    /// The program's name in the supervisor's arguments and in directories.
    fn as_str(self) -> &'static str {
        match self {
            Self::Dockerd => "dockerd",
            Self::Podman => "podman",
        }
    }

    /// Whether the machine has it.
    fn is_installed(self) -> bool {
        ["/usr/sbin", "/usr/bin"]
            .iter()
            .any(|directory| Path::new(directory).join(self.as_str()).exists())
    }

    /// The Debian package that contains it.
    fn package(self) -> &'static str {
        match self {
            Self::Dockerd => "docker.io",
            Self::Podman => "podman",
        }
    }

    /// The configuration file, and its content.
    fn configuration(self) -> (&'static str, &'static str) {
        match self {
            Self::Dockerd => ("daemon.json", "{}"),
            Self::Podman => ("containers.conf", PODMAN_CONFIGURATION),
        }
    }
}

/// Podman raises limits of processes by default, which a machine without this permission refuses. Its events are
/// written to a file, because a journal may not exist.
const PODMAN_CONFIGURATION: &str = r#"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]

[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"#;

/// Runs the engine as long as a process has a lock on `users`, then ends it and removes its data. Arguments: directory,
/// file of the start lock, file of the users' lock, seconds of grace, program; for an engine with a network also the
/// name of its namespace and the address outside.
const SUPERVISOR_SCRIPT: &str = r#"
dir=$1 start=$2 users=$3 grace=$4 program=$5 namespace=$6 outside=$7
if [ "$program" = podman ]; then
  # `crun`, its default, refuses the mixed control groups of some machines; `runc` comes with Docker.
  set -- podman --root "$dir/data" --runroot "$dir/run" --storage-driver vfs --runtime /usr/sbin/runc
  export CONTAINERS_CONF="$dir/containers.conf"
  "$@" system service --time 0 "unix://$dir/sock" >"$dir/log" 2>&1 </dev/null &
else
  if [ -n "$namespace" ]; then
    create_namespaces "$namespace" "$outside" >"$dir/log" 2>&1 || { echo "failed to start daemon" >>"$dir/log"; exit 1; }
    set -- nsenter --net="/run/netns/$namespace" dockerd
  else
    set -- dockerd --bridge none --iptables=false --ip6tables=false --ip-masq=false --ip-forward=false
  fi
  "$@" --config-file "$dir/daemon.json" --data-root "$dir/data" --exec-root "$dir/exec" \
    --pidfile "$dir/pid" -H "unix://$dir/sock" --shutdown-timeout 5 \
    --exec-opt native.cgroupdriver=cgroupfs >"$dir/log" 2>&1 </dev/null &
fi
engine=$!
exec 8>>"$start" 9>>"$users"
while :; do
  flock -x 9
  flock -u 9
  sleep "$grace"
  flock -x 8
  flock -x -n 9 && break
  flock -u 8
done
[ "$program" != podman ] || "$@" rm --all --force --time 0 >>"$dir/log" 2>&1
contained=$(cat "$dir/exec/containerd/containerd.pid" 2>/dev/null)
kill "$engine" 2>/dev/null
attempts=0
while kill -0 "$engine" 2>/dev/null; do
  attempts=$((attempts + 1))
  [ "$attempts" -lt 300 ] || kill -9 "$engine"
  sleep 0.05
done
wait "$engine" 2>/dev/null
# Kill processes that remain if the engine was killed.
for process in /proc/[0-9]*; do
  case "$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)" in
    *"/containerd-shim-runc-v2 "*" $dir/exec/containerd/containerd.sock "*) kill -9 "${process#/proc/}" ;;
  esac
done
kill -9 $contained $(cat "$dir"/exec/containerd/daemon/io.containerd.runtime.v2.task/moby/*/init.pid) 2>/dev/null
cut -d' ' -f2 /proc/self/mounts | sort -r | while read -r mounted; do
  case $mounted in "$dir"/*) umount -l "$mounted" ;; esac
done
[ -z "$namespace" ] || { ip netns delete "$namespace"; ip netns delete "$namespace-outside"; }
rm -rf "$dir"
"#;

/// An engine that responds on its socket.
#[derive(Debug)]
pub struct DockerEngine {
    directory: PathBuf,
    /// Other processes must not end the engine while it is locked.
    users: Option<File>,
    /// The supervisor, for an engine that is not shared.
    own: Option<OwnEngine>,
    /// The network, for an engine that was started with one.
    network: Option<Network>,
}

#[derive(Debug)]
struct OwnEngine {
    supervisor: Child,
    base: tempfile::TempDir,
}

impl DockerEngine {
    /// The engine of all test processes, started by the first. Containers and volumes of other tests live in it too.
    pub fn shared() -> Self {
        Self::shared_of(EngineProgram::Dockerd)
    }

    /// Like [`Self::shared`] for the service of Podman.
    pub fn shared_podman() -> Self {
        Self::shared_of(EngineProgram::Podman)
    }

    fn shared_of(program: EngineProgram) -> Self {
        let user = rustix::process::getuid().as_raw();
        let name = program.as_str();
        let base = std::env::temp_dir().join(format!("dray-{name}-{user}-{ENGINE_GENERATION}"));
        std::fs::DirBuilder::new()
            .recursive(true)
            // A user who can open the socket can act as root on this machine.
            .mode(0o700)
            .create(&base)
            .expect("a directory for the engine");
        let users = lock_file(&base, "users");
        // The lock is taken before a running engine is checked, so that it cannot end afterwards.
        users.lock_shared().expect("a lock on the engine");
        let start = lock_file(&base, "start");
        // One process starts the engine; the others wait here and find it. Released when this function returns.
        start.lock().expect("a lock on the start of the engine");
        let current = base.join("current");
        if let Ok(name) = std::fs::read_to_string(&current) {
            let directory = base.join(name);
            if engine_responds(&directory) {
                return Self {
                    directory,
                    users: Some(users),
                    own: None,
                    network: None,
                };
            }
        }
        let name = format!("{}", std::process::id());
        let directory = base.join(&name);
        // The supervisor is not waited for: the engine ends with its last user, which need not be this process.
        let mut supervisor = spawn_supervisor(program, &base, &directory, IDLE_GRACE_SECONDS, None);
        let engine = Self {
            directory,
            users: Some(users),
            own: None,
            network: None,
        };
        engine.wait_until_ready(&mut supervisor);
        engine.import();
        // The name is written last, so that others find the engine only with its images in it.
        std::fs::write(&current, name).expect("the name of the engine");
        engine
    }

    /// An engine for one test. Ends when it is dropped.
    pub fn start() -> Self {
        Self::start_in(None)
    }

    /// An engine for one test whose containers have networks and published ports, separate from those of this machine.
    /// Ends when it is dropped.
    pub fn start_with_network() -> Self {
        Self::start_in(Some(Network::unique()))
    }

    fn start_in(network: Option<Network>) -> Self {
        let base = tempfile::tempdir().expect("a directory for the engine");
        let users = lock_file(base.path(), "users");
        users.lock_shared().expect("a lock on the engine");
        let directory = base.path().join("engine");
        let program = EngineProgram::Dockerd;
        let mut supervisor =
            spawn_supervisor(program, base.path(), &directory, "0", network.as_ref());
        let mut engine = Self {
            directory,
            users: Some(users),
            own: None,
            network,
        };
        engine.wait_until_ready(&mut supervisor);
        engine.own = Some(OwnEngine { supervisor, base });
        engine.import();
        engine
    }

    /// Unix socket of its API, for `DOCKER_HOST` or a client's configuration.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("sock")
    }

    /// The content of its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// The network of an engine that was started with one.
    pub fn network(&self) -> &Network {
        let network = self.network.as_ref();
        network.expect("an engine that was started with a network")
    }

    /// The JSON response of its API to `GET target`, for instance `/containers/json?all=1`.
    pub fn get(&self, target: &str) -> serde_json::Value {
        api::expect_success(&self.socket(), "GET", target, &serde_json::Value::Null).json()
    }

    /// Kills the engine (SIGKILL), so that every connection breaks. Not allowed for the shared engine.
    pub fn kill9(&self) {
        let own = self.own.as_ref();
        own.expect("a separate engine, because other tests use the shared one");
        let pid = std::fs::read_to_string(self.directory.join("pid")).expect("the engine's pid");
        let pid = pid.trim().parse().ok();
        let pid = pid.and_then(rustix::process::Pid::from_raw);
        let pid = pid.expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
        let until = Instant::now() + ENGINE_TIMEOUT;
        while engine_responds(&self.directory) {
            assert!(Instant::now() < until, "the engine does not end");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Runs a container of [`BUSYBOX_IMAGE`] that sleeps.
    pub fn container(&self, options: ContainerOptions) -> Container {
        Container::run(self.socket(), options)
    }

    /// Creates a network without access to the outside (`docker network create --internal`), of an engine with
    /// networks. `machine` is the address of the engine's machine in `subnet`. `name` has at most 15 characters,
    /// because the interface of that address has the same name.
    pub fn internal_network(&self, name: &str, subnet: &str, machine: Ipv4Addr) {
        let address = json!({"Subnet": subnet, "Gateway": machine.to_string()});
        let body = json!({
            "Name": name,
            "Internal": true,
            "Options": {"com.docker.network.bridge.name": name},
            "IPAM": {"Config": [address]},
        });
        api::expect_success(&self.socket(), "POST", "/networks/create", &body);
    }

    /// A volume in memory with at most this many bytes.
    pub fn small_volume(&self, bytes: u64) -> Volume {
        Volume::create(self.socket(), bytes)
    }

    fn wait_until_ready(&self, supervisor: &mut Child) {
        let until = Instant::now() + ENGINE_TIMEOUT;
        while !engine_responds(&self.directory) {
            let exited = supervisor.try_wait().expect("the engine's exit status");
            let failed = self.log().contains("failed to start daemon");
            assert!(
                exited.is_none() && !failed && Instant::now() < until,
                "the engine is not ready (exit: {exited:?}); its log: {}",
                self.log()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn import(&self) {
        image::import_image(&self.socket(), BUSYBOX_IMAGE, &image::busybox_tar());
        image::import_image(&self.socket(), SHELL_LESS_IMAGE, &image::shell_less());
    }
}

impl Drop for DockerEngine {
    fn drop(&mut self) {
        // The lock is released first: the supervisor waits for it, and the next line waits for the supervisor.
        drop(self.users.take());
        if let Some(mut own) = self.own.take() {
            drop(own.supervisor.wait());
            drop(own.base);
        }
    }
}

fn engine_responds(directory: &Path) -> bool {
    api::call_engine(&directory.join("sock"), "GET", "/_ping", "", &[])
        .is_ok_and(|response| response.status == 200)
}

fn lock_file(base: &Path, name: &str) -> File {
    File::options()
        .create(true)
        .append(true)
        .open(base.join(name))
        .expect("a lock file of the engine")
}

fn spawn_supervisor(
    program: EngineProgram,
    base: &Path,
    directory: &Path,
    grace: &str,
    network: Option<&Network>,
) -> Child {
    assert!(
        rustix::process::getuid().is_root(),
        "a Docker Engine for tests needs root"
    );
    assert!(
        program.is_installed(),
        "install Debian package `{}`",
        program.package()
    );
    std::fs::create_dir_all(directory).expect("a directory for the engine");
    let (file, text) = program.configuration();
    std::fs::write(directory.join(file), text).expect("the engine's configuration file");
    let script = format!("{}{SUPERVISOR_SCRIPT}", network::CREATE_NAMESPACES);
    Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(directory)
        .arg(base.join("start"))
        .arg(base.join("users"))
        .arg(grace)
        .arg(program.as_str())
        .arg(network.map_or("", Network::namespace))
        .arg(OUTSIDE_ADDRESS.to_string())
        // The engine looks up runc and containerd in `PATH`, and that of a test user often lacks the `sbin`
        // directories.
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env_remove("DOCKER_HOST")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // An interrupt at the terminal must not end the supervisor before it has cleaned up.
        .process_group(0)
        .spawn()
        .expect("sh starts")
}

#[cfg(test)]
mod tests;
