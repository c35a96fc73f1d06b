//! Received files: the content or the link of an attachment, written below one directory under a unique name.
//!
//! A model chooses the links. Only links of the orchestrator's own origin and of its store are fetched, and keys are
//! sent only for DIAL's own files. Other links are shown, and the user decides.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use dray_agent::caller::Caller;
use dray_agent::message::Attachment;
use dray_dial::{DialClient, DialOrigin, UrlClass, inline_bytes};
use dray_http::HttpClient;
use dray_presentation::name;
use percent_encoding::percent_decode_str;
use tempfile::NamedTempFile;

use crate::outcome::CommandFailure;

/// Largest file that is fetched, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Most names that are tried for one file before it fails.
const MAX_NAMES: u32 = 1000;

/// The directory, with the origins that may be dialled to fill it.
#[derive(Debug)]
pub(super) struct DownloadDirectory {
    directory: PathBuf,
    http: HttpClient,
    origins: Vec<DialOrigin>,
    dial: Option<(DialClient, Caller)>,
}

/// The outcome of one received file.
#[derive(Debug)]
pub(super) enum DownloadOutcome {
    /// Written below the directory.
    Saved {
        /// Path of the written file.
        path: PathBuf,
        /// Number of bytes written.
        size: u64,
    },
    /// The file was not fetched, because its link leads to another origin.
    NotFetched,
    /// Could not be fetched or written, for this reason.
    Failed(String),
}

impl DownloadDirectory {
    /// Creates the directory and checks that it can be written, before a question is asked.
    pub(super) fn open(
        directory: &Path,
        http: HttpClient,
        origins: Vec<DialOrigin>,
        dial: Option<(DialClient, Caller)>,
    ) -> Result<Self, CommandFailure> {
        let write_error =
            || CommandFailure::local(format!("cannot write into {}", directory.display()));
        std::fs::create_dir_all(directory).map_err(write_error())?;
        NamedTempFile::new_in(directory).map_err(write_error())?;
        Ok(Self {
            directory: directory.to_owned(),
            http,
            origins,
            dial,
        })
    }

    /// Writes one file, or fetches it first. Dropping the future leaves no partial file.
    pub(super) async fn save(&self, attachment: &Attachment) -> DownloadOutcome {
        let saved = match inline_bytes(attachment) {
            Some(bytes) => self.save_inline(attachment, &bytes).map(Some),
            None => self.fetch(attachment).await,
        };
        match saved {
            Ok(Some((path, size))) => DownloadOutcome::Saved { path, size },
            Ok(None) => DownloadOutcome::NotFetched,
            Err(reason) => DownloadOutcome::Failed(reason),
        }
    }

    fn save_inline(&self, attachment: &Attachment, bytes: &[u8]) -> Result<(PathBuf, u64), String> {
        let mut part = self.part()?;
        part.write_all(bytes).map_err(write_failure_text)?;
        Ok((self.publish(part, attachment)?, bytes.len() as u64))
    }

    async fn fetch(&self, attachment: &Attachment) -> Result<Option<(PathBuf, u64)>, String> {
        let Some(url) = attachment.url.as_deref() else {
            return Ok(None);
        };
        if let Some((core, caller)) = &self.dial
            // This is the only download with a key: the URL belongs to DIAL's own files.
            && let UrlClass::Dial(file) = core.origin().classify(url)
        {
            let mut download = match core.download(caller, &file, MAX_FILE_BYTES).await {
                Ok(download) => download,
                Err(error) => return Err(error.to_string()),
            };
            let mut part = self.part()?;
            let mut size = 0;
            while let Some(bytes) = download.next().await.map_err(|error| error.to_string())? {
                part.write_all(&bytes).map_err(write_failure_text)?;
                size += bytes.len() as u64;
            }
            return Ok(Some((self.publish(part, attachment)?, size)));
        }
        if !self.origins.iter().any(|origin| origin.owns(url)) {
            return Ok(None);
        }
        // The request has no key and follows no redirects, because a model chose the link.
        let answer = self.http.get(url).send(&|_| ()).await;
        let mut answer = answer.map_err(|error| error.to_string())?;
        if !answer.is_success() {
            return Err(format!("the link responds with status {}", answer.status()));
        }
        let announced = answer.length();
        // The announced length is checked first, so that a file that is too large is not read.
        if announced.is_some_and(|length| length > MAX_FILE_BYTES) {
            return Err(too_large());
        }
        let mut part = self.part()?;
        let mut size = 0;
        while let Some(bytes) = answer.chunk().await.map_err(|error| error.to_string())? {
            size += bytes.len() as u64;
            if size > MAX_FILE_BYTES {
                return Err(too_large());
            }
            part.write_all(&bytes).map_err(write_failure_text)?;
        }
        // A connection that closes early must not count as a complete file.
        if announced.is_some_and(|length| length != size) {
            return Err("the file arrived incomplete".to_owned());
        }
        Ok(Some((self.publish(part, attachment)?, size)))
    }

