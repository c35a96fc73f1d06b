//! `MEDIA:` tags in the final response (platform-delivery 3): text is passed on as it arrives, a partial tag is never
//! shown, and tagged files are sent at the end of the response.

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_agent::message::Attachment;
use dray_presentation::media::{HoldBack, MediaExtraction};
use dray_proto::tagged::{self, MAX_LOOKUPS, MAX_TAGGED_PATHS};
use dray_proto::v1;
use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::ask::{CallFailure, PeerService};
use super::outgoing::{FileDelivery, OutgoingFiles};
use super::scope::TurnScope;
use super::session::SessionBinding;
use super::turn::TurnFiles;

/// The filter of one response.
#[derive(Debug)]
pub struct MediaTagFilter {
    scope: Arc<TurnScope>,
    session: Arc<SessionBinding>,
    delivery: Arc<FileDelivery>,
    hold: HoldBack,
    /// Paths that were looked up, with the real path; `None` for a path that does not exist.
    known: BTreeMap<String, Option<String>>,
    /// The reason why the sandbox could not be reached.
    sandbox_failure: Option<String>,
}

/// The end of a response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilteredRest {
    /// Text that was held back, and the notice about files that were not sent.
    pub text: String,
    /// Files for the response, if the session has no chat.
    pub attachments: Vec<Attachment>,
}

impl MediaTagFilter {
    /// Creates a filter; `None` without a sandbox, because tags refer to its files.
    pub async fn new(files: &Arc<TurnFiles>) -> Option<Self> {
        files.session.has_sandbox().await.then(|| Self {
            scope: Arc::clone(&files.scope),
            session: Arc::clone(&files.session),
            delivery: Arc::clone(&files.delivery),
            hold: HoldBack::new(),
            known: BTreeMap::new(),
            sandbox_failure: None,
        })
    }

    /// Adds the next chunk and returns the text that can be shown.
    pub async fn push(&mut self, chunk: &str) -> String {
        self.hold.feed(chunk);
        // A path may continue until the end of its line; an earlier look-up would use only a part of it.
        if chunk.contains('\n') {
            let paths = self.hold.undecided();
            self.look_up_paths(paths).await;
        }
        let known = &self.known;
        self.hold.take(|path| known.get(path).cloned().flatten())
    }

    /// Ends the response: sends the tagged files once, except those that a tool of this turn has sent.
    pub async fn finish(mut self) -> FilteredRest {
        let paths = self.hold.undecided_at_end();
        self.look_up_paths(paths).await;
        let known = self.known;
        let MediaExtraction {
            mut files,
            text,
            notices,
            directives,
        } = self.hold.finish(|path| known.get(path).cloned().flatten());
        if !files.is_empty() {
            note_real_paths(&self.scope, &self.session, &self.delivery).await;
        }
        files.retain(|path| !self.delivery.sent.has(path.as_bytes()));
        let mut rest = FilteredRest {
            text,
            attachments: Vec::new(),
        };
        if let Some(sandbox_failure) = self.sandbox_failure {
            append_paragraph(&mut rest.text, &sandbox_failure);
        } else if !notices.is_empty() {
            append_paragraph(
                &mut rest.text,
                &format!("Could not be attached: {}.", notices.join(", ")),
            );
        }
        if files.is_empty() {
            return rest;
        }
        let outgoing = OutgoingFiles {
            paths: files.into_iter().map(String::into_bytes).collect(),
            flags: v1::DeliveryFlags {
                as_voice: directives.audio_as_voice,
                as_document: directives.as_document,
                spoiler: false,
                as_preview: false,
            },
            ..OutgoingFiles::default()
        };
        // The tags belong to no call of a tool, so no tool's timeout applies.
        let end = Instant::now() + self.scope.services.config.transfer_timeout.as_duration();
        match Box::pin(self.delivery.dispatch("media", outgoing, end)).await {
            Ok(sent) => {
                rest.attachments = sent.attachments;
                if !sent.notice.is_empty() {
                    append_paragraph(&mut rest.text, &sent.notice);
                }
            }
            Err(failure) => append_paragraph(
                &mut rest.text,
                &format!("The files could not be delivered. {failure}"),
            ),
        }
        rest
    }

    /// Looks up new paths in the sandbox.
    async fn look_up_paths(&mut self, paths: Vec<String>) {
        let room = MAX_TAGGED_PATHS.saturating_sub(self.known.len());
        let new_paths: Vec<_> = paths
            .into_iter()
            .filter(|path| !self.known.contains_key(path))
            .take(room)
            .collect();
        // After one failure the others would fail as well, each after its timeout.
        if new_paths.is_empty() || self.sandbox_failure.is_some() {
            return;
        }
        let jobs: Vec<_> = new_paths
            .into_iter()
            .map(|path| lookup_path(&self.scope, &self.session, path))
            .collect();
        let lookups: Vec<_> = futures_util::stream::iter(jobs)
            .buffered(MAX_LOOKUPS)
            .collect()
            .await;
        for lookup in lookups {
            match lookup {
                Ok((path, real)) => {
                    self.known.insert(path, real);
                }
                Err(sandbox_failure) => self.sandbox_failure = Some(sandbox_failure),
            }
        }
    }
}

/// Records the real paths of files that were sent to the user, because tools and tags may use different spellings. A
/// path that no longer exists causes no delay.
async fn note_real_paths(scope: &TurnScope, session: &SessionBinding, delivery: &FileDelivery) {
    let jobs: Vec<_> = delivery
        .sent
        .paths()
        .into_iter()
        .filter_map(|path| String::from_utf8(path).ok())
        .take(MAX_TAGGED_PATHS)
        .map(|path| lookup_path(scope, session, path))
        .collect();
    let lookups: Vec<_> = futures_util::stream::iter(jobs)
        .buffered(MAX_LOOKUPS)
        .collect()
        .await;
    let real = lookups.into_iter().flatten().filter_map(|(_, real)| real);
    delivery.sent.note(real.map(String::into_bytes));
}

/// The real path behind a path; `None` when it does not exist or is not allowed.
async fn lookup_path(
    scope: &TurnScope,
    session: &SessionBinding,
    path: String,
) -> Result<(String, Option<String>), String> {
    let sandbox = session
        .sandbox()
        .await
        .map_err(|failure| failure.to_string())?;
    let request = tagged::lookup_request(sandbox, &path);
    let meta = scope.meta(scope.services.config.call_timeout.as_duration());
    let services = &scope.services;
    match services.ask(PeerService::Sandbox, &meta, &request).await {
        Ok(entry) => {
            let real = tagged::real_path(&path, entry);
            Ok((path, real))
        }
        Err(CallFailure::Refused(fault)) if tagged::is_missing(&fault) => Ok((path, None)),
        Err(error) => Err(error.to_string()),
    }
}

/// Adds a paragraph.
fn append_paragraph(text: &mut String, words: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push_str("\n\n");
    }
    text.push_str("⚠️ ");
    text.push_str(words.trim_start_matches("⚠️ "));
}
