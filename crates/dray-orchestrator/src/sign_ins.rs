//! Sign-ins of users at MCP servers, kept between requests: pages that are open, and tokens.
//!
//! A browser that comes back from an authorization server sends no key of this service, so its request proves only that
//! some user signed in. That user sees a code, and the sign-in takes effect when the principal that asked for it sends
//! the code in the same conversation. So a sign-in page that is passed on to another person has no effect: that person
//! cannot write in the conversation. Records are encrypted, because operators of the bus can read its buckets.

mod codes;
mod lease;
mod seal;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Message, Role};
use dray_tool_mcp::{
    CallbackRefusal, ConfirmedSignIn, PendingSignIn, RenewalLease, SignInKeeper, SignInOwner,
    SignInStoreError,
};
use dray_types::whole_millis;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::records::{CallerRecords, RecordError, RecordKind, digest_prefix};
use codes::{codes_in, random_code};
use seal::RecordSeal;

/// Path of the redirect URI.
pub(crate) const CALLBACK_PATH: &str = "/v1/sign-in/callback";
/// How long a page may be open before its user has signed in.
const PAGE_LIFETIME: Duration = Duration::from_mins(15);
/// How long the code of a page may be sent. Authorization codes are valid for at most 10 minutes (RFC 6749 section
/// 4.1.2).
const CODE_LIFETIME: Duration = Duration::from_mins(10);
/// Attempts to replace tokens that another replica replaces too.
const MAX_WRITE_ATTEMPTS: u32 = 4;
/// Owner of records that are searched before their principal is known.
const NO_PRINCIPAL: &str = "";

/// A record whose content is encrypted.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SealedRecord {
    /// Unix milliseconds from which the record counts as missing.
    expires_ms: u64,
    sealed: String,
}

/// A sign-in whose page was given out and has not come back.
#[derive(Serialize, Deserialize)]
struct OpenPage {
    owner: SignInOwner,
    conversation: String,
    pending: PendingSignIn,
}

/// A sign-in whose browser came back.
#[derive(Serialize, Deserialize)]
struct ReturnedPage {
    conversation: String,
    confirmed: ConfirmedSignIn,
}

/// The page that the user gets after the sign-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallbackPage {
    /// The code to send in the chat, and the tool set that it is for.
    Code { code: String, toolset: String },
    /// The page was used, is too old, or never existed.
    Unknown,
    /// Another authorization server answered.
    WrongIssuer,
    /// The user or the authorization server refused.
    Denied,
}

/// The sign-ins of all callers of a tenant.
pub(crate) struct StoredSignIns {
    records: CallerRecords,
    seal: RecordSeal,
    redirect_uri: String,
}

impl fmt::Debug for StoredSignIns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredSignIns")
            .field("redirect_uri", &self.redirect_uri)
            .finish_non_exhaustive()
    }
}

impl StoredSignIns {
    /// Sign-ins in these records. `base_url` is where browsers reach this service.
    pub(crate) fn new(records: CallerRecords, base_url: &str) -> Self {
        let keys = records.store().derive_keys("sign-ins at MCP servers");
        let seal = RecordSeal::new(&keys);
        Self {
            records,
            seal,
            redirect_uri: format!("{}{CALLBACK_PATH}", base_url.trim_end_matches('/')),
        }
    }

    /// Handles the query with which a browser comes back from the authorization server. Each page works once.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails; the browser may try again.
    pub(crate) async fn receive_callback(
        &self,
        query: &str,
    ) -> Result<CallbackPage, RequestFailure> {
        let returned = format!("{}?{query}", self.redirect_uri);
        let Some(id) = state_of(&returned).map(|state| record_id(&state)) else {
            return Ok(CallbackPage::Unknown);
        };
        let kind = RecordKind::SignInPage;
        let Some((page, revision)) = self.read::<OpenPage>(kind, NO_PRINCIPAL, &id).await? else {
            return Ok(CallbackPage::Unknown);
        };
        let checked = page.pending.check_callback(&returned);
        match checked {
            Err(CallbackRefusal::Foreign) => return Ok(CallbackPage::Unknown),
            // The page stays open: a forged response must not end the sign-in of its user.
            Err(CallbackRefusal::WrongIssuer) => return Ok(CallbackPage::WrongIssuer),
            Err(CallbackRefusal::Denied) | Ok(()) => {}
        }
        match self.records.delete(kind, NO_PRINCIPAL, &id, revision).await {
            Ok(()) => {}
            // Another request for the same page came first.
            Err(RecordError::Stale) => return Ok(CallbackPage::Unknown),
            Err(RecordError::Failed(failure)) => return Err(failure),
        }
        if checked.is_err() {
            return Ok(CallbackPage::Denied);
        }
        let (principal, toolset) = (page.owner.principal.clone(), page.pending.toolset.clone());
        let returned = ReturnedPage {
            conversation: page.conversation,
            confirmed: ConfirmedSignIn {
                owner: page.owner,
                pending: page.pending,
                returned,
            },
        };
        let code = random_code();
        let kind = RecordKind::SignInCode;
        let id = record_id(&code);
        self.create(kind, &principal, &id, CODE_LIFETIME, &returned)
            .await?;
        Ok(CallbackPage::Code { code, toolset })
    }

