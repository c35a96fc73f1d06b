//! A sandbox in memory whose failures are scripted, for tests of the code above a backend.
//!
//! A read takes each chunk from the current content of the file, so that a change during a read gives a mix of old and
//! new content, as on a real system. A failed write leaves the bytes that it wrote before.

mod nodes;
mod programs;
mod sandbox;
mod streams;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::handle::{Address, Handle};
use dray_sandbox::metadata::{FileKind, Transport};
use dray_sandbox::path::SandboxPath;
use dray_types::Sha256Digest;

pub use nodes::Node;
pub use programs::{FakePrograms, ProgramPhase};

/// Length of one chunk of a read, in bytes.
pub const FAKE_CHUNK_BYTES: usize = 1024;

/// A call that a fault can be scripted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// [`Sandbox::probe`](dray_sandbox::Sandbox::probe), which has no path.
    Probe,
    /// [`Sandbox::stat`](dray_sandbox::Sandbox::stat), with the path that it was given.
    Stat,
    /// [`Sandbox::list`](dray_sandbox::Sandbox::list), with its directory.
    List,
    /// [`Sandbox::read`](dray_sandbox::Sandbox::read), with the resolved path.
    Read,
    /// [`Sandbox::write`](dray_sandbox::Sandbox::write), with or without a digest.
    Write,
    /// [`Sandbox::fingerprint`](dray_sandbox::Sandbox::fingerprint), with its path.
    Fingerprint,
    /// [`Sandbox::state`](dray_sandbox::Sandbox::state), with its path.
    State,
    /// [`Sandbox::rename`](dray_sandbox::Sandbox::rename), with the new path.
    Rename,
    /// [`Sandbox::make_directory`](dray_sandbox::Sandbox::make_directory), with its path.
    MakeDirectory,
    /// [`Sandbox::remove`](dray_sandbox::Sandbox::remove), with its path.
    Remove,
    /// [`Sandbox::read_tree`](dray_sandbox::Sandbox::read_tree), with its directory.
    ReadTree,
    /// [`Sandbox::write_tree`](dray_sandbox::Sandbox::write_tree), with its directory.
    WriteTree,
    /// [`Sandbox::ensure_lifetime`](dray_sandbox::Sandbox::ensure_lifetime), which has no path.
    EnsureLifetime,
}

/// A fault of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// The operation fails immediately.
    Fail(ErrorKind),
    /// The operation is refused for now, with the delay after which it may be repeated.
    Later(Duration),
    /// The operation never returns.
    Hang,
    /// The operation has its effect, and then its response is lost with this kind. For streams: after the last byte.
    Lost(ErrorKind),
    /// A stream fails after this many bytes.
    Break(u64, ErrorKind),
    /// A stream stalls forever after this many bytes.
    Stall(u64),
    /// The byte at this position arrives damaged.
    Flip(u64),
    /// A read returns this many bytes more than the file has.
    Endless(u64),
    /// A read ends early and without an error after this many bytes, against the contract.
    ShortEnd(u64),
    /// The file changes in this way after a read has returned this many bytes.
    Meanwhile(u64, Change),
    /// A digest that differs from that of the file.
    WrongDigest,
    /// A `stat` that reports this size.
    Size(u64),
    /// The entry at the path changes in this way before the call.
    Before(Change),
}

/// A change of a file by another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Other content in the same inode.
    Rewrite(Bytes),
    /// Another file, with another inode, takes its place.
    Replace(Bytes),
    /// The file becomes a link to this path.
    Link(SandboxPath),
    /// The file disappears.
    Remove,
    /// The whole sandbox disappears.
    EndSandbox,
}

/// Programs in the sandbox that compute digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digests {
    /// Programs that compute SHA-256.
    #[default]
    Sha256,
    /// POSIX `cksum` and no other program.
    Cksum,
    /// No program at all: the call fails with [`ErrorKind::ToolMissing`].
    Missing,
}

