//! Checks the configured accounts with their platforms, on request.
//!
//! No message is sent, and no reply contains a part of a credential: error texts of platforms are only logged, and
//! callers get sentences of this service with the platform's code.

use std::sync::Arc;
use std::time::Duration;

use dray_bus::Meta;
use dray_platform::{
    AccountCheck, CredentialCheck, DeliveryTarget, ErrorKind, FilePermission, PlatformError,
    RateLimits,
};
use dray_presentation::name::shown_text;
use dray_proto::v1::{self, CredentialState};
use dray_types::{Clock, whole_millis};
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, timeout_at};

use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::error::DeliveryError;
use crate::record::route_code;

/// Longest time for all accounts of one request.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Part of the caller's time that is reserved for the reply.
const REPLY_MARGIN: Duration = Duration::from_millis(300);
/// How long a result is reused, in milliseconds, so that callers cannot cause a flood of requests to a platform.
const REUSE_PERIOD_MS: u64 = 5_000;
/// Accounts that are checked concurrently.
const MAX_CONCURRENT_CHECKS: usize = 8;
/// Most accounts in one reply.
const MAX_CHECKED_ACCOUNTS: usize = 100;
/// Most characters of a name or a reason that a platform gave.
const MAX_TEXT_CHARACTERS: usize = 160;

/// Asks each platform whether the credentials of an account are valid.
#[derive(Debug)]
pub(crate) struct AccountChecker {
    pub(crate) accounts: AccountRegistry,
    pub(crate) clock: Clock,
}

impl AccountChecker {
    /// Asks the platforms of the accounts that serve the caller's tenant, within the caller's deadline.
    ///
    /// # Errors
    /// No account of the tenant has the requested name.
    pub(crate) async fn check(
        &self,
        meta: &Meta,
        request: &v1::CheckAccountsRequest,
    ) -> Result<v1::CheckAccountsReply, DeliveryError> {
        let is_selected = |account: &Arc<PlatformAccount>| {
            account.serves(&meta.tenant)
                && (request.account.is_empty() || account.name == request.account)
        };
        let mut accounts: Vec<_> = self.accounts.iter().filter(is_selected).collect();
        if accounts.is_empty() && !request.account.is_empty() {
            return Err(DeliveryError::NotFound("account"));
        }
        accounts.sort_by_key(|account| account.id());
        let truncated = accounts.len() > MAX_CHECKED_ACCOUNTS;
        accounts.truncate(MAX_CHECKED_ACCOUNTS);
        let remaining = meta.deadline.remaining(self.clock.now_ms());
        let until = Instant::now() + remaining.saturating_sub(REPLY_MARGIN).min(CHECK_TIMEOUT);
        let checks = stream::iter(accounts)
            .map(|account| self.check_one(account, until))
            .buffered(MAX_CONCURRENT_CHECKS);
        Ok(v1::CheckAccountsReply {
            accounts: checks.collect().await,
            truncated,
        })
    }

    async fn check_one(&self, account: Arc<PlatformAccount>, until: Instant) -> v1::AccountCheck {
        let started = Instant::now();
        let checked_at_ms = self.clock.now_ms();
        let reply = async {
            // The lock is held during the request, so that concurrent callers get its result instead of making their
            // own request.
            let mut last = account.last_check.lock().await;
            if let Some(check) = last.as_ref()
                && self.clock.now_ms().saturating_sub(check.checked_at_ms) < REUSE_PERIOD_MS
            {
                return check.clone();
            }
            let result = account.platform.check_account().await;
            let mut check = check_from_result(&account, result);
            check.checked_at_ms = checked_at_ms;
            check.milliseconds = milliseconds_since(started);
            *last = Some(check.clone());
            check
        };
        match timeout_at(until, reply).await {
            Ok(check) => check,
            Err(_elapsed) => {
                let mut check = unchecked_account(&account);
                check.set_credentials(CredentialState::Unreachable);
                "The platform did not respond in time.".clone_into(&mut check.reason);
                check.checked_at_ms = checked_at_ms;
                check.milliseconds = milliseconds_since(started);
                check
            }
        }
    }
}

fn milliseconds_since(started: Instant) -> u32 {
    u32::try_from(whole_millis(started.elapsed())).unwrap_or(u32::MAX)
}

/// The check of an account without any result.
fn unchecked_account(account: &PlatformAccount) -> v1::AccountCheck {
    v1::AccountCheck {
        platform: account.platform.name().to_owned(),
        account: account.name.clone(),
        ..v1::AccountCheck::default()
    }
}

fn check_from_result(
    account: &PlatformAccount,
    result: Result<AccountCheck, PlatformError>,
) -> v1::AccountCheck {
    let mut check = unchecked_account(account);
    match result {
        Ok(account_check) => add_result(account, &mut check, account_check),
        Err(error) => {
            tracing::warn!(
                account = account.id(),
                error = &error as &dyn std::error::Error,
                "the check of an account failed"
            );
            let (state, reason) = match error.kind() {
                ErrorKind::Auth => (CredentialState::Refused, error.sentence()),
                ErrorKind::Forbidden => (
                    CredentialState::Refused,
                    "The platform does not let the account ask about itself.".into(),
                ),
                ErrorKind::RateLimited | ErrorKind::Transient => {
                    (CredentialState::Unreachable, error.sentence())
                }
                _ => (
                    CredentialState::Unreachable,
                    "The platform's response to the check cannot be used.".into(),
                ),
            };
            check.set_credentials(state);
            check.reason = reason.into_owned();
            check.platform_code = shown_text(error.platform_code(), MAX_TEXT_CHARACTERS);
        }
    }
    check
}

fn add_result(account: &PlatformAccount, check: &mut v1::AccountCheck, result: AccountCheck) {
    let AccountCheck {
        identity,
        credentials,
        files,
        limits,
    } = result;
    check.identity = shown_text(identity, MAX_TEXT_CHARACTERS);
    match credentials {
        CredentialCheck::Accepted => check.set_credentials(CredentialState::Accepted),
        CredentialCheck::Unverified(reason) => {
            check.set_credentials(CredentialState::Unverified);
            reason.clone_into(&mut check.reason);
        }
    }
    let (permission, reason) = match files {
        FilePermission::Allowed => (v1::FilePermission::Allowed, String::new()),
        FilePermission::Denied(reason) => (v1::FilePermission::Denied, reason),
        FilePermission::PerChat(reason) => (v1::FilePermission::PerChat, reason),
    };
    check.set_files(permission);
    check.files_reason = shown_text(reason, MAX_TEXT_CHARACTERS);
    let RateLimits {
        account_per_minute,
        chat_per_minute,
    } = account.platform.rate_limits(&target_of(account));
    check.limits = limits.map(|limits| v1::AccountLimits {
        max_file_bytes: limits.any,
        routes: limits
            .routes
            .iter()
            .map(|(route, max_file_bytes)| v1::RouteLimit {
                route: route_code(*route).into(),
                max_file_bytes: *max_file_bytes,
            })
            .collect(),
        max_files_per_message: u32::try_from(limits.per_message).unwrap_or(u32::MAX),
        max_text_length: limits.text as u64,
        max_caption_length: limits.caption as u64,
        account_per_minute,
        chat_per_minute,
    });
}

/// A target with the account and no chat, for limits that apply to all chats.
fn target_of(account: &PlatformAccount) -> DeliveryTarget {
    DeliveryTarget {
        platform: account.platform.name().to_owned(),
        account: account.name.clone(),
        chat: String::new(),
        thread: String::new(),
        reply_to: String::new(),
    }
}
