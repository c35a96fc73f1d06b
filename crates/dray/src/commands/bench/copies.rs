//! Copies of files into and out of sandboxes, by this program and by the program that does it without Drayage.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dray_sandbox_transfer::{Config, ScpTarget};

use super::pair::ProgramCall;

/// Seconds for which the shared connections of both programs stay open without use: as long as a run may take. They
/// are ended after the last run.
const SHARED_PERSIST_SECONDS: u32 = 600;

/// A sandbox, and the rows that are measured for each copy.
pub(super) struct MeasuredSandbox {
    pub(super) address: String,
    /// Options for every command of this program with the sandbox.
    pub(super) options: Vec<OsString>,
    pub(super) variants: Vec<Rc<CopyVariant>>,
}

/// One of the ways to reach a sandbox, with the program that is compared.
pub(super) struct CopyVariant {
    /// The end of the names of its rows.
    pub(super) suffix: &'static str,
    pub(super) peer: Option<CopyPeer>,
    /// Where each copy of this program makes a connection of its own; `None` where copies share one.
    fresh_connections: Option<FreshConnections>,
}

/// Control directories, one for each run, so that no run finds the connection of another one.
struct FreshConnections {
    /// Path of the directories without their numbers.
    prefix: PathBuf,
    next: Cell<u32>,
}

/// The program that does the task without Drayage.
#[derive(Clone, Debug)]
pub(super) struct CopyPeer {
    /// Its name as people call it.
    pub(super) name: &'static str,
    words: Vec<OsString>,
    /// Prefix of a path in the sandbox: its name and a colon.
    prefix: String,
}

impl MeasuredSandbox {
    /// The rows of a sandbox. `config` is `None` where services of a running system make the copies; then their
    /// connections stay as they are. Sockets are made in `directory`, under names with `number`.
    pub(super) fn new(
        address: &str,
        config: Option<&Config>,
        directory: &Path,
        number: usize,
    ) -> Self {
        let (kind, name) = address.split_once(':').unwrap_or((address, ""));
        let peer = match kind {
            "local" => Some(CopyPeer::plain("cp", &["cp"])),
            "docker" => Some(CopyPeer::docker(name, config)),
            "ssh" => return Self::ssh(address, name, config, directory, number),
            _ => None,
        };
        Self {
            address: address.to_owned(),
            options: Vec::new(),
            variants: vec![Rc::new(CopyVariant {
                suffix: "",
                peer,
                fresh_connections: None,
            })],
        }
    }

    /// A connection costs more than a small copy, so each program is measured with new connections and with a shared
    /// one.
    fn ssh(
        address: &str,
        name: &str,
        config: Option<&Config>,
        directory: &Path,
        number: usize,
    ) -> Self {
        let defaults = Config::default();
        let scp = ScpTarget::new(&config.unwrap_or(&defaults).ssh, name);
        let socket = directory.join(format!("scp{number}"));
        let peer = |is_shared: bool| {
            let scp = scp.as_ref()?;
            Some(CopyPeer::scp(scp, is_shared.then_some(socket.as_path())))
        };
        let shared = CopyVariant {
            suffix: ", shared connection",
            peer: peer(true),
            fresh_connections: None,
        };
        if config.is_none() {
            return Self {
                address: address.to_owned(),
                options: Vec::new(),
                variants: vec![Rc::new(shared)],
            };
        }
        let mut options = connection_settings(
            &directory.join(format!("shared{number}")),
            SHARED_PERSIST_SECONDS,
        );
        if let Some(scp) = &scp {
            // The known hosts are by default in the control directory, which is another one here.
            options.extend(setting("known_hosts", scp.known_hosts.as_os_str()));
        }
        let fresh = CopyVariant {
            suffix: ", new connection",
            peer: peer(false),
            fresh_connections: Some(FreshConnections {
                prefix: directory.join(format!("new{number}-")),
                next: Cell::new(0),
            }),
        };
        Self {
            address: address.to_owned(),
            options,
            variants: vec![Rc::new(fresh), Rc::new(shared)],
        }
    }
}

impl CopyVariant {
    /// Further options for one command of this program.
    fn call_options(&self) -> Vec<OsString> {
        let Some(fresh) = &self.fresh_connections else {
            return Vec::new();
        };
        let number = fresh.next.get();
        fresh.next.set(number + 1);
        let mut directory = fresh.prefix.clone().into_os_string();
        directory.push(number.to_string());
        // No later run uses the connection.
        connection_settings(Path::new(&directory), 1)
    }
}

/// The option `--set` for a setting of SSH sandboxes.
fn setting(field: &str, value: &OsStr) -> [OsString; 2] {
    let mut text = OsString::from(format!("sandbox-transfer.ssh.{field}="));
    text.push(value);
    ["--set".into(), text]
}

fn connection_settings(control_directory: &Path, persist_seconds: u32) -> Vec<OsString> {
    let persist = OsString::from(format!("{persist_seconds}s"));
    [
        setting("control_directory", control_directory.as_os_str()),
        setting("persist", &persist),
    ]
    .concat()
}