/// A sandbox in memory. Clones share one state.
#[derive(Clone, Debug)]
pub struct Fake {
    handle: Handle,
    state: Arc<Mutex<FakeState>>,
    streams: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct FakeState {
    nodes: BTreeMap<SandboxPath, Node>,
    next_inode: u64,
    clock: i128,
    faults: BTreeMap<Call, VecDeque<Fault>>,
    calls: Vec<(Call, Option<SandboxPath>)>,
    transports: Vec<Transport>,
    resuming: BTreeSet<Transport>,
    draining: BTreeSet<Transport>,
    digests: Digests,
    features: FakeFeatures,
    /// A file whose last write is at most this time counts as unchanged for a long time. States are reported only if it
    /// is set.
    settled: Option<i128>,
    capacity: Option<u64>,
    /// Time after which the sandbox ends; it cannot be extended.
    life: Option<Duration>,
    parallel: usize,
    dead: bool,
    /// `None` when the sandbox runs no programs.
    programs: Option<FakePrograms>,
}

/// Optional operations of a backend, each offered or refused.
#[derive(Debug)]
struct FakeFeatures {
    /// Whether a digest is computed beside a write.
    digests_writes: bool,
    /// Whether a file can be renamed in place.
    renames: bool,
    /// Whether a directory can be read and written as one tar.
    tars: bool,
}

impl Fake {
    /// A sandbox with the directories `/work`, `/tmp` and `/home/agent`, one transport and everything working.
    pub fn new() -> Self {
        let state = FakeState {
            nodes: BTreeMap::new(),
            next_inode: 1,
            clock: 1_700_000_000_000_000_000,
            faults: BTreeMap::new(),
            calls: Vec::new(),
            transports: vec![Transport::Files],
            resuming: BTreeSet::new(),
            draining: BTreeSet::new(),
            digests: Digests::default(),
            features: FakeFeatures {
                digests_writes: false,
                renames: true,
                tars: true,
            },
            settled: None,
            capacity: None,
            life: None,
            parallel: 2,
            dead: false,
            programs: None,
        };
        let fake = Self {
            handle: Handle {
                address: Address {
                    backend: "fake".to_owned(),
                    name: "box".to_owned(),
                },
                incarnation: "1".to_owned(),
            },
            state: Arc::new(Mutex::new(state)),
            streams: Arc::default(),
        };
        for directory in ["/", "/work", "/tmp", "/home", "/home/agent"] {
            fake.insert(directory, FileKind::Directory, &Bytes::new());
        }
        fake
    }

    /// Lets programs run, each as far as this phase, until its caller drops it.
    pub fn run_programs(&self, phase: ProgramPhase) -> FakePrograms {
        let programs = FakePrograms::new(phase);
        self.state().programs = Some(programs.clone());
        programs
    }

    /// Puts a whole file at a path; it replaces an existing entry.
    pub fn file(&self, path: &str, content: impl Into<Bytes>) {
        self.insert(path, FileKind::File, &content.into());
    }

    /// Puts an empty directory at a path.
    pub fn directory(&self, path: &str) {
        self.insert(path, FileKind::Directory, &Bytes::new());
    }

    /// Puts a link at a path; the target need not exist.
    pub fn link(&self, path: &str, target: &str) {
        let target = Bytes::copy_from_slice(target.as_bytes());
        self.insert(path, FileKind::Symlink, &target);
    }

    /// Puts a special file at a path, such as a FIFO.
    pub fn special(&self, path: &str, kind: FileKind) {
        self.insert(path, kind, &Bytes::new());
    }

    /// Sets the transports for every path, best first.
    pub fn transports(&self, transports: &[Transport]) {
        self.state().transports = transports.to_vec();
    }

    /// Lets reads and writes of a transport begin at an offset above 0.
    pub fn resuming(&self, transport: Transport) {
        self.state().resuming.insert(transport);
    }

    /// Makes a transport block the sandbox until its body has been read.
    pub fn draining(&self, transport: Transport) {
        self.state().draining.insert(transport);
    }