    /// The sign-ins whose codes are in the last message, if it is one of the user. Codes of other principals and
    /// conversations are unknown. Each code works once.
    pub(crate) async fn take_confirmed(
        &self,
        principal: &str,
        conversation: &str,
        messages: &[Message],
    ) -> Vec<ConfirmedSignIn> {
        let last = messages.last().filter(|last| last.role == Role::User);
        let codes = last.map(codes_in).unwrap_or_default();
        let mut confirmed = Vec::new();
        for code in codes {
            match self.take_code(principal, conversation, &code).await {
                Ok(found) => confirmed.extend(found),
                Err(failure) => tracing::warn!(%failure, "the code of a sign-in was not looked up"),
            }
        }
        confirmed
    }

    async fn take_code(
        &self,
        principal: &str,
        conversation: &str,
        code: &str,
    ) -> Result<Option<ConfirmedSignIn>, RequestFailure> {
        let (kind, id) = (RecordKind::SignInCode, record_id(code));
        let found = self.read::<ReturnedPage>(kind, principal, &id).await?;
        let Some((page, revision)) = found.filter(|(page, _)| page.conversation == conversation)
        else {
            return Ok(None);
        };
        match self.records.delete(kind, principal, &id, revision).await {
            Ok(()) => Ok(Some(page.confirmed)),
            Err(RecordError::Stale) => Ok(None),
            Err(RecordError::Failed(failure)) => Err(failure),
        }
    }

    /// Reads a record that has not expired, with its revision.
    async fn read<T: DeserializeOwned>(
        &self,
        kind: RecordKind,
        principal: &str,
        id: &str,
    ) -> Result<Option<(T, u64)>, RequestFailure> {
        let found = self
            .records
            .get::<SealedRecord>(kind, principal, id)
            .await?;
        let opened = found.filter(|record| record.value.expires_ms > self.records.now_ms());
        Ok(opened.and_then(|record| {
            let associated = associated_data(kind, principal, id);
            let value = self.seal.open(&associated, &record.value.sealed)?;
            Some((serde_json::from_slice(&value).ok()?, record.revision))
        }))
    }

    fn sealed<T: Serialize>(
        &self,
        kind: RecordKind,
        principal: &str,
        id: &str,
        lifetime: Duration,
        value: &T,
    ) -> Result<SealedRecord, RequestFailure> {
        let value = serde_json::to_vec(value).map_err(|_| RequestFailure::unexpected())?;
        let sealed = self.seal.seal(&associated_data(kind, principal, id), value);
        let lifetime_ms = whole_millis(lifetime);
        Ok(SealedRecord {
            expires_ms: self.records.now_ms().saturating_add(lifetime_ms),
            sealed: sealed.ok_or_else(RequestFailure::unexpected)?,
        })
    }

    async fn create<T: Serialize + Sync>(
        &self,
        kind: RecordKind,
        principal: &str,
        id: &str,
        lifetime: Duration,
        value: &T,
    ) -> Result<(), RequestFailure> {
        let record = self.sealed(kind, principal, id, lifetime, value)?;
        self.records.create(kind, principal, id, &record).await?;
        Ok(())
    }

