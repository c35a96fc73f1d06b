//! A sandbox in memory whose failures are scripted, for tests of what stands above a backend.
//!
//! Reads see the file as it is at that moment, piece by piece, so that a change in the middle tears what is read as
//! it does in reality; writes leave behind what came before they failed.

mod nodes;
mod sandbox;
mod streams;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dray_types::Sha256Digest;

use crate::error::ErrorKind;
use crate::handle::{Address, Handle};
use crate::metadata::{FileKind, Transport};
use crate::path::SandboxPath;

pub use nodes::Node;

/// Bytes in one piece of a read.
pub const PIECE: usize = 1024;

/// A call that a fault can be scripted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// `probe`.
    Probe,
    /// `stat`.
    Stat,
    /// `list`.
    List,
    /// `read`.
    Read,
    /// `write`.
    Write,
    /// `fingerprint`.
    Fingerprint,
    /// `state`.
    State,
    /// `rename`.
    Rename,
    /// `make_directory`.
    MakeDirectory,
    /// `remove`.
    Remove,
    /// `read_tree`.
    ReadTree,
    /// `write_tree`.
    WriteTree,
    /// `ensure_life`.
    Life,
}

/// What goes wrong in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing; the call behaves.
    None,
    /// It fails immediately.
    Fail(ErrorKind),
    /// It is refused for now, with when to come back.
    Later(Duration),
    /// It is never answered.
    Hang,
    /// It takes effect, and then the answer is lost with this kind. Streams: after the last byte.
    Lost(ErrorKind),
    /// A stream fails after so many bytes.
    Break(u64, ErrorKind),
    /// A stream stalls for ever after so many bytes.
    Stall(u64),
    /// The byte at this position arrives damaged.
    Flip(u64),
    /// A read goes on with so many more bytes than the file has.
    Endless(u64),
    /// A read ends early and without an error after so many bytes, against the contract.
    ShortEnd(u64),
    /// When a read has delivered so many bytes, this happens to the file.
    Meanwhile(u64, Change),
    /// A digest that is not the file's.
    WrongDigest,
    /// A `stat` that reports this size.
    Size(u64),
    /// Before the call this happens to its path.
    Before(Change),
}

/// What happens to a file behind our back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Other content in the same file.
    Rewrite(Bytes),
    /// Another file takes its place.
    Replace(Bytes),
    /// It becomes a link.
    Link(SandboxPath),
    /// It disappears.
    Remove,
    /// The whole sandbox disappears.
    Die,
}

/// What can compute digests in the sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digests {
    /// SHA-256.
    #[default]
    Sha256,
    /// POSIX `cksum` only.
    Cksum,
    /// Nothing.
    Missing,
}

/// The sandbox. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Fake {
    handle: Handle,
    state: Arc<Mutex<State>>,
    streams: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct State {
    nodes: BTreeMap<SandboxPath, Node>,
    next_inode: u64,
    clock: i128,
    faults: BTreeMap<Call, VecDeque<Fault>>,
    calls: Vec<(Call, Option<SandboxPath>)>,
    transports: Vec<Transport>,
    resuming: BTreeSet<Transport>,
    draining: BTreeSet<Transport>,
    digests: Digests,
    /// Whether a digest is computed beside a write.
    digests_writes: bool,
    /// Time before which files were left alone; states are not reported without it.
    settled: Option<i128>,
    renames: bool,
    tars: bool,
    capacity: Option<u64>,
    parallel: usize,
    dead: bool,
}

