//! Makes, finds and revokes tickets.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_bus::Bus;
use dray_presentation::name;
use dray_proto::v1::TicketAction;
use dray_store::Store;
use dray_types::{Clock, OperationId, Sha256Digest};
use tokio_util::task::TaskTracker;

use crate::active::ActiveUploads;
use crate::destination::TicketDestination;
use crate::issue::{IssuedTicket, TicketRequest};
use crate::principal::Principal;
use crate::problem::TicketProblem;
use crate::record::{SegmentRecord, StoredContent, TicketDirection, TicketRecord, TicketState};
use crate::records::TicketRecords;
use crate::web_files::WebFilePolicy;

/// Random bytes of a URL.
const SECRET_BYTES: usize = 32;
/// Attempts to change a record that others change too.
pub(crate) const MAX_CHANGE_ATTEMPTS: u32 = 16;

/// The operator's limits on lifetime, size and number of tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketLimits {
    /// Most bytes of one ticket.
    pub max_bytes: u64,
    /// Most open tickets of one principal.
    pub max_open_tickets: usize,
    /// Most bytes of one principal: those of its open tickets and those that were transferred within a day.
    pub quota_bytes: u64,
    /// Longest lifetime; segments live at least a day.
    pub max_lifetime: Duration,
    /// Longest time without a byte before a connection counts as broken.
    pub idle_timeout: Duration,
}

