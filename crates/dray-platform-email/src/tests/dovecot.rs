//! A real IMAP server on loopback (Dovecot) with mailboxes, and a proxy in front of it.

use std::fs;
use std::net::TcpStream as Probe;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dray_types::{Period, Secret};
use rustix::process::{Pid, Signal, getegid, geteuid, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use crate::{ConnectionSecurity, EmailOptions, InboxOptions};

const MAILBOX_PASSWORD: &str = "word-of-a-mailbox";
/// The owner of mails if the tests run as root, because the server does not read mails as root.
const MAIL_OWNER: u32 = 65_534;

/// A server with the mailboxes `INBOX` and `Work`; it ends, by its process id, when it is dropped.
#[derive(Debug)]
pub(super) struct DovecotServer {
    child: Child,
    port: u16,
    directory: tempfile::TempDir,
    count: AtomicU32,
}

impl DovecotServer {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..5 {
            let port = dray_testkit::port::unassigned_address().port();
            if let Some(child) = spawn(directory.path(), port) {
                return Self {
                    child,
                    port,
                    directory,
                    count: AtomicU32::new(0),
                };
            }
        }
        let log = fs::read_to_string(directory.path().join("log")).unwrap_or_default();
        panic!("dovecot does not start: {log}");
    }

    /// Options of a receiver that connects directly, or through this proxy.
    pub(super) fn options(&self, proxy: Option<&TamperingProxy>) -> EmailOptions {
        EmailOptions {
            host: "127.0.0.1".to_owned(),
            from: "bot@our.example".to_owned(),
            idle_timeout: Period::secs(30),
            inbox: Some(InboxOptions {
                host: "127.0.0.1".to_owned(),
                port: proxy.map_or(self.port, |proxy| proxy.port),
                security: ConnectionSecurity::None,
                username: "bot".to_owned(),
                password: Secret::new(MAILBOX_PASSWORD),
                senders: vec!["@example.org".to_owned()],
                authserv_id: "mx.our.example".to_owned(),
                ..InboxOptions::default()
            }),
            ..EmailOptions::default()
        }
    }

    /// Adds an unchanged mail to a mailbox.
    pub(super) fn put(&self, mailbox: &str, mail: &[u8]) {
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        let below = if mailbox == "INBOX" {
            String::new()
        } else {
            format!(".{mailbox}/")
        };
        let root = self.directory.path().join("mail/Maildir");
        let name = format!("{}.{number}.test", 1_700_000_000 + number);
        let temporary = root.join("tmp").join(&name);
        fs::write(&temporary, mail).unwrap();
        fs::rename(temporary, root.join(format!("{below}new/{name}"))).unwrap();
    }
}

