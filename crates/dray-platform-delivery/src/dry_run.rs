//! The plan of a delivery: its account, the policy, the limits of the chat and the requests that would be made. The
//! platform may be asked for its limits; no message is sent and no record stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use dray_media_type::kind;
use dray_platform::{
    ByteSource, ByteStream, ChatLimits, ErrorKind, OutgoingDelivery, OutgoingFile, PlatformError,
    Route, SendFlags,
};
use dray_proto::v1;
use dray_types::{Clock, ErrorChain, Fault, FaultCode, Sha256Digest, TenantId};
use serde::Serialize;

use crate::config::Config;
use crate::deliver::target_of;
use crate::link::LinkPolicy;

/// A file that would be delivered.
#[derive(Clone, Debug)]
pub struct DeliveryCandidate {
    /// Visible name of the file.
    pub name: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// The first bytes, at most [`kind::HEAD_BYTES`]; they decide the kind of the file.
    pub head: Vec<u8>,
}

/// A delivery that would be made.
#[derive(Clone, Debug)]
pub struct DryRunRequest {
    /// Chat to which the files would go.
    pub target: v1::ChatTarget,
    /// Message that would go with the files.
    pub message: String,
    /// Switches of the request, such as sending as documents.
    pub flags: SendFlags,
    /// The files, in the order of the request.
    pub files: Vec<DeliveryCandidate>,
}

/// The plan of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DryRunPlan {
    /// The chat, in the form in which targets are written.
    pub target: String,
    /// Name of the account that would send.
    pub account: String,
    /// The requests that may send to the chat.
    pub policy: ChatPolicy,
    /// Limits of the chat, as the platform reports them now.
    pub limits: ChatLimits,
    /// Policy for links to files that are too large.
    pub links: LinkPolicy,
    /// The visible requests, in order.
    pub steps: Vec<PlannedStep>,
    /// Files that would not be delivered.
    pub refused: Vec<RefusedFile>,
}

/// The requests that may send to a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatPolicy {
    /// Every request may name any chat.
    AnyChat,
    /// The chat is listed for every session.
    Listed,
    /// Only a session whose own chat it is may send to it.
    OwnChatOnly,
}

/// One visible request of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedStep {
    /// The kind of message.
    pub route: Route,
    /// Names of the files that it shows or links to.
    pub files: Vec<String>,
    /// Caption of the files, or the text of a message.
    pub text: String,
    /// Whether the user may get other bytes than those of the file.
    pub lossy: bool,
}

/// A file that would not be delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedFile {
    /// Visible name of the file.
    pub name: String,
    /// The reason, as the user would read it.
    pub reason: String,
}

/// Plans a delivery with this configuration.
///
/// # Errors
///
/// No account serves the chat, an account cannot be used, or the platform refuses to serve the chat.
pub async fn plan_delivery(
    config: &Config,
    clock: &Clock,
    tenant: &TenantId,
    request: DryRunRequest,
) -> Result<DryRunPlan, Fault> {
    let accounts = config.accounts(clock).map_err(|error| {
        // The operator who asked reads the reason, as the log of the service has it.
        Fault::new(FaultCode::InvalidArgument, ErrorChain(&error).to_string())
            .detail("config_invalid")
    })?;
    let DryRunRequest {
        target,
        message,
        flags,
        files,
    } = request;
    let account = accounts
        .find(tenant, &target.platform, &target.account)
        .map_err(|error| error.operator_fault())?;
    let delivery = OutgoingDelivery {
        id: String::new(),
        target: target_of(&target),
        message,
        files: files.iter().map(to_outgoing_file).collect(),
        flags,
    };
    let limits = account.platform.limits(&delivery.target).await;
    let limits = limits.map_err(|error| refusal_fault(&error))?;
    // The order is the same as for a real request: `allow_targets` makes the list irrelevant.
    let policy = if config.allow_targets {
        ChatPolicy::AnyChat
    } else if config.lists(&delivery.target) {
        ChatPolicy::Listed
    } else {
        ChatPolicy::OwnChatOnly
    };
    let planned = account.platform.plan(&delivery, &limits);
    let covered: BTreeSet<usize> = planned
        .iter()
        .flat_map(|step| step.files().iter().copied())
        .collect();
    let mut plan = DryRunPlan {
        target: delivery.target.to_string(),
        account: account.name.clone(),
        policy,
        links: config.links,
        steps: planned_steps(planned, &delivery),
        refused: Vec::new(),
        limits,
    };
    // The platform's plan leaves out files that fit no route, as for a real delivery.
    let left_out = delivery.files.iter().enumerate();
    for (_, file) in left_out.filter(|(index, _)| !covered.contains(index)) {
        plan.add_left_out(file);
    }
    Ok(plan)
}

