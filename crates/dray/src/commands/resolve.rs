//! `dray resolve`: the arguments of one tool call, with content instead of references.

use std::io::IsTerminal as _;
use std::time::Duration;

use bytes::Bytes;
use dray_proto::MAX_INLINE_BYTES;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_service::config::Environment;
use dray_store::ArtifactLabel;
use dray_types::terminal::printable_json;
use dray_types::{ByteSize, Fault, OperationId};
use tokio::io::AsyncReadExt as _;

use crate::cli::{GlobalOptions, ResolveArgs};
use crate::commands::policy;
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line};
use crate::progress;
use crate::standard_input::read_standard_input;

/// Largest resolved arguments that are printed; larger ones fail.
const MAX_PRINTED_BYTES: ByteSize = ByteSize::mib(512);

/// Resolves the arguments and prints them as JSON.
pub(crate) async fn run(
    global: &GlobalOptions,
    resolve: &ResolveArgs,
) -> Result<(), CommandFailure> {
    let arguments = read_arguments(&resolve.arguments).await?;
    let app_policy = policy::read_policy(resolve.app_policy.as_deref())?;
    let system = SystemConnection::open(global, &["file-resolver", "egress-fetcher"]).await?;
    let outcome = resolve_reply(global, resolve, &system, arguments, app_policy).await;
    system.close().await;
    let resolved = outcome?;
    // The content is text of others. A program gets it as it was written.
    let is_shown = !global.json && std::io::stdout().is_terminal();
    print_line(&if is_shown {
        printable_json(&resolved)
    } else {
        resolved.as_str().into()
    });
    Ok(())
}

async fn read_arguments(given: &str) -> Result<Bytes, CommandFailure> {
    if given != "-" {
        return Ok(Bytes::copy_from_slice(given.as_bytes()));
    }
    let mut text = Vec::new();
    read_standard_input()?
        .read_to_end(&mut text)
        .await
        .map_err(CommandFailure::local("cannot read standard input"))?;
    Ok(text.into())
}

async fn resolve_reply(
    global: &GlobalOptions,
    resolve: &ResolveArgs,
    system: &SystemConnection,
    arguments: Bytes,
    app_policy: Option<v1::AppPolicy>,
) -> Result<String, CommandFailure> {
    let meta = system.meta(Duration::from_secs(resolve.timeout));
    let request = v1::ResolveRequest {
        arguments: Some(
            arguments_content(system, &meta.operation, arguments)
                .await?
                .into(),
        ),
        options: Some(v1::ResolveOptions {
            size_limit_bytes: resolve.size_limit.map_or(0, ByteSize::as_u64),
            external_url_fetch: app_policy,
            nested: resolve.nested,
            tool_timeout_ms: 0,
            request: String::new(),
        }),
        credentials: dial_credentials(resolve)?,
        tool: String::new(),
        presign: false,
    };
    let waiting = progress::spinner_with_text("resolving", global.json);
    let reply = system.call(&meta, &request).await;
    waiting.finish_and_clear();
    match reply?.outcome.ok_or_else(Fault::internal)? {
        v1::resolve_reply::Outcome::Resolved(resolved) => resolved_text(system, resolved).await,
        v1::resolve_reply::Outcome::Invalid(invalid) => Err(rejection_fault(invalid).into()),
    }
}

/// The key for DIAL Core: from the file that was named, or from the environment. The service sends it to DIAL's
/// origin only.
fn dial_credentials(resolve: &ResolveArgs) -> Result<Option<v1::DialCredentials>, CommandFailure> {
    let api_key = match &resolve.api_key_file {
        Some(file) => std::fs::read_to_string(file).map_err(CommandFailure::local(format!(
            "cannot read {}",
            file.display()
        )))?,
        None => match Environment::from_process().get("DIAL_API_KEY") {
            Some(key) => key.to_owned(),
            None => return Ok(None),
        },
    };
    Ok(Some(v1::DialCredentials {
        api_key: api_key.trim().to_owned(),
        authorization: String::new(),
    }))
}

/// The arguments as content of the request: inline while they are small, stored first otherwise.
async fn arguments_content(
    system: &SystemConnection,
    operation: &OperationId,
    arguments: Bytes,
) -> Result<ContentSource, CommandFailure> {
    // Larger messages would pass the limit of the bus (messaging-reliability, K-1).
    if arguments.len() <= MAX_INLINE_BYTES {
        return Ok(ContentSource::Inline(arguments));
    }
    let label = ArtifactLabel::new("application/json", "arguments.json");
    let claim = system
        .store()?
        .put(system.tenant(), operation, arguments, label)
        .await
        .map_err(Fault::from)?;
    Ok(ContentSource::Claim(claim))
}

/// The fault of a rejected argument, with the sentence that a model would see.
fn rejection_fault(invalid: v1::InvalidParameter) -> Fault {
    let fault = invalid.fault.map_or_else(Fault::internal, Fault::from);
    Fault {
        message: invalid.tool_message,
        ..fault
    }
}

async fn resolved_text(
    system: &SystemConnection,
    resolved: v1::ResolvedArguments,
) -> Result<String, CommandFailure> {
    let content = resolved.arguments.ok_or_else(Fault::internal)?;
    let bytes = match ContentSource::try_from(content).map_err(|_| Fault::internal())? {
        ContentSource::Inline(bytes) => bytes,
        ContentSource::Claim(claim) => {
            let deadline = system.deadline(Duration::from_mins(10));
            let reader = system
                .store()?
                .read(system.tenant(), &claim, deadline)
                .await
                .map_err(Fault::from)?;
            reader
                .read_all(MAX_PRINTED_BYTES)
                .await
                .map_err(Fault::from)?
        }
    };
    String::from_utf8(bytes.into()).map_err(|_| Fault::internal().into())
}