    /// Replaces a record of any state.
    async fn replace<T: Serialize + Sync>(
        &self,
        kind: RecordKind,
        principal: &str,
        id: &str,
        value: &T,
    ) -> Result<(), RequestFailure> {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let record = self.sealed(kind, principal, id, Duration::MAX, value)?;
            let found = self
                .records
                .get::<SealedRecord>(kind, principal, id)
                .await?;
            let written = match found {
                Some(mut found) => {
                    found.value = record;
                    self.records.update(kind, principal, id, &found).await
                }
                None => self.records.create(kind, principal, id, &record).await,
            };
            match written {
                Ok(_) => return Ok(()),
                Err(RecordError::Stale) => {}
                Err(RecordError::Failed(failure)) => return Err(failure),
            }
        }
        Err(RecordError::Stale.into())
    }

    /// Ends the page that this one replaces, so that a conversation has at most one page for each server.
    async fn replace_page(
        &self,
        owner: &SignInOwner,
        conversation: &str,
        page: &str,
    ) -> Result<(), RequestFailure> {
        let (kind, principal) = (RecordKind::SignInNewest, owner.principal.as_str());
        let id = record_id(&format!("{}\n{conversation}", owner_text(owner)));
        if let Some((older, _)) = self.read::<String>(kind, principal, &id).await? {
            let kind = RecordKind::SignInPage;
            let found = self.records.get::<SealedRecord>(kind, NO_PRINCIPAL, &older);
            if let Some(found) = found.await? {
                let deleted = self
                    .records
                    .delete(kind, NO_PRINCIPAL, &older, found.revision);
                // A page that its user finished meanwhile is gone already.
                let _ = deleted.await;
            }
        }
        self.replace(kind, principal, &id, &page).await
    }
}

#[async_trait]
impl SignInKeeper for StoredSignIns {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    async fn keep_pending(
        &self,
        owner: &SignInOwner,
        conversation: &str,
        pending: &PendingSignIn,
    ) -> Result<(), SignInStoreError> {
        let id = record_id(pending.state());
        let page = OpenPage {
            owner: owner.clone(),
            conversation: conversation.to_owned(),
            pending: pending.clone(),
        };
        let kind = RecordKind::SignInPage;
        let stored = async {
            self.replace_page(owner, conversation, &id).await?;
            self.create(kind, NO_PRINCIPAL, &id, PAGE_LIFETIME, &page)
                .await
        };
        stored.await.map_err(|_| SignInStoreError)
    }

    async fn load_tokens(&self, owner: &SignInOwner) -> Result<Option<String>, SignInStoreError> {
        let id = record_id(&owner_text(owner));
        let kind = RecordKind::SignInTokens;
        let found = self
            .read::<Option<String>>(kind, &owner.principal, &id)
            .await;
        let found = found.map_err(|_| SignInStoreError)?;
        Ok(found.and_then(|(tokens, _)| tokens))
    }

    async fn save_tokens(
        &self,
        owner: &SignInOwner,
        tokens: Option<&str>,
    ) -> Result<(), SignInStoreError> {
        let id = record_id(&owner_text(owner));
        let kind = RecordKind::SignInTokens;
        let saved = self.replace(kind, &owner.principal, &id, &tokens).await;
        saved.map_err(|_| SignInStoreError)
    }

    async fn begin_renewal(&self, owner: &SignInOwner) -> Result<RenewalLease, SignInStoreError> {
        let id = record_id(&owner_text(owner));
        let lease = lease::take_lease(&self.records, &owner.principal, &id).await;
        lease.map_err(|_| SignInStoreError)
    }

    async fn end_renewal(&self, owner: &SignInOwner, lease: RenewalLease) {
        let id = record_id(&owner_text(owner));
        lease::return_lease(&self.records, &owner.principal, &id, lease).await;
    }
}

/// The associated data of the encryption of a record (RFC 8439), so that one record cannot be put in place of another.
fn associated_data(kind: RecordKind, principal: &str, id: &str) -> String {
    format!("{}\n{principal}\n{id}", kind.as_str())
}

/// The server and the client of an owner. Addresses have no line feed.
fn owner_text(owner: &SignInOwner) -> String {
    let client = owner.client_id.as_deref().unwrap_or_default();
    format!("{}\n{client}", owner.server)
}

/// The id of a record that is found by a secret or a long text: 128 bits of its digest.
fn record_id(text: &str) -> String {
    digest_prefix(text, 32)
}

/// The state in an address.
fn state_of(returned: &str) -> Option<String> {
    let url = Url::parse(returned).ok()?;
    let mut pairs = url.query_pairs();
    pairs.find_map(|(name, value)| (name == "state").then(|| value.into_owned()))
}
