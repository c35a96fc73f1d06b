//! `MEDIA:` tags in the final answer (platform-delivery 3): text passes as it comes, half a tag never shows, and what
//! the tags name is sent when the answer ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_agent::message::Attachment;
use dray_content::media::{HoldBack, MediaExtraction};
use dray_proto::v1;
use dray_types::FaultCode;
use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::ask::{CallFailure, PeerService};
use super::outgoing::OutgoingFile;
use super::turn::TurnFiles;

/// Questions to the sandbox at one time.
const AT_ONCE: usize = 4;
/// Paths of one answer that are looked for; those beyond count as missing.
const MAX_PATHS: usize = 256;

/// The filter of one answer.
#[derive(Debug)]
pub struct MediaTagFilter {
    files: Arc<TurnFiles>,
    hold: HoldBack,
    /// What was asked: where a path leads, nothing when it does not.
    known: BTreeMap<String, Option<String>>,
    /// Why the sandbox could not be asked.
    away: Option<String>,
}

/// The end of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilteredRest {
    /// Text that was held back, and what is to be said about files that did not go.
    pub text: String,
    /// Files for the answer, where the session has no chat.
    pub attachments: Vec<Attachment>,
}

impl MediaTagFilter {
    /// A filter; nothing without a sandbox whose files tags could name.
    pub async fn new(files: &Arc<TurnFiles>) -> Option<Self> {
        files.has_sandbox().await.then(|| Self {
            files: Arc::clone(files),
            hold: HoldBack::new(),
            known: BTreeMap::new(),
            away: None,
        })
    }

    /// Takes the next piece and gives what can be shown.
    pub async fn push(&mut self, piece: &str) -> String {
        self.hold.feed(piece);
        if piece.contains('\n') {
            let paths = self.hold.undecided();
            self.look(paths).await;
        }
        let known = &self.known;
        self.hold.take(|path| known.get(path).cloned().flatten())
    }

    /// Ends the answer: sends what its tags name, once, and not what a tool of this turn has sent.
    pub async fn finish(mut self) -> FilteredRest {
        let paths = self.hold.undecided_at_end();
        self.look(paths).await;
        let known = self.known;
        let MediaExtraction {
            mut files,
            text,
            notices,
            directives,
        } = self.hold.finish(|path| known.get(path).cloned().flatten());
        if !files.is_empty() {
            note_real_paths(&self.files).await;
        }
        files.retain(|path| !self.files.was_sent(path.as_bytes()));
        let mut rest = FilteredRest {
            text,
            attachments: Vec::new(),
        };
        if let Some(away) = self.away {
            append_paragraph(&mut rest.text, &away);
        } else if !notices.is_empty() {
            append_paragraph(
                &mut rest.text,
                &format!("Could not be attached: {}.", notices.join(", ")),
            );
        }
        if files.is_empty() {
            return rest;
        }
        let parcel = OutgoingFile {
            paths: files.into_iter().map(String::into_bytes).collect(),
            flags: v1::DeliveryFlags {
                as_voice: directives.audio_as_voice,
                as_document: directives.as_document,
                spoiler: false,
            },
            ..OutgoingFile::default()
        };
        let end = Instant::now() + self.files.services.config.transfer_timeout.as_duration();
        match Box::pin(self.files.dispatch("media", parcel, end)).await {
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

    /// Asks the sandbox for the paths that are not known yet.
    async fn look(&mut self, paths: Vec<String>) {
        let room = MAX_PATHS.saturating_sub(self.known.len());
        let wanted: Vec<_> = paths
            .into_iter()
            .filter(|path| !self.known.contains_key(path))
            .take(room)
            .collect();
        if wanted.is_empty() || self.away.is_some() {
            return;
        }
        let files = &self.files;
        let jobs: Vec<_> = wanted
            .into_iter()
            .map(|path| lookup_path(files, path))
            .collect();
        let answers: Vec<_> = futures_util::stream::iter(jobs)
            .buffered(AT_ONCE)
            .collect()
            .await;
        for answer in answers {
            match answer {
                Ok((path, real)) => {
                    self.known.insert(path, real);
                }
                Err(away) => self.away = Some(away),
            }
        }
    }
}

/// Notes where the paths lead that went to the person: tools name them as they like, tags by the path itself. One that
/// is not there any more does not cause a wait.
async fn note_real_paths(files: &TurnFiles) {
    let jobs: Vec<_> = files
        .sent()
        .into_iter()
        .filter_map(|path| String::from_utf8(path).ok())
        .take(MAX_PATHS)
        .map(|path| lookup_path(files, path))
        .collect();
    let answers: Vec<_> = futures_util::stream::iter(jobs)
        .buffered(AT_ONCE)
        .collect()
        .await;
    let real = answers.into_iter().flatten().filter_map(|(_, real)| real);
    files.note_sent(real.map(String::into_bytes));
}

/// Where a path leads; nothing when it is not there or not allowed.
async fn lookup_path(files: &TurnFiles, path: String) -> Result<(String, Option<String>), String> {
    let sandbox = files
        .sandbox()
        .await
        .map_err(|failure| failure.to_string())?;
    let stat = v1::StatSandboxRequest {
        sandbox: Some(sandbox),
        path: path.clone().into_bytes(),
        follow: true,
    };
    let meta = files.meta(files.services.config.call_timeout.as_duration());
    match files.services.ask(PeerService::Sandbox, &meta, &stat).await {
        Ok(entry) if matches!(entry.kind.as_str(), "file" | "dir") => {
            let real = String::from_utf8(entry.real_path).unwrap_or_default();
            let real = if real.is_empty() { path.clone() } else { real };
            Ok((path, Some(real)))
        }
        Ok(_) => Ok((path, None)),
        Err(CallFailure::Refused(fault))
            if matches!(
                fault.code,
                FaultCode::NotFound
                    | FaultCode::Denied
                    | FaultCode::InvalidArgument
                    | FaultCode::Unsupported
            ) =>
        {
            Ok((path, None))
        }
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
