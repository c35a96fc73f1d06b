//! Plans the visible requests of a delivery, and links for files that no request can contain.

use std::collections::BTreeSet;
use std::sync::Arc;

use dray_delivery_rules::failure::MAX_INLINE_WAIT;
use dray_media_type::kind;
use dray_platform::{
    ChatLimits, ErrorKind, OutgoingDelivery, OutgoingFile, PlatformError, Route, SendFlags,
};
use dray_proto::v1;
use dray_types::{Claim, Sha256Digest, whole_millis};

use super::run::{DeliveryRun, OpenDelivery, StepFlow};
use super::store::store_unavailable;
use super::target_of;
use crate::accounts::PlatformAccount;
use crate::cli;
use crate::error::DeliveryError;
use crate::link::{self, LinkPolicy};
use crate::machine::{DeliveryStep, ReadyStep, StepPlan, has_attempts_left};
use crate::record::{FileRecord, WaitingReason};
use crate::source::to_platform_error;
use crate::status;

impl DeliveryRun<'_> {
    /// Reads limits and files, and plans the steps unless they are planned. The inner error says how the work ends:
    /// parked, or finished.
    pub(super) async fn open(
        &mut self,
        account: Arc<PlatformAccount>,
        chat: String,
    ) -> Result<Result<OpenDelivery, StepFlow>, DeliveryError> {
        let target = target_of(&self.record().target.clone().unwrap_or_default());
        let is_planned = !self.record().steps.is_empty();
        // The plan is judged before any request to the platform and before a byte is read.
        if !is_planned {
            self.judge_web_files(&account).await?;
        }
        let mut limits = match self.limits(&account).await? {
            Ok(limits) => limits,
            // A step may be visible already, so its outcome is determined even when the chat no longer reports
            // limits.
            Err(StepFlow::Next) if is_planned => unlimited_limits(),
            Err(flow) => return Ok(Err(flow)),
        };
        let learned_limit = self
            .context
            .platform_cache
            .limit(&account.id(), &chat)
            .await;
        if let Some(learned_limit) = learned_limit {
            // Platforms report larger limits than they accept; a refusal that named a smaller one was remembered.
            limits = limits.at_most(learned_limit);
        }
        let mut open = OpenDelivery {
            account,
            chat,
            delivery: OutgoingDelivery {
                id: self.record().delivery_id.clone(),
                target,
                message: self.record().message.clone(),
                files: Vec::new(),
                flags: send_flags(self.record().flags.unwrap_or_default()),
            },
            live: Vec::new(),
            limits,
        };
        self.read_heads(&mut open).await?;
        if !is_planned {
            self.plan(&open).await?;
        }
        Ok(Ok(open))
    }

    /// Limits of the chat. `StepFlow::Next` if the chat cannot be served; its files are marked as failed then.
    async fn limits(
        &mut self,
        account: &PlatformAccount,
    ) -> Result<Result<ChatLimits, StepFlow>, DeliveryError> {
        let target = target_of(&self.record().target.clone().unwrap_or_default());
        let mut attempts = 0;
        loop {
            attempts += 1;
            let limits_read = tokio::select! {
                limits_read = account.platform.limits(&target) => limits_read,
                () = self.cancel.cancelled() => return Err(DeliveryError::Interrupted),
            };
            let error = match limits_read {
                Ok(limits) => return Ok(Ok(limits)),
                Err(error) => error,
            };
            tracing::warn!(%error, "could not fetch the limits of a chat");
            let delay = match error.kind() {
                ErrorKind::RateLimited => error
                    .retry_after()
                    .unwrap_or_else(|| self.context.send_delays.backoff(attempts)),
                // No message is visible yet, so any number of attempts would be safe; the bound limits the time of the
                // worker.
                ErrorKind::Transient if has_attempts_left(attempts) => {
                    self.context.send_delays.backoff(attempts)
                }
                _ => {
                    self.fail_open_files(&error);
                    return Ok(Err(StepFlow::Next));
                }
            };
            if delay > MAX_INLINE_WAIT {
                // Other messages to this chat wait as well instead of asking again and extending the penalty.
                self.context
                    .send_delays
                    .limiter
                    .hold_refused(&account.id(), &target.chat, &error);
                return Ok(Err(self.park_after(delay, WaitingReason::RateLimited)));
            }
            if !self.pause(delay).await? {
                self.fail_open_files(&error);
                return Ok(Err(StepFlow::Next));
            }
        }
    }

    /// Fails every file without a final state for this reason, unless a step may have been sent.
    fn fail_open_files(&mut self, error: &PlatformError) {
        let kind = error.kind();
        // Files of an open step may have arrived; only the reconciler decides about those.
        if self.record().steps.iter().any(|step| !step.is_final()) {
            return;
        }
        for file in &mut self.record_mut().files {
            if !file.state.is_final() {
                fail_file(file, kind, error);
            }
        }
    }

    /// The flow that parks the delivery for this delay.
    pub(super) fn park_after(&self, delay: std::time::Duration, reason: WaitingReason) -> StepFlow {
        let delay = whole_millis(delay);
        StepFlow::Park(self.context.clock.now_ms().saturating_add(delay), reason)
    }

    /// Opens the files that may still be sent, and detects their kinds from their first bytes.
    async fn read_heads(&mut self, open: &mut OpenDelivery) -> Result<(), DeliveryError> {
        let needed: BTreeSet<u32> = self
            .record()
            .steps
            .iter()
            .filter(|step| !step.is_final())
            .flat_map(|step| step.files.iter().copied())
            .collect();
        let is_planned = !self.record().steps.is_empty();
        for (index, file) in self.record().files.clone().into_iter().enumerate() {
            let is_needed = u32::try_from(index).is_ok_and(|index| needed.contains(&index));
            // The bytes of a preview stay in the sandbox.
            if file.preview.is_some() {
                continue;
            }
            // A file without an open step no longer needs bytes, and its object may have expired.
            if !is_needed && (is_planned || file.state.is_final()) {
                continue;
            }
            match self.open_file(&file).await? {
                Ok(outgoing) => {
                    open.delivery.files.push(outgoing);
                    open.live.push(index);
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "a stored file cannot be delivered"
                    );
                    if let Some(file) = self.record_mut().files.get_mut(index) {
                        fail_file(file, ErrorKind::Source, &error);
                    }
                }
            }
        }
        Ok(())
    }

    async fn open_file(
        &self,
        file: &FileRecord,
    ) -> Result<Result<OutgoingFile, PlatformError>, DeliveryError> {
        let missing = || PlatformError::new(ErrorKind::Source, "the file has no usable claim");
        let Some(source) = self.stored_source(file) else {
            return Ok(Err(missing()));
        };
        let Ok(sha256) = Sha256Digest::try_from(file.sha256.as_slice()) else {
            return Ok(Err(missing()));
        };
        let mut attempts = 0;
        let head = loop {
            attempts += 1;
            // The bytes decide the type, not the name or the type that the sandbox reported.
            match source.head(kind::HEAD_BYTES).await {
                Ok(head) => break head,
                // Nothing was sent, so the record stays as it is.
                Err(error) if error.is_unavailable() => return Err(store_unavailable(error)),
                Err(error) => {
                    if !has_attempts_left(attempts)
                        || !self
                            .pause(self.context.send_delays.backoff(attempts))
                            .await?
                    {
                        return Ok(Err(to_platform_error(error)));
                    }
                }
            }
        };
        Ok(Ok(OutgoingFile {
            name: file.name.clone(),
            size: file.size,
            sha256,
            detected: kind::detect_kind(&head, &file.name, file.size),
            source: Arc::new(source),
            file_id: None,
        }))
    }

    /// Plans the steps with the platform, adds links for files that are in no step, and stores the plan.
    async fn plan(&mut self, open: &OpenDelivery) -> Result<(), DeliveryError> {
        let planned = open.account.platform.plan(&open.delivery, &open.limits);
        let mut steps: Vec<ReadyStep> = Vec::new();
        let message = open.delivery.message.trim();
        // The message is a caption where the platform has room for one; otherwise it becomes a separate step.
        let has_text = planned.iter().any(|step| !step.text().trim().is_empty());
        if !message.is_empty() && !has_text {
            // An agent's text must not notify everyone in a channel (`@everyone`, `@here`).
            let text = dray_presentation::caption::neutralise_mentions(message);
            steps.push(self.new_step(&steps, StepPlan::text(Route::Text, text)));
        }
        let mut covered = BTreeSet::new();
        for step in planned {
            covered.extend(step.files().iter().copied());
            steps.push(self.new_step(&steps, open.record_plan(&step)));
        }
        for (position, file) in open.delivery.files.iter().enumerate() {
            let Some(index) = open
                .record_index(position)
                .filter(|_| !covered.contains(&position))
            else {
                continue;
            };
            // A link to an empty file would be useless, and platforms reject empty files.
            if file.size > 0 && self.can_link(index).await? {
                steps.push(self.new_step(&steps, StepPlan::link(index)));
                continue;
            }
            let error = if file.size == 0 {
                PlatformError::new(ErrorKind::Empty, "the platform takes no empty file")
            } else {
                PlatformError::new(
                    ErrorKind::TooLarge,
                    "the file fits no route and no link is allowed",
                )
                .with_numbers(file.size, largest_file(&open.limits))
            };
            if let Some(file) = self.file_mut(index) {
                fail_file(file, error.kind(), &error);
            }
        }
        let previews: Vec<u32> = (0_u32..)
            .zip(&self.record().files)
            .filter(|(_, file)| file.preview.is_some() && !file.state.is_final())
            .map(|(index, _)| index)
            .collect();
        for index in previews {
            steps.push(self.new_step(&steps, StepPlan::link(index)));
        }
        self.record_mut().steps = steps.into_iter().map(DeliveryStep::from).collect();
        self.save().await
    }

    /// Whether a link to this file is allowed and of any use.
    ///
    /// # Errors
    /// The store is away, which says nothing about the link.
    pub(super) async fn can_link(&self, index: u32) -> Result<bool, DeliveryError> {
        let policy = self.context.config.get().links;
        if policy == LinkPolicy::Never {
            return Ok(false);
        }
        let Ok(presigned) = self.link(index).await else {
            self.check_store(&[index]).await?;
            return Ok(false);
        };
        // A link to a loopback or private address would not open on the user's device.
        Ok(policy == LinkPolicy::Always || link::leads_outside(presigned.url.expose()))
    }

    /// A link to this file, made now.
    pub(super) async fn link(
        &self,
        index: u32,
    ) -> Result<dray_store::PresignedLink, PlatformError> {
        let missing = || PlatformError::new(ErrorKind::Source, "no link can be made");
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let file = self.record().files.get(index).ok_or_else(missing)?;
        let claim = file.claim.clone().ok_or_else(missing)?;
        let mut claim = Claim::try_from(claim).map_err(|error| missing().caused_by(error))?;
        // The link downloads under the name that the user sees.
        claim.artifact.name.clone_from(&file.name);
        if dray_store::cache_key(&claim).is_some() {
            // The record keeps the object for as long as the link is valid (`crate::cache`).
            // The cache's own rule replaces the expiry of the claim here, so the signature may outlive it.
            claim.expires_at_ms = u64::MAX;
        }
        let lifetime = self.context.config.get().link_lifetime.as_duration();
        self.context
            .store
            .presign_judged(&self.meta.tenant, &claim, lifetime)
            .await
            .map_err(|error| missing().caused_by(error))
    }
}