/// The sockets of connections that are left in the directory and directly below it.
pub(super) fn control_sockets(directory: &Path) -> Vec<PathBuf> {
    let entries = |directory: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        entries.flatten().map(|entry| entry.path()).collect()
    };
    let mut paths = entries(directory);
    let below: Vec<_> = paths.iter().flat_map(|path| entries(path)).collect();
    paths.extend(below);
    paths.retain(|path| {
        std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
    });
    paths
}

/// Ends the connection behind a socket.
pub(super) fn exit_call(program: &Path, socket: &Path) -> ProgramCall {
    let words = ["-F", "/dev/null", "-O", "exit", "-S"].map(OsString::from);
    let arguments = words
        .into_iter()
        .chain([socket.as_os_str().to_owned(), "host".into()]);
    ProgramCall {
        program: program.as_os_str().to_owned(),
        arguments: arguments.collect(),
    }
}

/// The copies of one file into a sandbox and out of it.
pub(super) struct CopyTask {
    /// Address of the sandbox.
    pub(super) sandbox: String,
    pub(super) variant: Rc<CopyVariant>,
    /// The directory in the sandbox, made by the first copy.
    pub(super) directory: String,
    /// Name of the copies without the program and the number of the run.
    pub(super) name: String,
    pub(super) source: PathBuf,
    pub(super) output: PathBuf,
}

impl CopyTask {
    /// Arguments of a put, under a new name for each run: a file that is in place already is not copied again.
    pub(super) fn our_put(&self, run: u32) -> Vec<OsString> {
        let mut words = self.variant.call_options();
        words.extend([OsString::from("sandbox"), "put".into()]);
        words.extend([OsString::from(&self.source), (&self.sandbox).into()]);
        words.extend([OsString::from(&self.directory), "--name".into()]);
        words.push(self.copy_name("ours", run).into());
        words
    }

    pub(super) fn their_put(&self, peer: &CopyPeer, run: u32) -> ProgramCall {
        let name = self.copy_name("peer", run);
        let target = format!("{}{}/{name}", peer.prefix, self.directory);
        peer.call([OsString::from(&self.source), target.into()])
    }

    /// Arguments of a get of the first copy.
    pub(super) fn our_get(&self) -> Vec<OsString> {
        let mut words = self.variant.call_options();
        words.extend([OsString::from("sandbox"), "get".into()]);
        words.extend([OsString::from(&self.sandbox), self.first_copy().into()]);
        words.extend([OsString::from("-o"), (&self.output).into()]);
        words
    }

    pub(super) fn their_get(&self, peer: &CopyPeer) -> ProgramCall {
        let copied = format!("{}{}", peer.prefix, self.first_copy());
        peer.call([OsString::from(copied), (&self.output).into()])
    }

    fn first_copy(&self) -> String {
        format!("{}/{}", self.directory, self.copy_name("ours", 0))
    }

    fn copy_name(&self, side: &str, run: u32) -> String {
        format!("{}-{side}{run}", self.name)
    }
}

impl CopyPeer {
    pub(super) fn plain(name: &'static str, words: &[&str]) -> Self {
        Self {
            name,
            words: words.iter().map(OsString::from).collect(),
            prefix: String::new(),
        }
    }

    /// `docker cp` with the engine of the settings.
    fn docker(container: &str, config: Option<&Config>) -> Self {
        let mut words = vec![OsString::from("docker")];
        words.extend(config.map(engine_options).unwrap_or_default());
        words.push("cp".into());
        Self {
            name: "docker cp",
            words,
            prefix: format!("{container}:"),
        }
    }

    /// `scp` with a connection of its own, or with one that its runs share through this socket.
    fn scp(target: &ScpTarget, shared: Option<&Path>) -> Self {
        let mut words = vec![OsString::from("scp")];
        words.extend(target.options.iter().cloned());
        let mut add = |option: OsString| words.extend([OsString::from("-o"), option]);
        if let Some(socket) = shared {
            let mut path = OsString::from("ControlPath=");
            path.push(socket);
            add("ControlMaster=auto".into());
            add(path);
            add(format!("ControlPersist={SHARED_PERSIST_SECONDS}").into());
        } else {
            // The configuration of `ssh` may share connections too.
            add("ControlMaster=no".into());
            add("ControlPath=none".into());
        }
        Self {
            name: "scp",
            words,
            prefix: target.prefix.clone(),
        }
    }

    pub(super) fn call(&self, arguments: impl IntoIterator<Item = OsString>) -> ProgramCall {
        let mut words = self.words.iter().cloned();
        ProgramCall {
            program: words.next().unwrap_or_default(),
            arguments: words.chain(arguments).collect(),
        }
    }
}

