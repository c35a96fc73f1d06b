//! `dray send --dry-run`, `dray deliver --dry-run`: the plan of a delivery, without sending anything.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_media_type::kind::HEAD_BYTES;
use dray_platform::{ChatLimits, SendFlags};
use dray_platform_delivery::dry_run::{
    ChatPolicy, DeliveryCandidate, DryRunPlan, DryRunRequest, plan_delivery,
};
use dray_platform_delivery::{Config, PlatformDelivery};
use dray_presentation::name;
use dray_presentation::size::human_size;
use dray_proto::v1::{self, sandbox_ref};
use dray_service::Service as _;
use dray_service::settings::{BusMode, BusSection};
use dray_types::{Clock, Fault};
use tokio::io::AsyncReadExt as _;

use crate::cli::GlobalOptions;
use crate::commands::{sandbox, upload};
use crate::context::{self, SystemConnection};
use crate::outcome::{CommandFailure, print_line, print_note};

/// Timeout of one request to the sandbox.
const STAT_TIMEOUT: Duration = Duration::from_mins(1);

/// Plans the delivery of files of this machine.
pub(crate) async fn plan_local_files(
    global: &GlobalOptions,
    request: &v1::SendFileRequested,
    files: &[PathBuf],
) -> Result<(), CommandFailure> {
    let mut candidates = Vec::new();
    for file in files {
        candidates.push(local_candidate(file).await?);
    }
    let target = if let Some(target) = &request.target {
        target.clone()
    } else {
        let system = SystemConnection::open_to_ask(global, &[sandbox::SANDBOX_SERVICE]).await?;
        let found = session_chat(&system, request).await;
        system.close().await;
        found?
    };
    show_plan(global, request, target, candidates).await
}

/// Plans the delivery of files of a sandbox. They are not read: their kinds are guessed from their names.
pub(crate) async fn plan_sandbox_files(
    global: &GlobalOptions,
    request: &v1::SendFileRequested,
) -> Result<(), CommandFailure> {
    let system = SystemConnection::open_to_ask(global, &[sandbox::SANDBOX_SERVICE]).await?;
    let found = ask_sandbox(&system, request).await;
    system.close().await;
    let (target, candidates) = found?;
    print_note("The files are not read: their kinds are guessed by their names.");
    show_plan(global, request, target, candidates).await
}

async fn ask_sandbox(
    system: &SystemConnection,
    request: &v1::SendFileRequested,
) -> Result<(v1::ChatTarget, Vec<DeliveryCandidate>), CommandFailure> {
    let target = match &request.target {
        Some(target) => target.clone(),
        None => session_chat(system, request).await?,
    };
    let sandbox = match request.sandbox.as_str() {
        // An explicit sandbox has priority over the session's.
        "" => sandbox_ref::Sandbox::Session(request.session.clone()),
        address => sandbox_ref::Sandbox::Address(address.to_owned()),
    };
    let mut candidates = Vec::new();
    for path in &request.paths {
        let stat = v1::StatSandboxRequest {
            sandbox: Some(v1::SandboxRef {
                sandbox: Some(sandbox.clone()),
            }),
            path: path.clone(),
            follow: true,
            ..v1::StatSandboxRequest::default()
        };
        let meta = system.meta(STAT_TIMEOUT);
        let entry = system.call(&meta, &stat).await?;
        let mut name = name::shown_name(path);
        if entry.entry_kind() == v1::SandboxEntryKind::Directory {
            print_note(&format!(
                "{name} is a directory: its size is known only when it is packed."
            ));
            name.push_str(".zip");
        }
        candidates.push(DeliveryCandidate {
            name,
            size: entry.size,
            // Reading the file would take as long as sending it.
            head: Vec::new(),
        });
    }
    Ok((target, candidates))
}

/// The chat to which the session of a request is bound.
async fn session_chat(
    system: &SystemConnection,
    request: &v1::SendFileRequested,
) -> Result<v1::ChatTarget, CommandFailure> {
    let show = v1::ShowSessionRequest {
        session: request.session.clone(),
    };
    let meta = system.meta(STAT_TIMEOUT);
    let session = system.call(&meta, &show).await?;
    let chat = session.chat;
    chat.ok_or_else(|| Fault::from(dray_platform_delivery::error::DeliveryError::NoChat).into())
}

async fn local_candidate(file: &Path) -> Result<DeliveryCandidate, CommandFailure> {
    let (opened, size) = upload::open_regular_file(file).await?;
    let mut head = Vec::new();
    // The number of bytes that type detection reads.
    let limit = u64::try_from(HEAD_BYTES).unwrap_or(u64::MAX);
    opened
        .take(limit)
        .read_to_end(&mut head)
        .await
        .map_err(CommandFailure::local(format!(
            "cannot read {}",
            file.display()
        )))?;
    let name = file.file_name().unwrap_or_default();
    Ok(DeliveryCandidate {
        name: name.to_string_lossy().into_owned(),
        size,
        head,
    })
}

