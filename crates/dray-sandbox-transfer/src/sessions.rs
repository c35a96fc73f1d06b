//! The session binding: the sandbox and the chat of each session, records in the bucket `dray_sessions`, by tenant.
//!
//! Keys hold digests of names, so that no name that a user chose becomes part of a key. Every change is a
//! compare-and-set.
//!
//! The bucket forgets what was written 90 days ago, so what is used is written again while it is younger.

use std::time::Duration;

use bytes::Bytes;
use dray_bus::key_value::KeyValueEntry;
use dray_bus::{Bus, KeyError, KeyValue};
use dray_proto::v1;
use dray_types::{Clock, Sha256Digest, TenantId, whole_millis};
use prost::Message as _;

use crate::error::Error;

/// Bucket of the sessions and of the index of chats.
pub(crate) const SESSION_BUCKET: &str = "dray_sessions";
/// Attempts to write a record that others change at the same time.
const MAX_WRITE_ATTEMPTS: usize = 8;
/// Age from which a record that is used is written again: a tenth of the age at which the bucket drops it.
const REFRESH_AGE: Duration = Duration::from_hours(9 * 24);

/// Access to the records of all sessions.
#[derive(Clone, Debug)]
pub struct Sessions {
    keys: KeyValue,
    clock: Clock,
}

/// Part of a key for a name of any alphabet: 40 hexadecimal digits of its SHA-256.
pub(crate) fn token(name: &str) -> String {
    let mut digest = Sha256Digest::of(name.as_bytes()).to_hex();
    digest.truncate(40);
    digest
}

pub(crate) fn session_key(tenant: &TenantId, session: &str) -> String {
    format!("session.{}.{}", tenant.token(), token(session))
}

fn decode_session(value: Bytes) -> Result<v1::Session, Error> {
    v1::Session::decode(value).map_err(Error::InvalidSessionRecord)
}

fn chat_key(tenant: &TenantId, chat: &v1::ChatTarget, with_thread: bool) -> String {
    let thread = if with_thread {
        chat.thread.as_str()
    } else {
        ""
    };
    // Lengths separate the parts unambiguously for any content.
    let name = [&chat.platform, &chat.account, &chat.chat, thread]
        .iter()
        .fold(String::new(), |name, part| {
            format!("{name}{}:{part};", part.len())
        });
    format!("chat.{}.{}", tenant.token(), token(&name))
}

impl Sessions {
    /// Opens the records on this bus. No record is read yet.
    pub fn new(bus: &Bus, clock: Clock) -> Self {
        Self {
            keys: bus.key_value(SESSION_BUCKET),
            clock,
        }
    }

    /// Reads the record of a session, and keeps it and its entry in the index from expiring.
    ///
    /// # Errors
    ///
    /// [`Error::NoSession`] for an unknown one, [`Error::InvalidSessionRecord`] and [`Error::Keys`].
    pub async fn show(&self, tenant: &TenantId, session: &str) -> Result<v1::Session, Error> {
        let key = session_key(tenant, session);
        let entry = self.keys.get(&key).await?.ok_or(Error::NoSession)?;
        let found = decode_session(entry.value.clone())?;
        if self.needs_refresh(&entry) {
            self.refresh(&key, entry).await;
            if let Some(chat) = &found.chat {
                self.refresh_index(tenant, chat, &found.session).await;
            }
        }
        Ok(found)
    }

    fn needs_refresh(&self, entry: &KeyValueEntry) -> bool {
        self.clock.now_ms().saturating_sub(entry.time_ms) >= whole_millis(REFRESH_AGE)
    }