fn spawn(path: &Path, port: u16) -> Option<Child> {
    let is_root = geteuid().is_root();
    let (owner, group) = if is_root {
        (MAIL_OWNER, MAIL_OWNER)
    } else {
        (geteuid().as_raw(), getegid().as_raw())
    };
    for below in ["mail/Maildir", "mail/Maildir/.Work"] {
        for name in ["new", "cur", "tmp"] {
            fs::create_dir_all(path.join(below).join(name)).unwrap();
        }
    }
    if is_root {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        change_owner(&path.join("mail"), owner, group);
    }
    fs::write(path.join("conf"), config(path, port, (owner, group))).unwrap();
    let program = ["/usr/sbin/dovecot", "dovecot"];
    let program = program
        .into_iter()
        .find(|name| !name.starts_with('/') || fs::exists(name).unwrap());
    let mut child = Command::new(program.unwrap())
        .arg("-F")
        .arg("-c")
        .arg(path.join("conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("dovecot is installed (Debian: dovecot-imapd)");
    let started_at = Instant::now();
    while started_at.elapsed() < Duration::from_secs(20) {
        if Probe::connect(("127.0.0.1", port)).is_ok() {
            return Some(child);
        }
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

fn config(path: &Path, port: u16, (owner, group): (u32, u32)) -> String {
    // The server runs as the user of the tests.
    let users = if geteuid().is_root() {
        String::new()
    } else {
        let identity = |flag: &str| {
            let output = Command::new("id").arg(flag).output().unwrap().stdout;
            String::from_utf8(output).unwrap().trim().to_owned()
        };
        let (user, group) = (identity("-un"), identity("-gn"));
        format!(
            "default_internal_user = {user}\ndefault_login_user = {user}\ndefault_internal_group = {group}\n"
        )
    };
    let root = path.display();
    format!(
        "{users}base_dir = {root}/base\nstate_dir = {root}/state\nlog_path = {root}/log\nprotocols = imap\n\
         listen = 127.0.0.1\nssl = no\ndisable_plaintext_auth = no\nfirst_valid_uid = 0\nfirst_valid_gid = 0\n\
         mail_location = maildir:{root}/mail/Maildir\nmail_uid = {owner}\nmail_gid = {group}\n\
         passdb {{\n driver = static\n args = password={MAILBOX_PASSWORD}\n}}\n\
         userdb {{\n driver = static\n args = uid={owner} gid={group} home={root}/mail\n}}\n\
         service imap-login {{\n chroot =\n inet_listener imap {{\n port = {port}\n }}\n inet_listener imaps {{\n port = 0\n }}\n}}\n\
         service anvil {{\n chroot =\n}}\nservice stats {{\n chroot =\n}}\n"
    )
}

fn change_owner(path: &Path, owner: u32, group: u32) {
    chown(path, Some(owner), Some(group)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            change_owner(&entry.unwrap().path(), owner, group);
        }
    }
}

impl Drop for DovecotServer {
    fn drop(&mut self) {
        // A server that gets SIGTERM ends its child processes too.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// Behaviour of the proxy when the text of a rule has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyAction {
    /// Breaks the connection.
    Cut,
    /// Stops sending.
    Stall,
}

/// A text from the server, the number of bytes that are forwarded from the start of that text on, and the action after
/// them. Each rule applies once, one after the other.
type Rule = (&'static [u8], usize, ProxyAction);

/// A proxy between a client and the server, which breaks or stalls connections by rules.
#[derive(Debug)]
pub(super) struct TamperingProxy {
    port: u16,
    rules: Arc<Mutex<Vec<Rule>>>,
    _forward_task: JoinSet<()>,
}

impl TamperingProxy {
    pub(super) async fn start(dovecot: &DovecotServer) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let rules: Arc<Mutex<Vec<Rule>>> = Arc::default();
        let mut forward_task = JoinSet::new();
        let (shared_rules, server_port) = (Arc::clone(&rules), dovecot.port);
        forward_task.spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let rules = Arc::clone(&shared_rules);
                all.spawn(async move {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "the address is the server that the test started"
                    )]
                    let server = tokio::net::TcpStream::connect(("127.0.0.1", server_port))
                        .await
                        .unwrap();
                    forward(client, server, &rules).await;
                });
            }
        });
        Self {
            port,
            rules,
            _forward_task: forward_task,
        }
    }

    pub(super) fn rule(&self, rule: Rule) {
        self.rules.lock().unwrap().push(rule);
    }
}

async fn forward(
    mut client: tokio::net::TcpStream,
    mut server: tokio::net::TcpStream,
    rules: &Mutex<Vec<Rule>>,
) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let to_server_copy = tokio::io::copy(&mut from_client, &mut to_server);
    let to_client_copy = async {
        let mut forwarded = Vec::new();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let count = from_server.read(&mut buffer).await.unwrap_or_default();
            if count == 0 {
                return;
            }
            let before = forwarded.len();
            forwarded.extend_from_slice(&buffer[..count]);
            let matched = {
                let mut rules = rules.lock().unwrap();
                let matched = rules.first().and_then(|(text, count, action)| {
                    let start = forwarded
                        .windows(text.len())
                        .position(|window| window == *text)?;
                    Some((start + count, *action))
                });
                if matched.is_some() {
                    rules.remove(0);
                }
                matched
            };
            if let Some((end, action)) = matched {
                let end = end.clamp(before, forwarded.len());
                let _ = to_client.write_all(&forwarded[before..end]).await;
                match action {
                    ProxyAction::Cut => return,
                    ProxyAction::Stall => std::future::pending().await,
                }
            }
            if to_client.write_all(&forwarded[before..]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = to_server_copy => {}
        () = to_client_copy => {}
    }
}