/// The options with which the program `docker` uses the engine of the settings.
fn engine_options(config: &Config) -> Vec<OsString> {
    let docker = &config.docker;
    let (scheme, address) = docker.endpoint.split_once("://").unwrap_or_default();
    let host = match scheme {
        "http" | "https" => format!("tcp://{address}"),
        _ => docker.endpoint.clone(),
    };
    let mut options = vec!["--host".into(), host.into()];
    let is_tls = scheme == "https" || (scheme == "tcp" && docker.tls_verify);
    if let (true, Some(directory)) = (is_tls, &docker.cert_path) {
        options.push("--tlsverify".into());
        for (option, file) in [
            ("--tlscacert", "ca.pem"),
            ("--tlscert", "cert.pem"),
            ("--tlskey", "key.pem"),
        ] {
            options.extend([option.into(), directory.join(file).into_os_string()]);
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(address: &str, set: impl FnOnce(&mut Config)) -> MeasuredSandbox {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.ssh.control_directory = Some(directory.path().join("control"));
        set(&mut config);
        MeasuredSandbox::new(address, Some(&config), Path::new("/bench"), 2)
    }

    fn task(sandbox: &MeasuredSandbox, variant: usize) -> CopyTask {
        CopyTask {
            sandbox: sandbox.address.clone(),
            variant: Rc::clone(&sandbox.variants[variant]),
            directory: "/home/me/d".to_owned(),
            name: "1024".to_owned(),
            source: "/s".into(),
            output: "/o".into(),
        }
    }

    fn words(call: &ProgramCall) -> String {
        let words = std::iter::once(&call.program).chain(&call.arguments);
        let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    fn suffixes(sandbox: &MeasuredSandbox) -> Vec<&'static str> {
        let variants = sandbox.variants.iter();
        variants.map(|variant| variant.suffix).collect()
    }

    #[test]
    fn scp_copies_from_the_host_and_port_of_the_address() {
        let sandbox = measured("ssh:me@h:2222/d", |_| {});
        let task = task(&sandbox, 0);
        let peer = task.variant.peer.as_ref().unwrap();
        let put = words(&task.their_put(peer, 3));
        assert!(
            put.starts_with("scp ") && put.contains(" -P 2222 "),
            "{put}"
        );
        assert!(put.ends_with(" /s me@h:/home/me/d/1024-peer3"), "{put}");
        let get = words(&task.their_get(peer));
        assert!(get.ends_with(" me@h:/home/me/d/1024-ours0 /o"), "{get}");
    }

    #[test]
    fn new_connections_are_compared_with_new_ones_and_shared_with_shared_ones() {
        let sandbox = measured("ssh:me@h", |_| {});
        assert_eq!(
            suffixes(&sandbox),
            [", new connection", ", shared connection"]
        );
        let fresh = task(&sandbox, 0);
        let scp = words(&fresh.their_get(fresh.variant.peer.as_ref().unwrap()));
        assert!(scp.contains("-o ControlPath=none"), "{scp}");
        // Each run has a control directory in which no other run left a connection.
        let (first, second) = (fresh.our_get(), fresh.our_put(1));
        let of = |number: u32| {
            let text = format!("sandbox-transfer.ssh.control_directory=/bench/new2-{number}");
            OsString::from(text)
        };
        assert!(first.contains(&of(0)), "{first:?}");
        assert!(second.contains(&of(1)) && !second.contains(&of(0)));
        let shared = task(&sandbox, 1);
        let scp = words(&shared.their_get(shared.variant.peer.as_ref().unwrap()));
        assert!(scp.contains("-o ControlMaster=auto"), "{scp}");
        assert!(scp.contains("-o ControlPath=/bench/scp2"), "{scp}");
        assert_eq!(shared.our_get()[0], "sandbox");
        let control = OsString::from("sandbox-transfer.ssh.control_directory=/bench/shared2");
        assert!(sandbox.options.contains(&control), "{:?}", sandbox.options);
    }

    #[test]
    fn connections_of_a_running_system_are_compared_with_shared_ones() {
        let sandbox = MeasuredSandbox::new("ssh:me@h", None, Path::new("/bench"), 0);
        assert_eq!(suffixes(&sandbox), [", shared connection"]);
        assert!(sandbox.options.is_empty());
    }

    #[test]
    fn docker_uses_the_engine_of_the_settings() {
        let sandbox = measured("docker:web", |config| {
            config.docker.endpoint = "https://engine:2376".to_owned();
            config.docker.cert_path = Some("/certs".into());
        });
        let task = task(&sandbox, 0);
        let get = words(&task.their_get(task.variant.peer.as_ref().unwrap()));
        assert_eq!(
            get,
            "docker --host tcp://engine:2376 --tlsverify --tlscacert /certs/ca.pem --tlscert \
             /certs/cert.pem --tlskey /certs/key.pem cp web:/home/me/d/1024-ours0 /o"
        );
    }

    #[test]
    fn sockets_are_found_in_the_directory_and_below_it() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("shared0");
        std::fs::create_dir(&below).unwrap();
        let sockets = [directory.path().join("scp0"), below.join("a.sock")];
        let _listeners = sockets
            .each_ref()
            .map(|path| std::os::unix::net::UnixListener::bind(path).unwrap());
        std::fs::write(below.join("a.log"), "").unwrap();
        let mut found = control_sockets(directory.path());
        found.sort();
        assert_eq!(found, sockets);
    }
}
