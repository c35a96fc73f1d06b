//! Completion of the variables of resource templates and of paths in prompts.

use dray_proto::v1;
use dray_types::Fault;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionInfo, Reference};

use crate::client::SHORT_TIMEOUT;
use crate::content::ContentAccess;
use crate::options::ServerOptions;
use crate::{failure, prompts};

/// Most entries of a directory that one completion reads.
const MAX_LISTED: u32 = 1_000;

/// Values that begin with the user's input.
///
/// # Errors
///
/// The prompt does not exist.
pub(crate) async fn complete(
    access: &ContentAccess,
    options: &ServerOptions,
    request: &CompleteRequestParams,
) -> Result<CompleteResult, Fault> {
    if let Reference::Prompt(prompt) = &request.r#ref
        && !prompts::is_offered(options, &prompt.name)
    {
        return Err(failure::invalid(
            "This prompt does not exist here.",
            "`prompts/list` shows them.",
        ));
    }
    let typed = request.argument.value.as_str();
    let values = match (&request.r#ref, request.argument.name.as_str()) {
        (Reference::Resource(_), "session") => vec![access.client.session.as_str().to_owned()],
        (Reference::Resource(_), "path") => sandbox_paths(access, typed).await,
        _ => Vec::new(),
    };
    let mut values: Vec<String> = values
        .into_iter()
        .filter(|value| value.starts_with(typed))
        .collect();
    let total = u32::try_from(values.len()).unwrap_or(u32::MAX);
    let has_more = values.len() > CompletionInfo::MAX_VALUES;
    values.truncate(CompletionInfo::MAX_VALUES);
    let completion = CompletionInfo::with_pagination(values, Some(total), has_more)
        .map_err(|_| Fault::internal())?;
    Ok(CompleteResult::new(completion))
}

/// Paths in the directory of the typed one. Empty without a sandbox.
async fn sandbox_paths(access: &ContentAccess, typed: &str) -> Vec<String> {
    let directory = typed
        .rsplit_once('/')
        .map_or("", |(directory, _)| directory);
    let listed = match (directory, typed.starts_with('/')) {
        ("", true) => "/",
        ("", false) => ".",
        (directory, _) => directory,
    };
    let request = v1::ListSandboxRequest {
        sandbox: Some(access.client.sandbox()),
        path: listed.as_bytes().to_vec(),
        depth: 1,
        limit: MAX_LISTED,
        offset: 0,
    };
    let Ok(reply) = access.client.call(SHORT_TIMEOUT, &request).await else {
        // A failure results in no suggestions; the later request reports the problem.
        return Vec::new();
    };
    let prefix = typed
        .rsplit_once('/')
        .map_or(String::new(), |(directory, _)| format!("{directory}/"));
    let names = reply.entries.iter().filter_map(|entry| {
        let path = std::str::from_utf8(&entry.path).ok()?;
        path.rsplit('/').next().map(str::to_owned)
    });
    names.map(|name| format!("{prefix}{name}")).collect()
}