    fn part(&self) -> Result<NamedTempFile, String> {
        NamedTempFile::new_in(&self.directory).map_err(write_failure_text)
    }

    /// Renames the file to a name that does not exist yet: `name`, `name (2)` and so on.
    fn publish(&self, mut part: NamedTempFile, attachment: &Attachment) -> Result<PathBuf, String> {
        let name = name_of(attachment);
        for number in 1..=MAX_NAMES {
            let path = if number == 1 {
                self.directory.join(&name)
            } else {
                self.directory.join(name::cli_numbered(&name, number))
            };
            // This fails for an existing name in one step: after a check, another program could create the name.
            match part.persist_noclobber(&path) {
                Ok(_) => return Ok(path),
                Err(error) if error.error.kind() == ErrorKind::AlreadyExists => part = error.file,
                Err(error) => return Err(write_failure_text(error.error)),
            }
        }
        Err("too many files have its name".to_owned())
    }
}

/// A name without directories: the title, or the end of the link.
fn name_of(attachment: &Attachment) -> String {
    if let Some(title) = attachment
        .title
        .as_deref()
        .filter(|title| !title.is_empty())
    {
        return name::clean_name(title);
    }
    let url = attachment.url.as_deref().unwrap_or_default();
    // The end of a `data:` URL is content, not a name.
    let is_data = url
        .get(..5)
        .is_some_and(|start| start.eq_ignore_ascii_case("data:"));
    let path = url.split(['?', '#']).next().unwrap_or_default();
    match path.rsplit_once('/').filter(|_| !is_data) {
        Some((_, last)) if !last.is_empty() => {
            let decoded: Vec<u8> = percent_decode_str(last).collect();
            name::clean_name(decoded)
        }
        _ => name::clean_name("attachment"),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "used as a function of errors"
)]
fn write_failure_text(error: std::io::Error) -> String {
    format!("it cannot be written: {error}")
}