    /// Sets the programs that compute digests.
    pub fn digests(&self, digests: Digests) {
        self.state().digests = digests;
    }

    /// Lets the sandbox compute a digest beside every write.
    pub fn digest_writes(&self) {
        self.state().features.digests_writes = true;
    }

    /// Advances the clock of the sandbox.
    pub fn advance(&self, time: Duration) {
        let passed = i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        self.state().clock += passed;
    }

    /// Reports the states of files from now on. Files that exist now count as unchanged for a long time.
    pub fn settle(&self) {
        let mut state = self.state();
        state.settled = Some(state.clock);
    }

    /// Sets whether files can be renamed.
    pub fn renames(&self, renames: bool) {
        self.state().features.renames = renames;
    }

    /// Sets whether it can make and unpack tars.
    pub fn tars(&self, tars: bool) {
        self.state().features.tars = tars;
    }

    /// Sets the largest sum of all files in bytes.
    pub fn capacity(&self, bytes: u64) {
        self.state().capacity = Some(bytes);
    }

    /// Sets the time after which the sandbox ends. It cannot be extended.
    pub fn life(&self, life: Duration) {
        self.state().life = Some(life);
    }

    /// Sets how many transfers may run concurrently.
    pub fn parallel(&self, parallel: usize) {
        self.state().parallel = parallel;
    }

    /// Sets the faults of the next calls of this kind, in this order; later calls have no fault.
    pub fn script(&self, call: Call, faults: impl IntoIterator<Item = Fault>) {
        self.state().faults.entry(call).or_default().extend(faults);
    }

    /// Removes the remaining faults of this kind of call.
    pub fn clear_faults(&self, call: Call) {
        self.state().faults.remove(&call);
    }

    /// Content of a file; `None` when there is none.
    pub fn content(&self, path: &str) -> Option<Bytes> {
        let path = SandboxPath::new(path).ok()?;
        let state = self.state();
        state
            .nodes
            .get(&path)
            .filter(|node| node.kind == FileKind::File)
            .map(|node| Bytes::copy_from_slice(&node.content))
    }

    /// All paths, in order.
    pub fn paths(&self) -> Vec<String> {
        self.state().nodes.keys().map(ToString::to_string).collect()
    }

    /// Mode bits of the entry at a path.
    pub fn mode(&self, path: &str) -> Option<u32> {
        let path = SandboxPath::new(path).ok()?;
        self.state().nodes.get(&path).map(|node| node.mode)
    }

    /// Number of calls of this kind so far, failed ones included.
    pub fn count(&self, call: Call) -> usize {
        let state = self.state();
        state.calls.iter().filter(|(kind, _)| *kind == call).count()
    }

    /// Number of reads and writes that have not ended.
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    fn insert(&self, path: &str, kind: FileKind, content: &Bytes) {
        if let Ok(path) = SandboxPath::new(path) {
            self.state().insert(path, kind, content.to_vec());
        }
    }

    fn state(&self) -> MutexGuard<'_, FakeState> {
        // A failed assertion poisons the lock; other tests that share the sandbox must not fail because of it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

/// SHA-256 of the content of a file.
fn sha256(content: &[u8]) -> Sha256Digest {
    Sha256Digest::of(content)
}

/// POSIX `cksum`: the CRC of the content and then of its length, low byte first and no longer than needed.
fn cksum(content: &[u8]) -> u32 {
    let feed = |crc: u32, byte: u8| {
        (0..8).fold(crc ^ (u32::from(byte) << 24), |crc, _| {
            (crc << 1) ^ (if crc >> 31 == 1 { 0x04C1_1DB7 } else { 0 })
        })
    };
    let mut crc = content.iter().copied().fold(0, feed);
    let mut length = content.len();
    while length > 0 {
        let [low, ..] = length.to_le_bytes();
        crc = feed(crc, low);
        length >>= 8;
    }
    !crc
}
