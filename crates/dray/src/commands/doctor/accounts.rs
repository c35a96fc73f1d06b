//! Checks of platform accounts and sandbox backends, by the services that own their credentials.

use std::time::Duration;

use dray_bus::error::{CallError, TransportError};
use dray_bus::{Bus, Meta};
use dray_proto::v1::{self, BackendState, CredentialState, FilePermission};
use dray_types::{Clock, Deadline, TenantId};

use super::finding::Finding;

/// The reason why nothing was checked without a bus.
pub(super) fn without_a_system() -> Finding {
    Finding::skipped(
        "accounts",
        "the services of a running system check them; name its server with --nats",
    )
}

/// Checks the accounts of the tenant and the backends, as the services report them.
pub(super) async fn check_accounts(bus: &Bus, tenant: &TenantId, limit: Duration) -> Vec<Finding> {
    let meta = || {
        let deadline = Deadline::after(Clock::system().now_ms(), limit);
        Meta::new(tenant.clone(), deadline)
    };
    let (asked_accounts, asked_backends) = (
        v1::CheckAccountsRequest::default(),
        v1::CheckBackendsRequest::default(),
    );
    let (account_meta, backend_meta) = (meta(), meta());
    let (accounts, backends) = tokio::join!(
        bus.call_once(&account_meta, &asked_accounts),
        bus.call_once(&backend_meta, &asked_backends),
    );
    let mut findings = match accounts {
        Ok(reply) if reply.accounts.is_empty() => {
            vec![Finding::skipped("accounts", "no account serves the tenant")]
        }
        Ok(reply) => reply.accounts.iter().map(account_finding).collect(),
        Err(error) => vec![call_finding("accounts", &error)],
    };
    match backends {
        Ok(reply) => findings.extend(reply.backends.iter().map(backend_finding)),
        Err(error) => findings.push(call_finding("backends", &error)),
    }
    findings
}

fn call_finding(subject: &str, error: &CallError) -> Finding {
    match error {
        CallError::Transport(TransportError::Denied(_)) => {
            Finding::skipped(subject, "this identity may not have them checked")
        }
        CallError::Fault(fault) => Finding::problem(subject, &fault.message, &fault.advice),
        error => Finding::problem(
            subject,
            error.to_string(),
            "Start the service that owns them, and look at its log.",
        ),
    }
}

fn account_finding(account: &v1::AccountCheck) -> Finding {
    let subject = format!("account {}/{}", account.platform, account.account);
    let identity = if account.identity.is_empty() {
        String::new()
    } else {
        format!(" as {}", account.identity)
    };
    match account.credentials() {
        CredentialState::Accepted if account.files() == FilePermission::Denied => Finding::problem(
            subject,
            format!(
                "it works{identity} and may not send files: {}",
                account.files_reason
            ),
            "Give the account the right to send files at its platform.",
        ),
        CredentialState::Accepted => Finding::good(subject, format!("it works{identity}")),
        CredentialState::Refused => Finding::problem(
            subject,
            with_code(&account.reason, &account.platform_code),
            "Set a valid token in section `platform-delivery.accounts`.",
        ),
        CredentialState::Unverified => Finding::skipped(subject, &account.reason),
        // An unknown state of a newer service is a problem too: it does not say that the account works.
        CredentialState::Unreachable | CredentialState::Unspecified => Finding::problem(
            subject,
            with_code(&account.reason, &account.platform_code),
            "Check the network between platform-delivery and the platform, and the log of platform-delivery.",
        ),
    }
}

fn with_code(reason: &str, code: &str) -> String {
    if code.is_empty() {
        reason.to_owned()
    } else {
        format!("{reason} [{code}]")
    }
}

fn backend_finding(backend: &v1::BackendCheck) -> Finding {
    let subject = format!("backend {}", backend.backend);
    match backend.state() {
        BackendState::Ready => Finding::good(subject, &backend.detail),
        BackendState::Unverified => Finding::skipped(subject, &backend.detail),
        // Default kinds are often not installed, so this is only a warning; operators remove unused ones from `kinds`.
        BackendState::Failed | BackendState::Unspecified => Finding::warning(
            subject,
            with_code(&backend.detail, &backend.failure),
            "Correct its section of `sandbox-transfer`, or take it out of `sandbox-transfer.kinds`.",
        ),
    }
}
