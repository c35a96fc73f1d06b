//! `dray policy show` and `dray policy put`: the policy files in the bucket of the bus.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use dray_bus::{Bus, KeyError, KeyValue};
use dray_console::{BucketPolicy, PolicyBucketReader};
use dray_egress_fetcher::policy_bucket::{
    BucketState, POLICY_BUCKET, PolicyDraft, PolicyRevision, PutError,
};
use dray_egress_fetcher::policy_files::{PolicyBytes, PolicyReadError};
use dray_guard::RuleSet;
use dray_types::{ErrorChain, Fault, FaultCode};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::cli::{GlobalOptions, PolicyPutArgs, PolicyShowArgs};
use crate::commands::shown;
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line};

/// The failure of a command that cannot read a policy.
pub(crate) fn read_failure(error: PolicyReadError) -> CommandFailure {
    match error {
        PolicyReadError::Invalid(_) => CommandFailure::Configuration(error.to_string()),
        PolicyReadError::Bus(error) => bus_failure(&error),
        PolicyReadError::BucketContent(_) => {
            CommandFailure::Configuration(format!("{error}. `dray policy put` replaces its files"))
        }
        other => CommandFailure::Usage(ErrorChain(&other).to_string()),
    }
}

fn bus_failure(error: &KeyError) -> CommandFailure {
    CommandFailure::Unreachable {
        description: format!("the bucket {POLICY_BUCKET}: {}", ErrorChain(error)),
        advice: "Check that the bucket exists (`dray topology check`) and that this identity has the rights of \
                 `operator`."
            .to_owned(),
    }
}

/// The rules in the bucket.
pub(crate) async fn rules(global: &GlobalOptions) -> Result<RuleSet, CommandFailure> {
    let (system, keys) = open(global).await?;
    let state = BucketState::read(&keys).await.map_err(read_failure);
    let state = system.close_with(state).await?;
    let rules = state.policy().and_then(|files| files.rules());
    rules.map_err(read_failure)
}

async fn open(global: &GlobalOptions) -> Result<(SystemConnection, KeyValue), CommandFailure> {
    let system = SystemConnection::open_bus(global).await?;
    let keys = system.bus.key_value(POLICY_BUCKET);
    Ok((system, keys))
}

/// Shows the bucket.
pub(crate) async fn show(
    global: &GlobalOptions,
    arguments: &PolicyShowArgs,
) -> Result<(), CommandFailure> {
    let (system, keys) = open(global).await?;
    let state = BucketState::read(&keys).await.map_err(read_failure);
    let state = system.close_with(state).await?;
    let rules = state.policy().and_then(|files| files.rules());
    if let Some(directory) = &arguments.to {
        export(&state, directory)?;
    }
    if global.json {
        print_line(&state_json(&state, &rules).to_string());
    } else {
        print_line(&state_text(&state, &rules));
    }
    Ok(())
}

/// Writes the files to a directory, which must be empty.
fn export(state: &BucketState, directory: &Path) -> Result<(), CommandFailure> {
    // An invalid name could lead out of the directory.
    let files = state.policy().map_err(read_failure)?;
    let failed =
        || CommandFailure::local(format!("cannot write the files to {}", directory.display()));
    // A policy names internal hosts, so only this user may read it.
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(directory).map_err(failed())?;
    if std::fs::read_dir(directory)
        .map_err(failed())?
        .next()
        .is_some()
    {
        return Err(CommandFailure::Usage(format!(
            "--to: {} is not empty",
            directory.display()
        )));
    }
    for (name, bytes) in files.files() {
        let mut options = std::fs::OpenOptions::new();
        let created = options.write(true).create_new(true).mode(0o600);
        let mut file = created.open(directory.join(name)).map_err(failed())?;
        file.write_all(bytes).map_err(failed())?;
    }
    Ok(())
}

fn state_json(state: &BucketState, rules: &Result<RuleSet, PolicyReadError>) -> Value {
    let files: Vec<Value> = state
        .files()
        .into_iter()
        .map(|file| {
            json!({
                "name": file.name, "bytes": file.bytes, "revision": file.revision, "time_ms": file.time_ms,
            })
        })
        .collect();
    let revision = state.revision();
    json!({
        "bucket": POLICY_BUCKET,
        "revision": revision.number,
        "time_ms": revision.time_ms,
        "written_by": revision.written_by,
        "rules_digest": rules.as_ref().ok().map(RuleSet::digest),
        "rules": rules.as_ref().ok().map(RuleSet::rule_count),
        "problem": rules.as_ref().err().map(|error| ErrorChain(error).to_string()),
        "files": files,
    })
}