/// Marks a file as failed for this reason, with the size limit if the platform named one.
pub(super) fn fail_file(file: &mut FileRecord, kind: ErrorKind, error: &PlatformError) {
    file.give_up(kind, error.platform_code());
    if kind == error.kind() {
        file.error_message = error.sentence().into_owned();
    }
    if let Some(sentence) = sentence_of_code(error.platform_code()) {
        sentence.clone_into(&mut file.error_message);
    }
    if kind == ErrorKind::TooLarge
        && let Some((_, allowed)) = error.numbers()
    {
        file.limit = allowed;
        file.error_message = format!(
            "The file is too large for this chat ({}).",
            dray_presentation::size::over_limit(file.size, allowed)
        );
    }
}

/// A sentence that is more precise than the one for the kind.
fn sentence_of_code(code: &str) -> Option<&'static str> {
    if code.starts_with("redirect_") {
        return Some("The address redirects, which is not followed.");
    }
    status::full_mailbox_sentence(code).or_else(|| cli::directory_sentence(code))
}

/// The largest file on any route.
pub(super) fn largest_file(limits: &ChatLimits) -> u64 {
    let routes = limits.routes.iter().map(|(_, limit)| *limit);
    routes.fold(limits.any, u64::max)
}

/// Limits of a chat that no longer reports them, for steps that were planned with its old ones.
fn unlimited_limits() -> ChatLimits {
    ChatLimits {
        routes: Vec::new(),
        any: u64::MAX,
        caption: usize::MAX,
        text: usize::MAX,
        per_message: usize::MAX,
        request: None,
        download: None,
    }
}

fn send_flags(flags: v1::DeliveryFlags) -> SendFlags {
    let v1::DeliveryFlags {
        as_voice,
        as_document,
        spoiler,
        as_preview: _,
    } = flags;
    SendFlags {
        as_voice,
        as_document,
        spoiler,
    }
}
