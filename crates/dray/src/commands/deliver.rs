//! `dray send`, `dray deliver`, `dray resend`: files to people, and the wait for the platform's confirmation.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_platform::DeliveryTarget;
use dray_presentation::name;
use dray_presentation::size::human_size;
use dray_proto::v1::{self, FileState};
use dray_service::stop_signals::StopSignals;
use dray_store::MAX_OBJECT;
use dray_types::{Claim, Fault, FaultCode, OperationId};

use crate::cli::{DeliverArgs, DeliveryOptions, GlobalOptions, ResendArgs, SendArgs};
use crate::commands::{dry_run, reach, receipts, sandbox, shown, upload};
use crate::context::SystemConnection;
use crate::interruption::{self, CleanupHold};
use crate::outcome::{CommandFailure, print_line, print_note};
use crate::progress;

mod wait;

use self::wait::{
    RequestedDelivery, failed_request, follow_progress, name_delivery, poll_until_ended,
};

/// Services that a delivery needs.
const DELIVERY_SERVICES: [&str; 2] = ["platform-delivery", sandbox::SANDBOX_SERVICE];
/// Sends files of a sandbox.
pub(crate) async fn send_from_sandbox(
    global: &GlobalOptions,
    send: &SendArgs,
) -> Result<(), CommandFailure> {
    if send.from.is_none() && send.options.session.is_none() {
        return Err(CommandFailure::Usage(
            "say which sandbox the files are in: --from docker:NAME, or --session ID".to_owned(),
        ));
    }
    if let Some(from) = &send.from {
        reach::check_address(from)?;
    }
    let mut request = send_request(&send.options)?;
    request.paths = send
        .paths
        .iter()
        .map(|path| sandbox::path_bytes(path))
        .collect();
    let from = send.from.as_deref().unwrap_or_default();
    request.sandbox = reach::absolute_address(from);
    if send.options.dry_run {
        // The sandbox was named by the user, so a directory may be used without being configured.
        return dry_run::plan_sandbox_files(&reach::allow_local_sandbox(global, from), &request)
            .await;
    }
    let system = SystemConnection::open_to_ask(
        &reach::allow_local_sandbox(global, from),
        &DELIVERY_SERVICES,
    )
    .await?;
    let outcome = Box::pin(submit_request(global, &system, &send.options, request)).await;
    system.close().await;
    outcome
}

/// Sends files of this machine, which are stored first.
pub(crate) async fn deliver_local_files(
    global: &GlobalOptions,
    deliver: &DeliverArgs,
) -> Result<(), CommandFailure> {
    let request = send_request(&deliver.options)?;
    // The sizes are checked before anything is stored: a copy of all files can take long, and more space than is free.
    check_sizes(&deliver.files).await?;
    if deliver.options.dry_run {
        return dry_run::plan_local_files(global, &request, &deliver.files).await;
    }
    // The connection is opened with the store, unlike in the other commands here, because content is stored in it.
    let system = SystemConnection::open(global, &DELIVERY_SERVICES).await?;
    let outcome = Box::pin(store_and_submit(global, &system, deliver, request)).await;
    system.close().await;
    outcome
}

/// Refuses files of this machine that the store cannot hold.
async fn check_sizes(files: &[PathBuf]) -> Result<(), CommandFailure> {
    for file in files {
        let (_, size) = upload::open_regular_file(file).await?;
        if size > MAX_OBJECT {
            let message = format!(
                "{} has {}, more than the limit of {}.",
                shown::path_line(file),
                human_size(size),
                human_size(MAX_OBJECT)
            );
            return Err(Fault::new(FaultCode::TooLarge, message)
                .detail("too_large")
                .advice("Split or compress the file.")
                .into());
        }
    }
    Ok(())
}

async fn store_and_submit(
    global: &GlobalOptions,
    system: &SystemConnection,
    deliver: &DeliverArgs,
    mut request: v1::SendFileRequested,
) -> Result<(), CommandFailure> {
    for file in &deliver.files {
        let claim: Claim = upload::upload_file(global, system, file, None).await?;
        request.claims.push(claim.into());
    }
    Box::pin(submit_request(global, system, &deliver.options, request)).await
}

