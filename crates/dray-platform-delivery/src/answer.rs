//! An agent's final text: its `MEDIA:` tags become deliveries, and what the tool sent in the same turn is not sent
//! again (platform-delivery 2.7, 3).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dray_bus::{CallError, Meta};
use dray_content::media;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1::{self, sandbox_ref};
use dray_types::{FaultCode, OperationId};
use futures_util::StreamExt as _;

use crate::deliver::DeliveryService;
use crate::error::DeliveryError;
use crate::gather::asked_in_vain;
use crate::records;
use crate::report::{self, state};

/// Longest text.
const TEXT_MOST: usize = 100 * 1024;
/// Paths that are looked for; those beyond count as missing.
const PATHS_MOST: usize = 256;
/// Questions to the sandbox at one time.
const AT_ONCE: usize = 4;
/// How long it is kept what the tool sent in a turn.
const TURN_RETENTION: Duration = Duration::from_hours(24);

/// What the tool sent in a turn: delivery and path.
type Sent = Vec<(String, String)>;

impl DeliveryService {
    /// Takes the tags out of a text and sends what they name, as the delivery with this call's operation.
    ///
    /// # Errors
    /// The sandbox cannot be asked, or the work not published.
    pub async fn send_text(
        &self,
        meta: &Meta,
        request: &v1::SendTextRequested,
    ) -> Result<v1::SendTextReply, DeliveryError> {
        if request.session.is_empty() {
            return Err(InvalidMessage::Missing("session").into());
        }
        if request.text.len() > TEXT_MOST {
            let reason = format!("it has more than {TEXT_MOST} bytes");
            return Err(InvalidMessage::field("text", reason).into());
        }
        let wanted = media::tag_paths(&request.text);
        let found = self.find(meta, &request.session, wanted).await?;
        let extraction = media::extract_with(&request.text, |path| found.get(path).cloned());
        let sent = self
            .sent_in_turn(meta, &request.session, &request.turn)
            .await?;
        let mut files = extraction.files;
        files.retain(|file| !sent.contains(file));
        files.truncate(self.config.max_files);
        let mut reply = v1::SendTextReply {
            text: extraction.text,
            notices: extraction.notices,
            ..v1::SendTextReply::default()
        };
        if files.is_empty() {
            return Ok(reply);
        }
        let work = v1::SendFileRequested {
            session: request.session.clone(),
            paths: files.into_iter().map(String::into_bytes).collect(),
            flags: Some(v1::DeliveryFlags {
                as_voice: extraction.directives.audio_as_voice,
                as_document: extraction.directives.as_document,
                spoiler: false,
            }),
            turn: request.turn.clone(),
            ..v1::SendFileRequested::default()
        };
        reply.delivery_id = self.accept(meta, &work).await?.delivery_id;
        Ok(reply)
    }

    /// Which of these paths are there, with the path that they lead to.
    async fn find(
        &self,
        meta: &Meta,
        session: &str,
        paths: Vec<String>,
    ) -> Result<BTreeMap<String, String>, DeliveryError> {
        let mut questions = Vec::new();
        for path in paths.into_iter().take(PATHS_MOST) {
            questions.push(self.lookup(meta, session, path));
        }
        let answers: Vec<_> = futures_util::stream::iter(questions)
            .buffered(AT_ONCE)
            .collect()
            .await;
        let mut found = BTreeMap::new();
        for answer in answers {
            if let Some((path, real)) = answer? {
                found.insert(path, real);
            }
        }
        Ok(found)
    }

    /// A path and where it leads; nothing when it is not there or not allowed.
    async fn lookup(
        &self,
        meta: &Meta,
        session: &str,
        path: String,
    ) -> Result<Option<(String, String)>, DeliveryError> {
        let stat = v1::StatSandboxRequest {
            sandbox: Some(v1::SandboxRef {
                sandbox: Some(sandbox_ref::Sandbox::Session(session.to_owned())),
            }),
            path: path.clone().into_bytes(),
            follow: true,
        };
        // An operation of its own for each path: equal ids would make them one question.
        let question = meta.clone().with_operation(OperationId::mint());
        match self.bus.call(&question, &stat).await {
            Ok(entry) if matches!(entry.kind.as_str(), "file" | "dir") => {
                let real = String::from_utf8(entry.real_path).unwrap_or_default();
                let real = if real.is_empty() { path.clone() } else { real };
                Ok(Some((path, real)))
            }
            Ok(_) => Ok(None),
            Err(CallError::Fault(fault))
                if matches!(
                    fault.code,
                    FaultCode::NotFound
                        | FaultCode::Denied
                        | FaultCode::InvalidArgument
                        | FaultCode::Unsupported
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(asked_in_vain("a tagged file", error)),
        }
    }

    /// Takes note of what a request of the tool sends in its turn.
    pub(crate) async fn note_turn(&self, meta: &Meta, work: &v1::SendFileRequested) {
        if work.turn.is_empty() || work.paths.is_empty() {
            return;
        }
        let key = turn_key(meta, &work.session, &work.turn);
        let mut sent: Sent = self.platform_cache.get(&key).await.unwrap_or_default();
        for path in &work.paths {
            let entry = (
                meta.operation.to_string(),
                String::from_utf8_lossy(path).into_owned(),
            );
            if !sent.contains(&entry) {
                sent.push(entry);
            }
        }
        self.platform_cache.set(&key, &sent, TURN_RETENTION).await;
    }

    /// Paths that the tool sent or is sending in this turn, as written and resolved. What failed may be sent again.
    async fn sent_in_turn(
        &self,
        meta: &Meta,
        session: &str,
        turn: &str,
    ) -> Result<BTreeSet<String>, DeliveryError> {
        let mut paths = BTreeSet::new();
        if turn.is_empty() {
            return Ok(paths);
        }
        let key = turn_key(meta, session, turn);
        let sent: Sent = self.platform_cache.get(&key).await.unwrap_or_default();
        for (delivery, path) in sent {
            if delivery == meta.operation.as_str()
                || self.has_failed(meta, &delivery, &path).await?
            {
                continue;
            }
            if let Some((_, real)) = self.lookup(meta, session, path.clone()).await? {
                paths.insert(real);
            }
            paths.insert(path);
        }
        Ok(paths)
    }

    async fn has_failed(
        &self,
        meta: &Meta,
        delivery: &str,
        path: &str,
    ) -> Result<bool, DeliveryError> {
        let Ok(id) = OperationId::new(delivery) else {
            return Ok(false);
        };
        let key = records::record_key(&meta.tenant, &id);
        let Some(held) = self.records.read(&key).await? else {
            return Ok(false);
        };
        let mut files = held.report.files.iter();
        Ok(files.any(|file| {
            file.path == path.as_bytes()
                && report::is_final(&file.state)
                && matches!(
                    file.state.as_str(),
                    state::STATE_FAILED | state::STATE_REJECTED
                )
        }))
    }
}

fn turn_key(meta: &Meta, session: &str, turn: &str) -> String {
    let digest = dray_types::Sha256Digest::of(format!("{session}\0{turn}").as_bytes());
    format!("turn.{}.{}", meta.tenant.token(), digest.to_hex())
}
