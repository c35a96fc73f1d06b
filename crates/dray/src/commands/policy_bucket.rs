//! `dray policy show` and `dray policy put`: the policy files in the bucket of the bus.

use std::path::Path;

use bytes::Bytes;
use dray_bus::{KeyError, KeyValue};
use dray_egress_fetcher::policy_bucket::{
    BucketState, MAX_FILE_BYTES, NAME_RULE, POLICY_BUCKET, is_policy_name,
};
use dray_egress_fetcher::policy_files::{PolicyBytes, PolicyReadError};
use dray_guard::RuleSet;
use dray_types::{ErrorChain, Fault, FaultCode};
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
    let state = BucketState::read(&keys).await;
    system.close().await;
    let rules = state
        .and_then(|state| state.policy())
        .and_then(|files| files.rules());
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
    let state = BucketState::read(&keys).await;
    system.close().await;
    let state = state.map_err(read_failure)?;
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
    std::fs::create_dir_all(directory).map_err(failed())?;
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
        std::fs::write(directory.join(name), bytes).map_err(failed())?;
    }
    Ok(())
}

fn state_json(state: &BucketState, rules: &Result<RuleSet, PolicyReadError>) -> Value {
    let files: Vec<Value> = state
        .files
        .iter()
        .filter_map(|(name, file)| {
            let content = file.content.as_ref()?;
            Some(json!({
                "name": name, "bytes": content.len(), "revision": file.revision, "time_ms": file.time_ms,
            }))
        })
        .collect();
    json!({
        "bucket": POLICY_BUCKET,
        "revision": state.revision,
        "rules_digest": rules.as_ref().ok().map(RuleSet::digest),
        "rules": rules.as_ref().ok().map(RuleSet::rule_count),
        "problem": rules.as_ref().err().map(|error| ErrorChain(error).to_string()),
        "files": files,
    })
}

fn state_text(state: &BucketState, rules: &Result<RuleSet, PolicyReadError>) -> String {
    let mut lines = vec![format!("revision {}", state.revision)];
    lines.push(match rules {
        Ok(rules) => format!("{} rules, digest {}", rules.rule_count(), rules.digest()),
        Err(error) => ErrorChain(error).to_string(),
    });
    for (name, file) in &state.files {
        if let Some(content) = &file.content {
            let name = name.escape_debug();
            let time = shown::rfc3339_time(file.time_ms);
            lines.push(format!("{:>8}  {time}  {name}", content.len()));
        }
    }
    lines.join("\n")
}

/// Replaces the policy in the bucket.
pub(crate) async fn put(
    global: &GlobalOptions,
    arguments: &PolicyPutArgs,
) -> Result<(), CommandFailure> {
    let files = PolicyBytes::read(&arguments.path).map_err(read_failure)?;
    let rules = files.rules().map_err(read_failure)?;
    check_names_and_sizes(&files)?;
    let (system, keys) = open(global).await?;
    let written = replace(&keys, &files, arguments.revision).await;
    system.close().await;
    let written = written?;
    if global.json {
        let report = json!({
            "bucket": POLICY_BUCKET, "revision": written.revision, "rules_digest": rules.digest(),
            "rules": rules.rule_count(), "written": written.written, "deleted": written.deleted,
        });
        print_line(&report.to_string());
    } else {
        print_line(&format!(
            "revision {}: {} files written, {} deleted; {} rules, digest {}",
            written.revision,
            written.written,
            written.deleted,
            rules.rule_count(),
            rules.digest()
        ));
    }
    Ok(())
}

fn check_names_and_sizes(files: &PolicyBytes) -> Result<(), CommandFailure> {
    for (name, bytes) in files.files() {
        if !is_policy_name(name) {
            return Err(CommandFailure::Usage(format!("{name} {NAME_RULE}")));
        }
        if bytes.len() > MAX_FILE_BYTES {
            return Err(CommandFailure::Usage(format!(
                "{name} is larger than {} KiB, the limit of one file in the bucket",
                MAX_FILE_BYTES / 1024
            )));
        }
    }
    Ok(())
}

/// What a replacement changed.
#[derive(Clone, Copy, Debug)]
struct WrittenPolicy {
    revision: u64,
    written: usize,
    deleted: usize,
}

/// Writes the files that differ, then deletes those that are not in the policy. Each write names the revision of the
/// write before, so that a concurrent change ends the replacement.
async fn replace(
    keys: &KeyValue,
    files: &PolicyBytes,
    based_on: u64,
) -> Result<WrittenPolicy, CommandFailure> {
    let state = BucketState::read(keys).await.map_err(read_failure)?;
    if state.revision != based_on {
        return Err(outdated(based_on, state.revision));
    }
    let mut changes: Vec<(&str, Option<Bytes>, u64)> = Vec::new();
    for (name, bytes) in files.files() {
        let file = state.files.get(name);
        let present = file.and_then(|file| file.content.as_deref());
        if present != Some(bytes) || state.is_too_large {
            let revision = file.map_or(0, |file| file.revision);
            changes.push((name, Some(Bytes::copy_from_slice(bytes)), revision));
        }
    }
    let written = changes.len();
    for (name, file) in &state.files {
        let is_kept = files.files().any(|(kept, _)| kept == name);
        if file.content.is_some() && !is_kept {
            changes.push((name, None, file.revision));
        }
    }
    let mut revision = state.revision;
    for (done, (name, content, last)) in changes.iter().enumerate() {
        let change = keys.write_in_order(name, content.clone(), *last, revision);
        revision = change.await.map_err(|error| match error {
            KeyError::Stale => changed_meanwhile(done, changes.len()),
            error => bus_failure(&error),
        })?;
    }
    Ok(WrittenPolicy {
        revision,
        written,
        deleted: changes.len() - written,
    })
}

fn outdated(based_on: u64, present: u64) -> CommandFailure {
    let message = format!(
        "the policy in the bucket has revision {present}, and the files are based on {based_on}; nothing was written"
    );
    revision_fault(message)
}

fn changed_meanwhile(done: usize, all: usize) -> CommandFailure {
    revision_fault(format!(
        "the bucket was changed meanwhile, after {done} of {all} changes"
    ))
}

fn revision_fault(message: String) -> CommandFailure {
    CommandFailure::Fault(
        Fault::new(FaultCode::InvalidArgument, message)
            .detail("policy_revision")
            .advice("Look at the present policy (`dray policy show --to DIRECTORY`) and put your changes on top of it."),
    )
}