fn too_large() -> String {
    format!(
        "it is larger than {}",
        dray_presentation::size::human_size(MAX_FILE_BYTES)
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use dray_http::HttpTimeouts;
    use dray_http::fake_server::{
        ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState, bytes_reply, cut_reply,
        with_header,
    };
    use futures_util::future::BoxFuture;

    use super::*;

    type RequestLog = Vec<(String, Option<String>)>;

    fn answer(
        log: Arc<SharedState<RequestLog>>,
        request: ReceivedRequest,
    ) -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
        Box::pin(async move {
            let key = request.header("api-key").map(ToOwned::to_owned);
            log.lock().push((request.path.clone(), key));
            let whole = Bytes::from_static(b"whole");
            Ok(match request.path.as_str() {
                "/cut" => cut_reply("text/plain", &whole, 2),
                "/gone" => bytes_reply(403, "text/plain", Bytes::new()),
                "/moved" => with_header(
                    bytes_reply(302, "text/plain", Bytes::new()),
                    "location",
                    "/a",
                ),
                _ => bytes_reply(200, "text/plain", whole),
            })
        })
    }

    struct DownloadFixture {
        server: FakeServer<RequestLog>,
        directory: tempfile::TempDir,
    }

    impl DownloadFixture {
        async fn new() -> Self {
            Self {
                server: FakeServer::start(Vec::new(), answer).await.unwrap(),
                directory: tempfile::tempdir().unwrap(),
            }
        }

        fn url(&self) -> String {
            self.server.shared().url()
        }

        fn downloads(&self) -> DownloadDirectory {
            let http = HttpClient::new(HttpTimeouts::default(), None).unwrap();
            let origin = DialOrigin::parse(&self.url()).unwrap();
            DownloadDirectory::open(self.directory.path(), http, vec![origin], None).unwrap()
        }

        fn names(&self) -> Vec<String> {
            let files = std::fs::read_dir(self.directory.path()).unwrap();
            let mut names: Vec<_> = files
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    fn linked_attachment(title: &str, url: &str) -> Attachment {
        Attachment {
            title: (!title.is_empty()).then(|| title.to_owned()),
            url: Some(url.to_owned()),
            ..Attachment::default()
        }
    }

    #[tokio::test]
    async fn names_stay_in_the_directory_and_no_file_is_overwritten() {
        let system = DownloadFixture::new().await;
        let downloads = system.downloads();
        for title in ["../../etc/a.txt", "a.txt", "/a.txt", "..", ".env", ""] {
            let outcome = downloads.save(&linked_attachment(title, "data:,x")).await;
            assert!(
                matches!(outcome, DownloadOutcome::Saved { size: 1, .. }),
                "{title} {outcome:?}"
            );
        }
        let mut names = system.names();
        assert_eq!(names.len(), 6, "{names:?}");
        names.retain(|name| name.starts_with('a'));
        assert_eq!(names, ["a (2).txt", "a (3).txt", "a.txt", "attachment"]);
    }

    #[tokio::test]
    async fn only_links_of_the_own_origin_are_dialled() {
        let (system, elsewhere) = (DownloadFixture::new().await, DownloadFixture::new().await);
        let downloads = system.downloads();
        let outcome = downloads
            .save(&linked_attachment(
                "",
                &format!("{}/d/b%20c.txt?s=1", system.url()),
            ))
            .await;
        assert!(
            matches!(outcome, DownloadOutcome::Saved { size: 5, .. }),
            "{outcome:?}"
        );
        assert_eq!(system.names(), ["b c.txt"]);
        let port = system.url().rsplit_once(':').unwrap().1.to_owned();
        for url in [
            format!("{}/a", elsewhere.url()),
            format!("http://localhost:{port}/a"),
            format!("https://127.0.0.1:{port}/a"),
            format!("http://127.0.0.1:{port}@example.com/a"),
            "files/bucket/a.txt".to_owned(),
            "file:///etc/passwd".to_owned(),
            "//127.0.0.1/a".to_owned(),
        ] {
            let outcome = downloads.save(&linked_attachment("a", &url)).await;
            assert!(
                matches!(outcome, DownloadOutcome::NotFetched),
                "{url} {outcome:?}"
            );
        }
        assert!(elsewhere.server.shared().lock().is_empty());
        assert_eq!(system.server.shared().lock().len(), 1);
    }

    #[tokio::test]
    async fn a_download_that_is_cut_refused_or_redirected_leaves_no_file() {
        let system = DownloadFixture::new().await;
        let downloads = system.downloads();
        for path in ["cut", "gone", "moved"] {
            let outcome = downloads
                .save(&linked_attachment("a", &format!("{}/{path}", system.url())))
                .await;
            assert!(
                matches!(outcome, DownloadOutcome::Failed(_)),
                "{path} {outcome:?}"
            );
        }
        assert_eq!(system.names(), [""; 0]);
        // No link was followed.
        assert_eq!(system.server.shared().lock().len(), 3);
    }

    #[tokio::test]
    async fn files_of_dial_are_fetched_with_the_key_and_other_links_without() {
        let system = DownloadFixture::new().await;
        let core = DialClient::new(dray_dial::DialOptions::new(system.url(), "v")).unwrap();
        let caller = Caller {
            api_key: Some(dray_types::Secret::new("k-1")),
            ..Caller::default()
        };
        let downloads = DownloadDirectory {
            dial: Some((core, caller)),
            ..system.downloads()
        };
        for url in [
            "files/b/a.txt".to_owned(),
            format!("{}/other", system.url()),
        ] {
            let outcome = downloads.save(&linked_attachment("", &url)).await;
            assert!(
                matches!(outcome, DownloadOutcome::Saved { .. }),
                "{url} {outcome:?}"
            );
        }
        let log = system.server.shared().lock().clone();
        let key = Some("k-1".to_owned());
        assert_eq!(log[0], ("/v1/files/b/a.txt".to_owned(), key));
        assert!(log[1..].iter().all(|(_, key)| key.is_none()), "{log:?}");
    }
}