/// Sends undelivered files again as a new delivery.
pub(crate) async fn resend_delivery(
    global: &GlobalOptions,
    resend: &ResendArgs,
) -> Result<(), CommandFailure> {
    let system = SystemConnection::open_to_ask(global, &DELIVERY_SERVICES).await?;
    let meta = system.meta(Duration::from_secs(resend.timeout));
    let request = v1::ResendRequest {
        delivery_id: resend.delivery.clone(),
        all: resend.all,
    };
    // The hold begins before the request, as in `submit_request`.
    let _hold = CleanupHold::new();
    let mut signals = interruption::listen_to_signals()?;
    let accepted = interruption::until_signal(&mut signals, system.call(&meta, &request)).await;
    let outcome = match accepted {
        Ok(accepted) => {
            let delivery = RequestedDelivery::resent(&accepted.delivery_id);
            wait_for_outcome(global, &system, delivery, resend.timeout, &mut signals).await
        }
        Err(CommandFailure::Fault(fault)) if fault.detail == "nothing_to_resend" => Err(fault
            .advice("Add --all to send all files once more.")
            .into()),
        // The new delivery has the id of this operation.
        Err(failure) => {
            let delivery = RequestedDelivery::resent(meta.operation.as_str());
            Err(failed_request(global, failure, delivery))
        }
    };
    system.close().await;
    outcome
}

/// The request that the options describe, without files. Without a target, files go to the current directory.
fn send_request(options: &DeliveryOptions) -> Result<v1::SendFileRequested, CommandFailure> {
    let target = match (&options.to, &options.session) {
        (Some(to), _) => Some(parse_chat_target(to)?),
        (None, Some(_)) => None,
        (None, None) => Some(parse_chat_target("cli:")?),
    };
    Ok(v1::SendFileRequested {
        session: options.session.clone().unwrap_or_default(),
        message: options.message.clone(),
        flags: Some(v1::DeliveryFlags {
            as_voice: options.appearance.as_voice,
            as_document: options.appearance.as_document,
            spoiler: options.appearance.spoiler,
            as_preview: options.appearance.as_preview,
        }),
        target,
        ..v1::SendFileRequested::default()
    })
}

/// A chat as it was typed. `cli:` is a directory of this machine, by default the current one.
pub(crate) fn parse_chat_target(text: &str) -> Result<v1::ChatTarget, CommandFailure> {
    let target: DeliveryTarget = text
        .parse()
        .map_err(|error: dray_platform::PlatformError| {
            CommandFailure::Usage(error.context().to_owned())
        })?;
    let chat = if target.platform == "cli" {
        // The path is made absolute here: the service has another current directory.
        let directory = std::env::current_dir()
            .map_err(CommandFailure::local("cannot find the current directory"))?;
        let directory = match target.chat.as_str() {
            "" => directory,
            chat => directory.join(Path::new(chat)),
        };
        directory
            .to_str()
            .ok_or_else(|| {
                CommandFailure::Usage("the current directory has no UTF-8 name".to_owned())
            })?
            .to_owned()
    } else {
        target.chat
    };
    Ok(v1::ChatTarget {
        platform: target.platform,
        account: target.account,
        chat,
        thread: target.thread,
        reply_to: target.reply_to,
    })
}

async fn submit_request(
    global: &GlobalOptions,
    system: &SystemConnection,
    options: &DeliveryOptions,
    request: v1::SendFileRequested,
) -> Result<(), CommandFailure> {
    let mut meta = system.meta(Duration::from_secs(options.timeout));
    // The same id is the same delivery, so that a script can repeat the command after a crash.
    if let Some(id) = &options.delivery_id {
        let id = OperationId::new(id)
            .map_err(|error| CommandFailure::Usage(format!("--delivery-id: {error}")))?;
        meta = meta.with_operation(id);
    }
    // The hold is taken before the request: services of this command may send before the response, and a signal must
    // not cut that off.
    let _hold = CleanupHold::new();
    let mut signals = interruption::listen_to_signals()?;
    let accepted = interruption::until_signal(&mut signals, system.call(&meta, &request)).await;
    let accepted = accepted.map_err(|failure| {
        let delivery = RequestedDelivery::sent(meta.operation.as_str());
        failed_request(global, failure, delivery)
    })?;
    if accepted.duplicate {
        print_note("This delivery was requested before; waiting for its end.");
    }
    let delivery = RequestedDelivery::sent(&accepted.delivery_id);
    wait_for_outcome(global, system, delivery, options.timeout, &mut signals).await
}

/// Follows a delivery to its end and prints the outcome.
async fn wait_for_outcome(
    global: &GlobalOptions,
    system: &SystemConnection,
    delivery: RequestedDelivery<'_>,
    timeout: u64,
    signals: &mut StopSignals,
) -> Result<(), CommandFailure> {
    let bar = progress::spinner_with_text("on its way", global.json);
    let report = interruption::until_signal(signals, async {
        let follow = follow_progress(system, delivery.id, &bar);
        let end = Box::pin(poll_until_ended(
            system,
            delivery.id,
            Duration::from_secs(timeout),
        ));
        tokio::select! {
            report = end => report,
            () = follow => unreachable_end(),
        }
    })
    .await;
    bar.finish_and_clear();
    let report = report.map_err(|failure| {
        let sentence = "Interrupted; the delivery continues where services run.";
        name_delivery(global, failure, delivery, sentence)
    })?;
    if global.json {
        print_line(&report.result_json);
    } else {
        for line in receipts::report_lines(&report) {
            print_line(&line);
        }
    }
    if report.success {
        return Ok(());
    }
    if !global.json {
        for line in undelivered_remarks(&report) {
            print_note(&line);
        }
    }
    Err(CommandFailure::Reported)
}