impl Fake {
    /// A sandbox with the directories `/work`, `/tmp` and `/home/agent`, one transport and everything working.
    pub fn new() -> Self {
        let state = State {
            nodes: BTreeMap::new(),
            next_inode: 1,
            clock: 1_700_000_000_000_000_000,
            faults: BTreeMap::new(),
            calls: Vec::new(),
            transports: vec![Transport::Files],
            resuming: BTreeSet::new(),
            draining: BTreeSet::new(),
            digests: Digests::default(),
            digests_writes: false,
            settled: None,
            renames: true,
            tars: true,
            capacity: None,
            parallel: 2,
            dead: false,
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

    /// Puts a file there, whole.
    pub fn file(&self, path: &str, content: impl Into<Bytes>) {
        self.insert(path, FileKind::File, &content.into());
    }

    /// Puts a directory there.
    pub fn directory(&self, path: &str) {
        self.insert(path, FileKind::Directory, &Bytes::new());
    }

    /// Puts a link there.
    pub fn link(&self, path: &str, target: &str) {
        let target = Bytes::copy_from_slice(target.as_bytes());
        self.insert(path, FileKind::Symlink, &target);
    }

    /// Puts something special there.
    pub fn special(&self, path: &str, kind: FileKind) {
        self.insert(path, kind, &Bytes::new());
    }

    /// The transports for every path, best first.
    pub fn transports(&self, transports: &[Transport]) {
        self.state().transports = transports.to_vec();
    }

    /// Lets a transport begin in the middle.
    pub fn resuming(&self, transport: Transport) {
        self.state().resuming.insert(transport);
    }

    /// Lets a transport hold up the sandbox while it is read.
    pub fn draining(&self, transport: Transport) {
        self.state().draining.insert(transport);
    }

    /// What can compute digests.
    pub fn digests(&self, digests: Digests) {
        self.state().digests = digests;
    }

    /// Lets the sandbox compute a digest beside every write.
    pub fn digest_writes(&self) {
        self.state().digests_writes = true;
    }

    /// Lets time pass in the sandbox.
    pub fn advance(&self, time: Duration) {
        let passed = i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        self.state().clock += passed;
    }

    /// From now on the states of files are reported, and what is there now has been left alone for long.
    pub fn settle(&self) {
        let mut state = self.state();
        state.settled = Some(state.clock);
    }

    /// Whether files can be renamed.
    pub fn renames(&self, renames: bool) {
        self.state().renames = renames;
    }

    /// Whether it can make and unpack tars.
    pub fn tars(&self, tars: bool) {
        self.state().tars = tars;
    }

    /// Most bytes of all files together.
    pub fn capacity(&self, bytes: u64) {
        self.state().capacity = Some(bytes);
    }

    /// Transfers that may run concurrently.
    pub fn parallel(&self, parallel: usize) {
        self.state().parallel = parallel;
    }

    /// What goes wrong in the next calls of this kind, in this order; afterwards all is well.
    pub fn script(&self, call: Call, faults: impl IntoIterator<Item = Fault>) {
        self.state().faults.entry(call).or_default().extend(faults);
    }

    /// Lets the next calls of this kind behave again.
    pub fn clear_faults(&self, call: Call) {
        self.state().faults.remove(&call);
    }

    /// What a file holds; `None` when there is none.
    pub fn content(&self, path: &str) -> Option<Bytes> {
        let path = SandboxPath::new(path).ok()?;
        let state = self.state();
        state
            .nodes
            .get(&path)
            .filter(|node| node.kind == FileKind::File)
            .map(|node| Bytes::copy_from_slice(&node.content))
    }

    /// Everything there is, in order.
    pub fn paths(&self) -> Vec<String> {
        self.state().nodes.keys().map(ToString::to_string).collect()
    }

    /// Mode bits of what is there.
    pub fn mode(&self, path: &str) -> Option<u32> {
        let path = SandboxPath::new(path).ok()?;
        self.state().nodes.get(&path).map(|node| node.mode)
    }

    /// How often this was called.
    pub fn count(&self, call: Call) -> usize {
        let state = self.state();
        state.calls.iter().filter(|(made, _)| *made == call).count()
    }

    /// Reads and writes that are under way.
    pub fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    fn insert(&self, path: &str, kind: FileKind, content: &Bytes) {
        if let Ok(path) = SandboxPath::new(path) {
            self.state().insert(path, kind, content.to_vec());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}

/// Digest of what a file holds.
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