async fn show_plan(
    global: &GlobalOptions,
    request: &v1::SendFileRequested,
    target: v1::ChatTarget,
    files: Vec<DeliveryCandidate>,
) -> Result<(), CommandFailure> {
    let sources = context::config_sources(global)?;
    let bus: BusSection = context::config_section(&context::load_config(&sources)?, "bus")?;
    // A command that runs the services itself has the rights of its user.
    let sources = match bus.mode {
        BusMode::Embedded => SystemConnection::as_operator(sources),
        BusMode::Nats => {
            // The configuration of a running system cannot be read from here.
            print_note("Accounts and policy are those of this command's configuration.");
            sources
        }
    };
    let config: Config =
        context::config_section(&context::load_config(&sources)?, PlatformDelivery::NAME)?;
    let flags = request.flags.unwrap_or_default();
    let request = DryRunRequest {
        target,
        message: request.message.clone(),
        flags: SendFlags {
            as_voice: flags.as_voice,
            as_document: flags.as_document,
            spoiler: flags.spoiler,
        },
        files,
    };
    let tenant = context::tenant_of(global)?;
    let plan = plan_delivery(&config, &Clock::system(), &tenant, request).await;
    let plan = plan.map_err(|fault| match fault.detail.as_str() {
        "config_invalid" => CommandFailure::Configuration(fault.message),
        _ => fault.into(),
    })?;
    if global.json {
        let document = serde_json::to_string(&plan).unwrap_or_default();
        print_line(&document);
    } else {
        for line in plan_lines(&plan) {
            print_line(&line);
        }
    }
    if plan.refused.is_empty() {
        Ok(())
    } else {
        Err(CommandFailure::Reported)
    }
}

/// The plan for people, one line each for target, policy, limits, steps and refusals.
fn plan_lines(plan: &DryRunPlan) -> Vec<String> {
    let policy = match plan.policy {
        ChatPolicy::AnyChat => "any chat may be named (allow_targets)",
        ChatPolicy::Listed => "this chat is listed in allowed_targets",
        ChatPolicy::OwnChatOnly => "only sessions that are bound to this chat",
    };
    let mut lines = vec![
        format!(
            "to       {} by the account {}",
            name::shown_text(&plan.target, 200),
            plan.account
        ),
        format!("policy   {policy}"),
        format!("limits   {}", limits_line(&plan.limits)),
    ];
    for (number, step) in (1..).zip(&plan.steps) {
        let shown: Vec<String> = step
            .files
            .iter()
            .map(|file| name::shown_text(file, 80))
            .collect();
        let mut line = format!("{number:<8} {:<11} {}", step.route, shown.join(", "));
        if !step.text.is_empty() {
            let _ = write!(
                line,
                " \u{201c}{}\u{201d}",
                name::shown_text(&step.text, 60)
            );
        }
        if step.lossy {
            line.push_str("  recompressed by the platform");
        }
        if step.route == dray_platform::Route::Link {
            line.push_str("  where the store's address is reachable (links)");
        }
        lines.push(line.trim_end().to_owned());
    }
    for refused in &plan.refused {
        let shown = name::shown_text(&refused.name, 80);
        lines.push(format!("refused  {shown}: {}", refused.reason));
    }
    lines.push("Nothing was sent.".to_owned());
    lines
}

fn limits_line(limits: &ChatLimits) -> String {
    let size = |bytes: u64| match bytes {
        // The largest number means no limit.
        u64::MAX => "any size".to_owned(),
        bytes => human_size(bytes),
    };
    let count = |count: usize| match count {
        usize::MAX => "any number of".to_owned(),
        count => count.to_string(),
    };
    let mut line = format!("file {}", size(limits.any));
    for (route, limit) in &limits.routes {
        let _ = write!(line, ", {route} {}", size(*limit));
    }
    let _ = write!(
        line,
        "; {} files in one message; caption {}, text {} characters",
        count(limits.per_message),
        count(limits.caption),
        count(limits.text)
    );
    line
}

#[cfg(test)]
mod tests {
    use dray_platform_delivery::dry_run::{PlannedStep, RefusedFile};
    use dray_platform_delivery::link::LinkPolicy;

    use super::*;

    #[test]
    fn the_plan_names_account_policy_limits_routes_and_refusals() {
        let plan = DryRunPlan {
            target: "telegram:42".to_owned(),
            account: "bot".to_owned(),
            policy: ChatPolicy::Listed,
            limits: ChatLimits {
                routes: vec![(dray_platform::Route::Photo, 10 << 20)],
                any: 50 << 20,
                caption: 1024,
                text: 4096,
                per_message: 10,
                request: None,
                download: None,
            },
            links: LinkPolicy::Never,
            steps: vec![PlannedStep {
                route: dray_platform::Route::Photo,
                files: vec!["a.png".to_owned()],
                text: "look".to_owned(),
                lossy: true,
            }],
            refused: vec![RefusedFile {
                name: "big.zip".to_owned(),
                reason: "Too large.".to_owned(),
            }],
        };
        assert_eq!(
            plan_lines(&plan),
            [
                "to       telegram:42 by the account bot",
                "policy   this chat is listed in allowed_targets",
                "limits   file 50 MB, photo 10 MB; 10 files in one message; caption 1024, text 4096 characters",
                "1        photo       a.png \u{201c}look\u{201d}  recompressed by the platform",
                "refused  big.zip: Too large.",
                "Nothing was sent.",
            ]
        );
    }
}