fn planned_steps(
    planned: Vec<dray_platform::SendStep>,
    delivery: &OutgoingDelivery,
) -> Vec<PlannedStep> {
    let names = |step: &dray_platform::SendStep| {
        let files = dray_platform::plan::files_of(delivery, step);
        files.map(|(_, file)| file.name.clone()).collect()
    };
    let planned = planned.into_iter().map(|step| PlannedStep {
        route: step.route(),
        files: names(&step),
        text: step.text().to_owned(),
        lossy: step.is_lossy(),
    });
    planned.collect()
}

impl DryRunPlan {
    /// Adds a file that fits no route: as a link, or as refused.
    fn add_left_out(&mut self, file: &OutgoingFile) {
        if file.size > 0 && self.links != LinkPolicy::Never {
            self.steps.push(PlannedStep {
                route: Route::Link,
                files: vec![file.name.clone()],
                text: String::new(),
                lossy: false,
            });
            return;
        }
        // The message names the largest limit, which the file exceeds too.
        let largest = self.limits.routes.iter().map(|(_, limit)| *limit);
        let largest = largest.fold(self.limits.any, u64::max);
        let reason = match file.size {
            0 => ErrorKind::Empty.sentence().to_owned(),
            size => format!(
                "The file is too large for this chat ({}).",
                dray_presentation::size::over_limit(size, largest)
            ),
        };
        self.refused.push(RefusedFile {
            name: file.name.clone(),
            reason,
        });
    }
}

/// The source of a file whose bytes are not read.
#[derive(Debug)]
struct UnreadSource;

#[async_trait]
impl ByteSource for UnreadSource {
    async fn open(&self) -> Result<ByteStream, PlatformError> {
        Err(PlatformError::new(
            ErrorKind::Source,
            "a plan reads no files",
        ))
    }
}

fn to_outgoing_file(file: &DeliveryCandidate) -> OutgoingFile {
    OutgoingFile {
        detected: kind::detect_kind(&file.head, &file.name, file.size),
        name: dray_presentation::name::clean_name(&file.name),
        size: file.size,
        // A plan compares no digests, and has only the first bytes.
        sha256: Sha256Digest::of(&[]),
        source: Arc::new(UnreadSource),
        file_id: None,
    }
}

