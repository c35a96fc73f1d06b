//! Checks of accounts by the service, with scripted platforms.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dray_bus::Meta;
use dray_platform::{
    AccountCheck, ChatLimits, ConfirmedFile, DeliveryTarget, DuplicateProtection, ErrorKind,
    FilePermission, OutgoingDelivery, Platform, PlatformError, RateLimits, SendRequest, SendStep,
    UploadProgress,
};
use dray_proto::v1::{self, CredentialState};
use dray_types::{Clock, Deadline, TenantId};

use crate::account_checks::AccountChecker;
use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::error::DeliveryError;

/// A token that no reply may contain.
const BOT_TOKEN: &str = "123:secret-of-the-bot";

/// The behaviour of the platform in a check.
#[derive(Clone, Copy, Debug)]
enum CheckOutcome {
    Accept,
    Refuse,
    Hang,
}

#[derive(Debug)]
struct ScriptedPlatform {
    outcome: CheckOutcome,
    request_count: Arc<AtomicUsize>,
}

#[async_trait]
impl Platform for ScriptedPlatform {
    fn name(&self) -> &'static str {
        "telegram"
    }

    fn ambiguity(&self) -> DuplicateProtection {
        DuplicateProtection::Unknown
    }

    fn rate_limits(&self, _: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 30,
            chat_per_minute: 20,
        }
    }

    async fn limits(&self, _: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        unreachable!("a check opens no chat")
    }

    fn plan(&self, _: &OutgoingDelivery, _: &ChatLimits) -> Vec<SendStep> {
        unreachable!("a check plans no delivery")
    }

    async fn send(
        &self,
        _: SendRequest<'_>,
        _: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        unreachable!("a check sends nothing")
    }

    async fn check_account(&self) -> Result<AccountCheck, PlatformError> {
        self.request_count.fetch_add(1, Ordering::SeqCst);
        match self.outcome {
            CheckOutcome::Accept => Ok(AccountCheck::accepted(
                "@bot\u{202e}\n",
                FilePermission::Allowed,
            )),
            // The refusal of this platform repeats the token.
            CheckOutcome::Refuse => Err(PlatformError::new(
                ErrorKind::Auth,
                format!("bad token {BOT_TOKEN}"),
            )
            .code("401")),
            CheckOutcome::Hang => std::future::pending().await,
        }
    }
}

struct CheckFixture {
    checker: AccountChecker,
    clock: Clock,
    request_count: Arc<AtomicUsize>,
}

impl CheckFixture {
    fn new(accounts: &[(&str, Option<&str>, CheckOutcome)]) -> Self {
        let clock = Clock::manual(1_700_000_000_000);
        let request_count = Arc::new(AtomicUsize::new(0));
        let accounts = accounts.iter().map(|(name, tenant, outcome)| {
            let platform = ScriptedPlatform {
                outcome: *outcome,
                request_count: Arc::clone(&request_count),
            };
            let tenant = tenant.map(|tenant| TenantId::new(tenant).unwrap());
            PlatformAccount::new(*name, Arc::new(platform)).with_tenant(tenant)
        });
        Self {
            checker: AccountChecker {
                accounts: AccountRegistry::new(accounts),
                clock: clock.clone(),
            },
            clock,
            request_count,
        }
    }

    async fn check(
        &self,
        tenant: &str,
        account: &str,
    ) -> Result<v1::CheckAccountsReply, DeliveryError> {
        let deadline = Deadline::after(self.clock.now_ms(), Duration::from_mins(1));
        let meta = Meta::new(TenantId::new(tenant).unwrap(), deadline);
        let request = v1::CheckAccountsRequest {
            account: account.to_owned(),
        };
        self.checker.check(&meta, &request).await
    }
}

#[tokio::test]
async fn a_tenant_checks_its_own_accounts_and_the_shared_ones() {
    let fixture = CheckFixture::new(&[
        ("shared", None, CheckOutcome::Accept),
        ("own", Some("acme"), CheckOutcome::Accept),
        ("foreign", Some("other"), CheckOutcome::Accept),
    ]);
    let reply = fixture.check("acme", "").await.unwrap();
    let names: Vec<&str> = reply
        .accounts
        .iter()
        .map(|check| check.account.as_str())
        .collect();
    assert_eq!(names, ["own", "shared"]);
    for check in &reply.accounts {
        assert_eq!(check.credentials(), CredentialState::Accepted);
        assert!(!check.identity.contains(['\n', '\u{202e}']), "{check:?}");
    }
    let foreign = fixture.check("acme", "foreign").await.unwrap_err();
    assert!(matches!(foreign, DeliveryError::NotFound(_)), "{foreign:?}");
    assert_eq!(fixture.request_count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_refused_token_is_reported_and_no_part_of_it_leaves_the_service() {
    let fixture = CheckFixture::new(&[("main", None, CheckOutcome::Refuse)]);
    let reply = fixture.check("acme", "main").await.unwrap();
    let check = reply.accounts.first().unwrap();
    assert_eq!(check.credentials(), CredentialState::Refused);
    assert_eq!(check.platform_code, "401");
    assert!(!format!("{reply:?}").contains("secret"), "{reply:?}");
}

#[tokio::test]
async fn concurrent_checks_share_one_request_to_the_platform_until_its_result_is_old() {
    let fixture = CheckFixture::new(&[("main", None, CheckOutcome::Accept)]);
    let callers = (0..20).map(|_| fixture.check("acme", ""));
    for reply in futures_util::future::join_all(callers).await {
        assert_eq!(reply.unwrap().accounts.len(), 1);
    }
    assert_eq!(fixture.request_count.load(Ordering::SeqCst), 1);
    fixture.clock.advance(Duration::from_secs(5));
    fixture.check("acme", "").await.unwrap();
    assert_eq!(fixture.request_count.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_platform_that_never_responds_delays_neither_the_reply_nor_other_accounts() {
    let fixture = CheckFixture::new(&[
        ("hangs", None, CheckOutcome::Hang),
        ("works", None, CheckOutcome::Accept),
    ]);
    let started_at = tokio::time::Instant::now();
    let reply = fixture.check("acme", "").await.unwrap();
    assert!(started_at.elapsed() <= Duration::from_secs(10));
    let states: Vec<CredentialState> = reply
        .accounts
        .iter()
        .map(v1::AccountCheck::credentials)
        .collect();
    assert_eq!(
        states,
        [CredentialState::Unreachable, CredentialState::Accepted]
    );
}