fn state_text(state: &BucketState, rules: &Result<RuleSet, PolicyReadError>) -> String {
    let mut lines = vec![revision_text(&state.revision())];
    lines.push(match rules {
        Ok(rules) => format!("{} rules, digest {}", rules.rule_count(), rules.digest()),
        Err(error) => ErrorChain(error).to_string(),
    });
    for file in state.files() {
        let name = file.name.escape_debug();
        let time = shown::rfc3339_time(file.time_ms);
        lines.push(format!("{:>8}  {time}  {name}", file.bytes));
    }
    lines.join("\n")
}

/// A revision with its writer and time, where the bucket has them.
pub(crate) fn revision_text(revision: &PolicyRevision) -> String {
    let number = revision.number;
    let time = revision.time_ms.map(shown::rfc3339_time);
    match (time, &revision.written_by) {
        (Some(time), Some(writer)) => {
            format!(
                "revision {number}, put by {} at {time}",
                writer.escape_debug()
            )
        }
        (Some(time), None) => format!("revision {number}, written at {time}"),
        (None, _) => format!("revision {number}, never written"),
    }
}

/// Replaces the policy in the bucket.
pub(crate) async fn put(
    global: &GlobalOptions,
    arguments: &PolicyPutArgs,
) -> Result<(), CommandFailure> {
    let files = PolicyBytes::read(&arguments.path).map_err(read_failure)?;
    let draft = PolicyDraft::new(files, &arguments.principal).map_err(put_failure)?;
    let (system, keys) = open(global).await?;
    let put = draft.put(&keys, arguments.revision).await;
    let put = system.close_with(put.map_err(put_failure)).await?;
    if global.json {
        let report = json!({
            "bucket": POLICY_BUCKET, "revision": put.revision, "rules_digest": draft.rules_digest(),
            "rules": draft.rule_count(), "written": put.written, "deleted": put.deleted,
            "leftover_keys": put.leftover_keys,
        });
        print_line(&report.to_string());
        return Ok(());
    }
    print_line(&format!(
        "revision {}: {} files written, {} deleted; {} rules, digest {}",
        put.revision,
        put.written,
        put.deleted,
        draft.rule_count(),
        draft.rules_digest()
    ));
    if put.leftover_keys > 0 {
        print_line(&format!(
            "{} keys of an earlier layout could not be deleted; they are ignored, and the next put tries again",
            put.leftover_keys
        ));
    }
    Ok(())
}

fn put_failure(error: PutError) -> CommandFailure {
    match error {
        PutError::Policy(error) => read_failure(error),
        PutError::FileName(_) | PutError::WriterName | PutError::TooLarge(_) => {
            CommandFailure::Usage(error.to_string())
        }
        PutError::Outdated { based_on, present } => outdated(based_on, &present),
        PutError::Contended => revision_fault(format!("{error}; nothing was written")),
        PutError::Write(error) => bus_failure(&error),
    }
}

fn outdated(based_on: u64, present: &PolicyRevision) -> CommandFailure {
    revision_fault(format!(
        "the policy in the bucket has {}, and the files are based on revision {based_on}; nothing was written",
        revision_text(present)
    ))
}

fn revision_fault(message: String) -> CommandFailure {
    CommandFailure::Fault(
        Fault::new(FaultCode::InvalidArgument, message)
            .detail("policy_revision")
            .advice(
                "Look at the present policy (`dray policy show --to DIRECTORY`), put your changes on top of it, and name \
                 its revision.",
            ),
    )
}

/// The bucket for the pages of the console.
#[derive(Clone, Debug)]
pub(crate) struct PolicyBucketKeys(KeyValue);

impl PolicyBucketKeys {
    /// A reader of the bucket on this bus.
    pub(crate) fn reader(bus: &Bus) -> Arc<dyn PolicyBucketReader> {
        Arc::new(Self(bus.key_value(POLICY_BUCKET)))
    }
}

impl PolicyBucketReader for PolicyBucketKeys {
    fn read(&self) -> BoxFuture<'_, Result<BucketPolicy, String>> {
        Box::pin(async move {
            let state = BucketState::read(&self.0).await;
            let state = state.map_err(|error| ErrorChain(&error).to_string())?;
            let rules = state.policy().and_then(|files| files.rules());
            let revision = state.revision();
            Ok(BucketPolicy {
                bucket: POLICY_BUCKET,
                revision: revision.number,
                time_ms: revision.time_ms,
                written_by: revision.written_by,
                rules_digest: rules
                    .map(|rules| rules.digest().to_owned())
                    .map_err(|error| ErrorChain(&error).to_string()),
            })
        })
    }
}