/// Makes the fault of a platform's refusal, for the operator who asked.
fn refusal_fault(error: &PlatformError) -> Fault {
    let code = match error.kind() {
        ErrorKind::Transient | ErrorKind::RateLimited => FaultCode::Unavailable,
        ErrorKind::Auth | ErrorKind::Forbidden => FaultCode::Denied,
        ErrorKind::NotFound => FaultCode::NotFound,
        _ => FaultCode::InvalidArgument,
    };
    Fault::new(code, error.sentence())
        .detail(error.kind().as_str())
        .advice(error.context().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::AccountConfig;

    fn config() -> Config {
        let telegram = dray_platform_telegram::TelegramOptions {
            token: dray_types::Secret::new("123456789:AAExampleExampleExampleExampleExample"),
            ..dray_platform_telegram::TelegramOptions::default()
        };
        let account = AccountConfig {
            telegram: Some(telegram),
            ..AccountConfig::default()
        };
        Config {
            accounts: BTreeMap::from([("bot".to_owned(), account)]),
            ..Config::default()
        }
    }

    fn file(name: &str, size: u64, head: &[u8]) -> DeliveryCandidate {
        DeliveryCandidate {
            name: name.to_owned(),
            size,
            head: head.to_vec(),
        }
    }

    async fn dry_run(config: &Config, files: Vec<DeliveryCandidate>) -> Result<DryRunPlan, Fault> {
        let request = DryRunRequest {
            target: crate::tests::fixture::chat("42"),
            message: "look".to_owned(),
            flags: SendFlags::default(),
            files,
        };
        let tenant = crate::tests::fixture::tenant();
        plan_delivery(config, &Clock::manual(1), &tenant, request).await
    }

    fn routes(plan: &DryRunPlan) -> Vec<(Route, String)> {
        let steps = plan.steps.iter();
        steps
            .map(|step| (step.route, step.files.join(",")))
            .collect()
    }

    #[tokio::test]
    async fn routes_limits_and_policy_are_those_of_a_delivery() {
        let files = vec![
            file("a.pdf", 1_000, b"%PDF-1.7\n"),
            file("big.zip", 60_000_000, b"PK\x03\x04"),
            file("empty.txt", 0, b""),
        ];
        let plan = dry_run(&config(), files.clone()).await.unwrap();
        assert_eq!(plan.target, "telegram:42");
        assert_eq!(
            (plan.account.as_str(), plan.policy),
            ("bot", ChatPolicy::OwnChatOnly)
        );
        assert_eq!(plan.limits.any, 50_000_000);
        let document = |name: &str| (Route::Document, name.to_owned());
        assert_eq!(
            routes(&plan),
            [
                document("a.pdf"),
                document("empty.txt"),
                (Route::Link, "big.zip".to_owned())
            ]
        );
        assert_eq!(plan.steps[0].text, "look");
        let config = Config {
            links: LinkPolicy::Never,
            allowed_targets: vec!["telegram:*".to_owned()],
            ..config()
        };
        let plan = dry_run(&config, files).await.unwrap();
        assert_eq!(plan.policy, ChatPolicy::Listed);
        assert_eq!(plan.refused[0].name, "big.zip");
        assert!(
            plan.refused[0].reason.contains("57 MB of 48 MB"),
            "{:?}",
            plan.refused
        );
    }

    #[tokio::test]
    async fn a_chat_that_no_account_serves_is_refused() {
        let fault = dry_run(&Config::default(), Vec::new()).await.unwrap_err();
        assert_eq!(fault.detail, "no_account");
    }

    #[tokio::test]
    async fn an_account_that_cannot_be_used_is_refused_with_the_reason() {
        let mut config = config();
        let account = config.accounts.get_mut("bot").unwrap();
        account.telegram = Some(dray_platform_telegram::TelegramOptions {
            base_url: "foo".to_owned(),
            ..account.telegram.clone().unwrap()
        });
        let account = config.accounts["bot"].open("bot", &Clock::manual(1));
        let error = account.unwrap_err();
        let fault = dry_run(&config, Vec::new()).await.unwrap_err();
        assert_eq!(fault.detail, "config_invalid");
        assert_eq!(
            fault.message,
            format!("the account `bot` cannot be used: {}", ErrorChain(&error))
        );
    }

    #[tokio::test]
    async fn a_chat_that_several_accounts_serve_is_refused_with_their_names() {
        let mut config = config();
        let account = config.accounts["bot"].clone();
        config.accounts.insert("sales".to_owned(), account);
        let fault = dry_run(&config, Vec::new()).await.unwrap_err();
        assert_eq!(fault.detail, "no_account");
        assert_eq!(
            fault.message,
            "Several accounts serve telegram: bot, sales."
        );
        assert!(fault.advice.contains("telegram/bot:CHAT"), "{fault:?}");
    }
}