impl Default for TicketLimits {
    fn default() -> Self {
        Self {
            max_bytes: 10 << 30,
            max_open_tickets: 32,
            quota_bytes: 32 << 30,
            max_lifetime: Duration::from_hours(12),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// The tickets of a system. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TicketService {
    pub(crate) inner: Arc<ServiceState>,
}

#[derive(Clone, Debug)]
pub(crate) struct ServiceState {
    pub(crate) records: TicketRecords,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) limits: TicketLimits,
    /// Which files from the web a download hands out.
    pub(crate) web_files: WebFilePolicy,
    /// Access to sandboxes and chats; without it tickets begin and end in the store.
    pub(crate) bus: Option<Bus>,
    /// Uploads at work in this process.
    pub(crate) active: ActiveUploads,
    /// Tasks of transfers, which record their end even when their connection breaks.
    pub(crate) tasks: TaskTracker,
}

/// A record with the revision by which it is changed.
#[derive(Clone, Debug)]
pub(crate) struct LoadedTicket {
    pub(crate) key: String,
    pub(crate) record: TicketRecord,
    pub(crate) revision: u64,
}

impl TicketService {
    /// Makes a service over these records and this store, without access to sandboxes and chats.
    pub fn new(records: TicketRecords, store: Store, clock: Clock, limits: TicketLimits) -> Self {
        Self {
            inner: Arc::new(ServiceState {
                records,
                store,
                clock,
                limits,
                web_files: WebFilePolicy::default(),
                bus: None,
                active: ActiveUploads::default(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// Allows uploads to a sandbox or a chat, and downloads from a sandbox, through the services on this bus.
    #[must_use]
    pub fn with_bus(self, bus: Bus) -> Self {
        let mut state = ServiceState::clone(&self.inner);
        state.bus = Some(bus);
        Self {
            inner: Arc::new(state),
        }
    }

    /// Keeps files from the web out of downloads by this rule, both when a ticket is made and when it is used.
    #[must_use]
    pub fn with_web_files(self, policy: WebFilePolicy) -> Self {
        let mut state = ServiceState::clone(&self.inner);
        state.web_files = policy;
        Self {
            inner: Arc::new(state),
        }
    }

    /// Makes a ticket.
    ///
    /// # Errors
    ///
    /// The request is not valid, the rule about files from the web refuses the content, a limit of the principal is
    /// reached, or the records are not available.
    pub async fn issue(
        &self,
        principal: &Principal,
        request: TicketRequest,
    ) -> Result<IssuedTicket, TicketProblem> {
        let inner = &self.inner;
        self.check_request(principal, &request).await?;
        let now_ms = inner.clock.now_ms();
        let expires_at_ms = request.expiry(now_ms);
        let secret = URL_SAFE_NO_PAD.encode(rand::random::<[u8; SECRET_BYTES]>());
        let key = ticket_key(&secret);
        // The space is reserved before the record is written: a ticket that is not counted must not exist.
        let (max_bytes, limits) = (request.max_bytes, &inner.limits);
        self.change_usage(&principal.usage_key(), |usage| {
            usage.reserve(&key, max_bytes, expires_at_ms, now_ms, limits)
        })
        .await?;
        let record = new_record(principal, request, now_ms, expires_at_ms);
        let mut ticket = LoadedTicket {
            key,
            record,
            revision: 0,
        };
        if let Err(problem) = self.save(&mut ticket).await {
            // The record may have been written, but its URL is lost.
            self.settle_usage(&ticket).await;
            return Err(problem);
        }
        self.record_action(&ticket.key, &ticket.record, TicketAction::Issued)
            .await;
        let LoadedTicket { key, record, .. } = ticket;
        Ok(IssuedTicket {
            secret,
            key,
            direction: record.direction,
            expires_at_ms,
            max_bytes,
            name: record.name,
            content: record.content,
            offers_parts: record.direction == TicketDirection::Upload
                && inner.store.has_public_endpoint(),
        })
    }

    /// Checks a request for a ticket before anything is counted or recorded for it.
    async fn check_request(
        &self,
        principal: &Principal,
        request: &TicketRequest,
    ) -> Result<(), TicketProblem> {
        request.check(&self.inner.limits)?;
        if request.destination.is_some() && self.inner.bus.is_none() {
            return Err(TicketProblem::Invalid(
                "this endpoint reaches no destinations",
            ));
        }
        if let Some(TicketDestination::Sandbox { directory }) = &request.destination {
            self.check_directory(principal, directory).await?;
        }
        match &request.content {
            Some(content) => {
                let is_sandbox_file = request.pinned.is_some();
                self.check_origin(&principal.tenant, content, is_sandbox_file)
                    .await
            }
            None => Ok(()),
        }
    }

    /// Ends a ticket and removes the bytes received so far. A used ticket stays used. A ticket whose content is being
    /// stored or brought to its destination is in use: this work cannot be undone, so its outcome must be recorded.
    ///
    /// # Errors
    ///
    /// The ticket does not exist, is used, in use or expired, or the records are not available.
    pub async fn revoke(&self, secret: &str) -> Result<(), TicketProblem> {
        let ticket = self.find(secret).await?;
        self.revoke_loaded(ticket).await?;
        Ok(())
    }

    /// Like [`Self::revoke`], for a ticket that was found by its id.
    pub(crate) async fn revoke_loaded(
        &self,
        mut ticket: LoadedTicket,
    ) -> Result<LoadedTicket, TicketProblem> {
        let key = ticket.key.clone();
        for _ in 0..MAX_CHANGE_ATTEMPTS {
            self.check_usable(&ticket.record)?;
            if ticket.record.is_finishing(self.inner.clock.now_ms()) {
                return Err(TicketProblem::InUse);
            }
            let is_sending = ticket.record.direction == TicketDirection::Download
                && ticket.record.is_leased(self.inner.clock.now_ms());
            if is_sending {
                // The record does not have the bytes of the running response, which may be nearly all.
                ticket.record.sent_bytes = ticket.record.sent_bytes.max(ticket.record.max_bytes);
            }
            match self.end(ticket, TicketState::Revoked).await {
                // A running transfer records its progress.
                Err(TicketProblem::Superseded) => ticket = self.load(&key).await?,
                ended => return ended,
            }
        }
        Err(TicketProblem::Superseded)
    }

    /// Finds a ticket by the secret of its URL, in any state.
    pub(crate) async fn find(&self, secret: &str) -> Result<LoadedTicket, TicketProblem> {
        // Any other text cannot be a key, and is unknown like a wrong secret.
        let is_secret = secret.len() == 43
            && secret
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if !is_secret {
            return Err(TicketProblem::Unknown);
        }
        self.load(&ticket_key(secret)).await
    }

    /// Finds a ticket that still can be used.
    pub(crate) async fn find_usable(&self, secret: &str) -> Result<LoadedTicket, TicketProblem> {
        let ticket = self.find(secret).await?;
        self.check_usable(&ticket.record)?;
        Ok(ticket)
    }

    pub(crate) fn check_usable(&self, record: &TicketRecord) -> Result<(), TicketProblem> {
        match record.state {
            TicketState::Complete => Err(TicketProblem::Used),
            TicketState::Failed => Err(TicketProblem::Spent),
            TicketState::Revoked => Err(TicketProblem::Revoked),
            TicketState::Open | TicketState::Active | TicketState::Stored
                if record.is_expired(self.inner.clock.now_ms()) =>
            {
                Err(TicketProblem::Expired)
            }
            TicketState::Open | TicketState::Active | TicketState::Stored => Ok(()),
        }
    }

    pub(crate) async fn load(&self, key: &str) -> Result<LoadedTicket, TicketProblem> {
        let entry = self.inner.records.get(key).await?;
        let (value, revision) = entry.ok_or(TicketProblem::Unknown)?;
        let record = serde_json::from_slice(&value).map_err(|error| {
            tracing::error!(%error, ticket = ticket_id(key), "the record of a ticket is damaged");
            TicketProblem::Unavailable
        })?;
        Ok(LoadedTicket {
            key: key.to_owned(),
            record,
            revision,
        })
    }

    /// Writes a changed record.
    ///
    /// # Errors
    ///
    /// [`TicketProblem::Superseded`] when another request changed the record since. After
    /// [`TicketProblem::Unavailable`] the record may have been written.
    pub(crate) async fn save(&self, ticket: &mut LoadedTicket) -> Result<(), TicketProblem> {
        let value = encode_json(&ticket.record);
        let records = &self.inner.records;
        ticket.revision = records.put(&ticket.key, value, ticket.revision).await?;
        Ok(())
    }

    /// Writes a changed record of a ticket whose lease this request holds, or held before the change. A renewal of the
    /// lease that was written although it failed changed nothing else, so its revision is taken over.
    ///
    /// # Errors
    ///
    /// Like [`Self::save`], and like [`Self::load`] when the changed record cannot be read.
    pub(crate) async fn save_as_holder(
        &self,
        ticket: &mut LoadedTicket,
        holder: Option<&str>,
    ) -> Result<(), TicketProblem> {
        match self.save(ticket).await {
            Err(TicketProblem::Superseded) => {}
            saved => return saved,
        }
        let stored = self.load(&ticket.key).await?;
        if holder.is_none() || stored.record.holder() != holder {
            return Err(TicketProblem::Superseded);
        }
        ticket.revision = stored.revision;
        self.save(ticket).await
    }

    /// Changes a ticket to a final state, removes its segments, and releases its reservation.
    pub(crate) async fn end(
        &self,
        ticket: LoadedTicket,
        state: TicketState,
    ) -> Result<LoadedTicket, TicketProblem> {
        self.end_as_holder(ticket, state, None).await
    }

    /// Like [`Self::end`], for the request with this lease.
    pub(crate) async fn end_as_holder(
        &self,
        mut ticket: LoadedTicket,
        state: TicketState,
        holder: Option<&str>,
    ) -> Result<LoadedTicket, TicketProblem> {
        let segments = std::mem::take(&mut ticket.record.segments);
        ticket.record.state = state;
        ticket.record.lease = None;
        self.save_as_holder(&mut ticket, holder).await?;
        self.remove_segments(&ticket.record, &segments).await;
        self.discard_direct(&ticket.record).await;
        self.settle_usage(&ticket).await;
        let action = match state {
            TicketState::Complete => TicketAction::Completed,
            TicketState::Failed => TicketAction::Refused,
            // Only final states reach this line.
            TicketState::Revoked
            | TicketState::Open
            | TicketState::Active
            | TicketState::Stored => TicketAction::Revoked,
        };
        self.record_action(&ticket.key, &ticket.record, action)
            .await;
        Ok(ticket)
    }

    /// Removes parts that were sent directly to the store, bypassing this process.
    pub(crate) async fn discard_direct(&self, record: &TicketRecord) {
        if let Some(direct) = &record.direct {
            self.inner.store.discard_parts(&direct.upload).await;
        }
    }

    /// Removes segments that no record refers to. If this fails, they are swept with the staging area.
    pub(crate) async fn remove_segments(&self, record: &TicketRecord, segments: &[SegmentRecord]) {
        let Some(operation) = record.operation() else {
            return;
        };
        for segment in segments.iter().filter_map(SegmentRecord::to_staged) {
            let removed = self.inner.store.remove_segment(&operation, &segment).await;
            if let Err(error) = removed {
                tracing::warn!(%error, "could not remove a segment of an upload");
            }
        }
    }
}

/// The id of a ticket, which names it to its maker: the last part of its key.
pub(crate) fn ticket_id(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or_default()
}

/// The key of a ticket's record: the secret itself is in no record.
fn ticket_key(secret: &str) -> String {
    format!("ticket.{}", Sha256Digest::of(secret.as_bytes()))
}

fn cleaned_name(given: &str) -> String {
    if given.is_empty() {
        return String::new();
    }
    name::clean_name(given)
}

pub(crate) fn encode_json(value: &impl serde::Serialize) -> bytes::Bytes {
    // This never fails: the types have no maps with other keys than strings.
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// The record of an unused ticket.
fn new_record(
    principal: &Principal,
    request: TicketRequest,
    now_ms: u64,
    expires_at_ms: u64,
) -> TicketRecord {
    let name = cleaned_name(&request.name);
    // The response of a download has the name that its maker chose, or else that of the content.
    let content = request.content.map(|content| match name.as_str() {
        "" => content,
        _ => StoredContent {
            name: name.clone(),
            ..content
        },
    });
    TicketRecord {
        tenant: principal.tenant.as_str().to_owned(),
        session: principal.session.as_str().to_owned(),
        direction: request.direction,
        max_bytes: request.max_bytes,
        size: request.size,
        media_type: request.media_type,
        sha256: request.sha256.map(Sha256Digest::to_hex),
        name,
        named_by_sender: false,
        created_at_ms: now_ms,
        expires_at_ms,
        state: TicketState::Open,
        operation: OperationId::mint().as_str().to_owned(),
        announced: None,
        length_deferred: false,
        announced_sha256: None,
        segments: Vec::new(),
        moved: 0,
        sent_bytes: 0,
        lease: None,
        content,
        destination: request.destination,
        receipt: None,
        pinned: request.pinned,
        direct: None,
    }
}