    /// Writes an unchanged entry again. A failure is left to the next use: the entry has most of its time left.
    async fn refresh(&self, key: &str, entry: KeyValueEntry) {
        match self.keys.update(key, entry.value, entry.revision).await {
            // A concurrent change has written it as well.
            Ok(_) | Err(KeyError::Stale) => {}
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a session was not kept from expiring"
            ),
        }
    }

    /// Writes the index entry of a session again, or restores it. An entry that another session has taken over stays.
    async fn refresh_index(&self, tenant: &TenantId, chat: &v1::ChatTarget, session: &str) {
        let key = chat_key(tenant, chat, true);
        let value = index_value(session);
        match self.keys.get(&key).await {
            Ok(Some(entry)) if entry.value == value => self.refresh(&key, entry).await,
            Ok(None) => {
                // A concurrent binding may have created it.
                let _ = self.keys.create(&key, value).await;
            }
            Ok(Some(_)) | Err(_) => {}
        }
    }

    /// Changes the record of a session, which starts empty, and updates the index of chats.
    ///
    /// # Errors
    ///
    /// [`Error::Contended`] after too many attempts, [`Error::InvalidSessionRecord`] and [`Error::Keys`].
    pub async fn change(
        &self,
        tenant: &TenantId,
        session: &str,
        change: impl Fn(&mut v1::Session),
    ) -> Result<v1::Session, Error> {
        let key = session_key(tenant, session);
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let entry = self.keys.get(&key).await?;
            let before = match &entry {
                // A record of a later version, or a damaged one, must not be replaced by an empty one.
                Some(entry) => decode_session(entry.value.clone())?,
                None => v1::Session::default(),
            };
            let mut after = before.clone();
            session.clone_into(&mut after.session);
            change(&mut after);
            let value = Bytes::from(after.encode_to_vec());
            let written = match entry {
                Some(entry) => self.keys.update(&key, value, entry.revision).await,
                None => self.keys.create(&key, value).await,
            };
            match written {
                Ok(_) => {
                    // The index is written after the record: an index that lags is recognized, one that is ahead would
                    // name a chat that is not bound.
                    self.index(tenant, &before, &after).await?;
                    return Ok(after);
                }
                Err(KeyError::Stale | KeyError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }

    /// Removes a session and its entry in the index. Returns whether it existed.
    ///
    /// # Errors
    ///
    /// [`Error::Contended`] after too many attempts, and [`Error::Keys`].
    pub async fn forget(&self, tenant: &TenantId, session: &str) -> Result<bool, Error> {
        let key = session_key(tenant, session);
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let Some(entry) = self.keys.get(&key).await? else {
                return Ok(false);
            };
            // A record that cannot be decoded is removed as well, because there is no other way to remove it.
            let before = v1::Session::decode(entry.value).unwrap_or_default();
            match self.keys.delete(&key, entry.revision).await {
                Ok(()) => {
                    self.index(tenant, &before, &v1::Session::default()).await?;
                    return Ok(true);
                }
                Err(KeyError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }

    /// Finds the session to which a chat belongs: the session of its thread, or else that of the whole chat.
    ///
    /// # Errors
    ///
    /// [`Error::NoChat`] for an unbound one, and [`Error::Keys`].
    pub async fn find(
        &self,
        tenant: &TenantId,
        chat: &v1::ChatTarget,
    ) -> Result<v1::Session, Error> {
        for with_thread in [true, false] {
            let key = chat_key(tenant, chat, with_thread);
            let Some(entry) = self.keys.get(&key).await? else {
                continue;
            };
            let Ok(named) = v1::ShowSessionRequest::decode(entry.value.clone()) else {
                continue;
            };
            match self.show(tenant, &named.session).await {
                Ok(session) if is_bound(&session, chat, with_thread) => {
                    if self.needs_refresh(&entry) {
                        self.refresh(&key, entry).await;
                    }
                    return Ok(session);
                }
                // The index is written after the record and may be behind it.
                Ok(_) | Err(Error::NoSession) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoChat)
    }

    /// Writes the index for the chat of `after`, and clears the index for that of `before` if the chat changed.
    async fn index(
        &self,
        tenant: &TenantId,
        before: &v1::Session,
        after: &v1::Session,
    ) -> Result<(), Error> {
        if let Some(chat) = &after.chat {
            self.set(&chat_key(tenant, chat, true), index_value(&after.session))
                .await?;
        }
        let old = before
            .chat
            .as_ref()
            .map(|chat| chat_key(tenant, chat, true));
        let new = after.chat.as_ref().map(|chat| chat_key(tenant, chat, true));
        if let Some(old) = old.filter(|old| Some(old) != new.as_ref()) {
            self.clear(&old, &before.session).await?;
        }
        Ok(())
    }

    /// Sets an entry of the index; the last session that binds a chat has it.
    async fn set(&self, key: &str, value: Bytes) -> Result<(), Error> {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let written = match self.keys.get(key).await? {
                // A repeated binding needs no write, which could make others repeat theirs, while the entry is new.
                Some(entry) if entry.value == value && !self.needs_refresh(&entry) => {
                    return Ok(());
                }
                Some(entry) => self.keys.update(key, value.clone(), entry.revision).await,
                None => self.keys.create(key, value.clone()).await,
            };
            match written {
                Ok(_) => return Ok(()),
                Err(KeyError::Stale | KeyError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }

    /// Clears an entry, if it still names `session`.
    async fn clear(&self, key: &str, session: &str) -> Result<(), Error> {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let Some(entry) = self.keys.get(key).await? else {
                return Ok(());
            };
            let named = v1::ShowSessionRequest::decode(entry.value).unwrap_or_default();
            // Another session has bound the chat since.
            if named.session != session {
                return Ok(());
            }
            match self.keys.delete(key, entry.revision).await {
                Ok(()) => return Ok(()),
                Err(KeyError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended)
    }
}

/// What the index has for a chat: the name of its session.
fn index_value(session: &str) -> Bytes {
    let named = v1::ShowSessionRequest {
        session: session.to_owned(),
    };
    named.encode_to_vec().into()
}

fn is_bound(session: &v1::Session, chat: &v1::ChatTarget, with_thread: bool) -> bool {
    session.chat.as_ref().is_some_and(|bound| {
        (&bound.platform, &bound.account, &bound.chat)
            == (&chat.platform, &chat.account, &chat.chat)
            && if with_thread {
                bound.thread == chat.thread
            } else {
                bound.thread.is_empty()
            }
    })
}
