//! A workspace for tests.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dray_reading::policy::Policy;
use dray_reading::reader::{Progress, Reader};
use dray_reading::record::Record;
use dray_reading::request::Request;
use dray_reading::summary::{Summarizer, SummaryError, SummaryPrompt};
use dray_reading::worker::Worker;
use dray_reading::workspace::Roots;
use tokio_util::sync::CancellationToken;

/// A root with files in it.
pub(crate) struct ReaderFixture {
    top: tempfile::TempDir,
    pub(crate) root: PathBuf,
}

pub(crate) fn worker() -> Worker {
    Worker::at(PathBuf::from(env!("CARGO_BIN_EXE_dray-convert")))
}

impl ReaderFixture {
    pub(crate) fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().canonicalize().unwrap().join("w");
        std::fs::create_dir(&root).unwrap();
        Self { top, root }
    }

    /// Creates a fixture with these files.
    pub(crate) fn with(files: &[(&str, &[u8])]) -> Self {
        let fixture = Self::new();
        for (name, content) in files {
            std::fs::write(fixture.root.join(name), content).unwrap();
        }
        fixture
    }

    pub(crate) fn outside(&self) -> &Path {
        self.top.path()
    }

    pub(crate) fn reader(&self, policy: Policy) -> Reader {
        Reader::new(policy, Roots::new(&self.root), worker())
    }

    pub(crate) async fn read(&self, path: &str) -> Record {
        read(&self.reader(Policy::default()), &Request::of_path(path)).await
    }
}

pub(crate) async fn read(reader: &Reader, request: &Request) -> Record {
    let record = reader
        .read(request, &CancellationToken::new(), &|_: Progress| {})
        .await;
    assert!(!record.output.is_empty() && !record.output.contains('\0'));
    record
}

/// Header and body of a framed output.
pub(crate) fn unframe(output: &str) -> (&str, &str) {
    let (header, rest) = output
        .split_once("\n--BEGIN ")
        .unwrap_or_else(|| panic!("{output}"));
    let (nonce, rest) = rest.split_once("--\n").unwrap();
    assert_eq!(nonce.len(), 16);
    let end = format!("\n--END {nonce}--");
    (header, rest.strip_suffix(&end).unwrap())
}

/// A model that records its requests.
#[derive(Default)]
pub(crate) struct FakeModel {
    pub(crate) requests: Mutex<Vec<(String, String)>>,
    pub(crate) answer: Option<String>,
}

impl FakeModel {
    pub(crate) fn saying(answer: &str) -> Arc<Self> {
        Arc::new(Self {
            requests: Mutex::default(),
            answer: Some(answer.to_owned()),
        })
    }
}

#[async_trait]
impl Summarizer for FakeModel {
    async fn complete(&self, prompt: &SummaryPrompt<'_>) -> Result<String, SummaryError> {
        let mut requests = self.requests.lock().unwrap();
        requests.push((prompt.system.to_owned(), prompt.user.to_owned()));
        self.answer.clone().ok_or(SummaryError::Malformed)
    }

    fn window_bytes(&self) -> usize {
        96_000
    }
}