/// Remarks that the lines of the files leave out: how many did not arrive, and the outcome of the text.
fn undelivered_remarks(report: &v1::DeliveryReport) -> Vec<String> {
    let count = report.files.len();
    let states = || report.files.iter().map(v1::DeliveredFile::file_state);
    let unknown = states()
        .filter(|state| *state == FileState::Unknown)
        .count();
    let failed = count - unknown - states().filter(|state| state.is_shown()).count();
    let mut lines = Vec::new();
    if failed > 0 {
        lines.push(format!(
            "{failed} of {count} did not arrive; the lines above say why."
        ));
    }
    if unknown > 0 {
        lines.push(format!(
            "{unknown} of {count} may have arrived; look into the chat before you send again."
        ));
    }
    let lacks_account =
        |file: &v1::DeliveredFile| file.failure() == Some(v1::DeliveryErrorKind::NoAccount);
    if report.files.iter().any(lacks_account) {
        lines.push(
            "Check the platform and the account of the target (PLATFORM/ACCOUNT:CHAT), and `platform-delivery.accounts` \
             (docs/platforms/)."
                .to_owned(),
        );
    }
    if count == 0 && report.notice.is_empty() {
        lines.push(format!(
            "Nothing was delivered; `dray receipts {}` has the receipt.",
            report.delivery_id
        ));
    }
    // The first line of the notice is about the files, which the count above already shows; the others are about the
    // text.
    let remarks = report
        .notice
        .lines()
        .skip(usize::from(failed + unknown > 0));
    lines.extend(remarks.map(|line| name::shown_text(line, 500)));
    lines
}

/// An internal fault: the follower of events ended, although it runs until it is dropped.
fn unreachable_end() -> Result<v1::DeliveryReport, CommandFailure> {
    Err(Fault::internal().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(states: &[FileState], notice: &str) -> v1::DeliveryReport {
        v1::DeliveryReport {
            files: states
                .iter()
                .map(|state| v1::DeliveredFile {
                    state_code: (*state).into(),
                    ..v1::DeliveredFile::default()
                })
                .collect(),
            notice: notice.to_owned(),
            ..v1::DeliveryReport::default()
        }
    }

    #[test]
    fn r_21_files_that_did_not_arrive_are_counted() {
        let files = [
            FileState::Delivered,
            FileState::Copied,
            FileState::DeliveredAsLink,
            FileState::Unknown,
            FileState::Failed,
        ];
        assert_eq!(
            undelivered_remarks(&report(&files, "⚠️ Couldn't deliver: a.")),
            [
                "1 of 5 did not arrive; the lines above say why.",
                "1 of 5 may have arrived; look into the chat before you send again.",
            ]
        );
    }

    #[test]
    fn a_platform_without_an_account_gets_advice() {
        let mut rejected = report(&[FileState::Rejected], "");
        rejected.files[0].set_failure(v1::DeliveryErrorKind::NoAccount);
        let lines = undelivered_remarks(&rejected);
        assert!(
            lines[1].contains("`platform-delivery.accounts`"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_delivery_that_failed_without_files_is_never_silent() {
        let lines = undelivered_remarks(&report(&[], ""));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("Nothing was delivered"), "{lines:?}");
    }

    #[test]
    fn r_21_a_text_that_was_not_shown_is_reported() {
        let lines = undelivered_remarks(&report(&[FileState::Delivered], "⚠️ No words."));
        assert_eq!(lines, ["⚠️ No words."]);
        let lines =
            undelivered_remarks(&report(&[FileState::Failed], "⚠️ No files.\n⚠️ No words."));
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1], "⚠️ No words.");
    }

    #[test]
    fn relative_paths_of_the_command_line_begin_at_the_working_directory() {
        let current_directory = std::env::current_dir().unwrap();
        let chat = |text: &str| parse_chat_target(text).unwrap().chat;
        assert_eq!(chat("cli:"), current_directory.to_str().unwrap());
        assert_eq!(
            chat("cli:out"),
            current_directory.join("out").to_str().unwrap()
        );
        assert_eq!(chat("cli:/srv"), "/srv");
        assert!(parse_chat_target("nonsense").is_err());
    }
}
