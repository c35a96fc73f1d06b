//! Tests the embedded store in a separate process that is killed or whose disk is full.
//!
//! After `kill -9` at any point, all acknowledged objects exist, and every object under a final key is complete. When
//! the file system is full, a write fails with a fault that names the cause, leaves no partial object, and the store
//! continues.
//!
//! The tests start this binary as that process, so it brings its own `main`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "all of it is a test, which the lints do not see without the harness"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dray_store::embedded::EmbeddedS3;
use dray_store::{ArtifactLabel, PART_BYTES, Store, StoreOptions};
use dray_types::{
    ByteSize, Claim, Clock, Deadline, Fault, FaultCode, OperationId, Secret, Sha256Digest, TenantId,
};
use tokio::task::JoinSet;

const KILL_TEST: &str = "a_killed_store_keeps_what_it_acknowledged_and_nothing_wrong";
const FULL_DISK_TEST: &str = "a_disk_that_takes_no_more_is_told_and_everything_else_goes_on";
const SERVE_ARGUMENT: &str = "serve-until-killed";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let [mode, directory] = &arguments[..]
        && mode == SERVE_ARGUMENT
    {
        runtime.block_on(serve(Path::new(directory)));
        return ExitCode::SUCCESS;
    }
    // Arguments with which test runners list the tests of a binary.
    if has("--list") {
        for name in [KILL_TEST, FULL_DISK_TEST]
            .iter()
            .filter(|_| !has("--ignored"))
        {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let all = !has(KILL_TEST) && !has(FULL_DISK_TEST);
    if all || has(KILL_TEST) {
        runtime.block_on(kill_over_and_over());
        println!("test {KILL_TEST} ... ok");
    }
    if all || has(FULL_DISK_TEST) {
        runtime.block_on(fill());
        println!("test {FULL_DISK_TEST} ... ok");
    }
    ExitCode::SUCCESS
}

/// The process that is killed: prints its address, then waits.
async fn serve(directory: &Path) {
    let (_endpoint, options) = EmbeddedS3::start(directory).await.unwrap();
    let secret = options.secret_key.expose();
    println!(
        "{} {} {secret}",
        options.endpoint,
        options.access_key.expose()
    );
    std::io::stdout().flush().unwrap();
    std::future::pending::<()>().await;
}

struct ServedStore {
    process: Child,
    store: Store,
}

impl ServedStore {
    async fn start(directory: &Path) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), directory).await
    }

    /// Limits files to 4 or 8 MiB (shells disagree on the unit). A larger write fails in the middle, as on a full disk,
    /// and the test needs no permission to mount.
    async fn start_limited(directory: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "trap '' XFSZ; ulimit -f 8192; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap());
        Self::start_by(shell, directory).await
    }

    async fn start_by(mut command: Command, directory: &Path) -> Self {
        let mut process = command
            .arg(SERVE_ARGUMENT)
            .arg(directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let options = StoreOptions {
            endpoint: words[0].to_owned(),
            access_key: Secret::new(words[1]),
            secret_key: Secret::new(words[2]),
            ..StoreOptions::default()
        };
        let store = Store::open(&options, Clock::system()).await.unwrap();
        Self { process, store }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn content(round: usize, number: usize) -> Bytes {
    let size = [1000, 300_000, PART_BYTES + 5, 3 * PART_BYTES][number % 4];
    let seed = round * 1000 + number;
    Bytes::from(
        (0..size)
            .map(|index| (index * 7 + seed * 13 + index / 251).to_le_bytes()[0])
            .collect::<Vec<_>>(),
    )
}

async fn kill_over_and_over() {
    let directory = tempfile::tempdir().unwrap();
    let mut claims: Vec<Claim> = Vec::new();
    let mut digests: Vec<Sha256Digest> = Vec::new();
    for round in 0..5 {
        let mut served = ServedStore::start(directory.path()).await;
        let done = Arc::new(AtomicUsize::new(0));
        let mut writers = JoinSet::new();
        for number in 0..16 {
            let bytes = content(round, number);
            digests.push(Sha256Digest::of(&bytes));
            writers.spawn(write(served.store.clone(), bytes, Arc::clone(&done)));
        }
        // The process is killed between the first and the last object, each time at another point.
        while done.load(Ordering::SeqCst) <= round * 2 {
            tokio::task::yield_now().await;
        }
        served.kill();
        while let Some(written) = writers.join_next().await {
            claims.extend(written.unwrap());
        }
    }

    let mut served = ServedStore::start(directory.path()).await;
    let tenant = tenant();
    assert!(claims.len() >= 25, "{} were acknowledged", claims.len());
    for claim in &claims {
        read(&served.store, &tenant, claim).await;
    }
    let mut intact = 0;
    for sha256 in digests {
        let Some(size) = served.store.find(&tenant, sha256).await.unwrap() else {
            continue;
        };
        let mut claim = claims[0].clone();
        claim.artifact.sha256 = sha256;
        claim.artifact.size = size;
        read(&served.store, &tenant, &claim).await;
        intact += 1;
    }
    assert!(intact >= claims.len());
    let drafts = std::fs::read_dir(directory.path().join("tmp"))
        .unwrap()
        .count();
    assert_eq!(
        drafts, 0,
        "what was half written is removed at the next start"
    );
    served.kill();
}

async fn fill() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = ServedStore::start_limited(directory.path()).await;
    let done = Arc::new(AtomicUsize::new(0));
    let put = async |round, number| {
        write(
            served.store.clone(),
            content(round, number),
            Arc::clone(&done),
        )
        .await
    };
    let kept = put(0, 1).await.unwrap();

    // Three parts; the file size limit allows less than two.
    let mut writer = served.store.writer(&tenant(), &OperationId::mint(), 1);
    let error = async {
        writer.write(content(0, 3)).await?;
        writer.finish(ArtifactLabel::default()).await
    }
    .await
    .unwrap_err();
    let fault = Fault::from(error);
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Unavailable, "store_full")
    );
    served.store.settle().await;

    read(&served.store, &tenant(), &kept).await;
    let after = put(1, 1).await.unwrap();
    read(&served.store, &tenant(), &after).await;
    for (subdirectory, files) in [
        ("tmp", 0),
        ("uploads/drayage", 0),
        ("objects/drayage/cas/acme", 2),
    ] {
        let file_count =
            std::fs::read_dir(directory.path().join(subdirectory)).map_or(0, Iterator::count);
        assert_eq!(file_count, files, "{subdirectory}");
    }
    served.kill();
}

fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

async fn write(store: Store, bytes: Bytes, done: Arc<AtomicUsize>) -> Option<Claim> {
    let mut writer = store.writer(&tenant(), &OperationId::mint(), 1);
    writer.write(bytes).await.ok()?;
    let claim = writer.finish(ArtifactLabel::default()).await.ok()?;
    done.fetch_add(1, Ordering::SeqCst);
    Some(claim)
}

async fn read(store: &Store, tenant: &TenantId, claim: &Claim) {
    let deadline = Deadline::after(Clock::system().now_ms(), Duration::from_secs(30));
    let reader = store.read(tenant, claim, deadline).await.unwrap();
    let bytes = reader.read_all(ByteSize::mib(32)).await.unwrap();
    assert_eq!(Sha256Digest::of(&bytes), claim.artifact.sha256);
}
