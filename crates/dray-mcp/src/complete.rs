//! Completion of the variables of resource templates and of paths in prompts.

use dray_presentation::name::shown_text;
use dray_proto::v1;
use dray_types::Fault;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionInfo, Reference};

use crate::client::SHORT_TIMEOUT;
use crate::content::{ContentAccess, run_blocking};
use crate::location::SANDBOX_PATH_PREFIX;
use crate::options::ServerOptions;
use crate::{failure, prompts};

/// Most entries of a directory that one completion reads.
const MAX_LISTED: u32 = 1_000;
/// Most deliveries that one completion reads, the newest of the session.
const MAX_DELIVERIES: u32 = 100;

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
        (Reference::Resource(_), "path") => {
            let listed = sandbox_paths(access, typed).await;
            listed.into_iter().map(|listed| listed.path).collect()
        }
        (Reference::Resource(_), "id") => delivery_ids(access).await,
        (Reference::Prompt(_), "path") => locations(access, typed).await,
        _ => Vec::new(),
    };
    let mut values: Vec<String> = values
        .into_iter()
        .filter(|value| value.starts_with(typed) && is_printable(value))
        .collect();
    let total = u32::try_from(values.len()).unwrap_or(u32::MAX);
    let has_more = values.len() > CompletionInfo::MAX_VALUES;
    values.truncate(CompletionInfo::MAX_VALUES);
    let completion = CompletionInfo::with_pagination(values, Some(total), has_more)
        .map_err(|_| Fault::internal())?;
    Ok(CompleteResult::new(completion))
}

/// Clients show values in menus and terminals, and prompts contain them. A replacement would name another file.
fn is_printable(value: &str) -> bool {
    shown_text(value, usize::MAX) == value
}

/// A path that completes the user's input.
struct ListedPath {
    path: String,
    is_directory: bool,
}

impl ListedPath {
    /// The path, with `/` after a directory, so that the next completion continues in it.
    fn continuable(self) -> String {
        let mut path = self.path;
        if self.is_directory {
            path.push('/');
        }
        path
    }
}

/// The directory of a path that is being typed, with its last `/`, and the rest.
fn split_typed(typed: &str) -> (&str, &str) {
    let end = typed.rfind('/').map_or(0, |slash| slash + 1);
    typed.split_at_checked(end).unwrap_or(("", typed))
}

/// Paths in the directory of the typed one. Empty without a sandbox.
async fn sandbox_paths(access: &ContentAccess, typed: &str) -> Vec<ListedPath> {
    let (directory, _) = split_typed(typed);
    let listed = match (directory.trim_end_matches('/'), directory.is_empty()) {
        (_, true) => ".",
        ("", false) => "/",
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
    let entries = reply.entries.iter().filter_map(|entry| {
        let path = std::str::from_utf8(&entry.path).ok()?;
        let name = path.rsplit('/').next()?;
        Some(ListedPath {
            path: format!("{directory}{name}"),
            is_directory: entry.entry_kind() == v1::SandboxEntryKind::Directory,
        })
    });
    entries.collect()
}

/// Paths of this machine in the directory of the typed one. Empty without a root.
async fn local_paths(access: &ContentAccess, typed: &str) -> Vec<ListedPath> {
    let Some(root) = access.root.clone() else {
        return Vec::new();
    };
    let (directory, prefix) = split_typed(typed);
    let listed = if directory.is_empty() { "." } else { directory };
    let (listed, prefix) = (listed.to_owned(), prefix.to_owned());
    let page = run_blocking(move || root.list_matching(&listed, &prefix, 0, MAX_LISTED as usize));
    let Ok(page) = page.await else {
        return Vec::new();
    };
    let entries = page.entries.into_iter().map(|entry| ListedPath {
        path: format!("{directory}{}", entry.name),
        is_directory: entry.kind == "dir",
    });
    entries.collect()
}

/// Places of files as tools take them: paths of this machine, then paths of the sandbox.
async fn locations(access: &ContentAccess, typed: &str) -> Vec<String> {
    if let Some(typed_path) = typed.strip_prefix(SANDBOX_PATH_PREFIX) {
        let listed = sandbox_paths(access, typed_path).await;
        let paths = listed.into_iter().map(ListedPath::continuable);
        return paths
            .map(|path| format!("{SANDBOX_PATH_PREFIX}{path}"))
            .collect();
    }
    let listed = local_paths(access, typed).await;
    let local = listed.into_iter().map(ListedPath::continuable);
    local.chain([SANDBOX_PATH_PREFIX.to_owned()]).collect()
}

/// The deliveries of this session, the newest first.
async fn delivery_ids(access: &ContentAccess) -> Vec<String> {
    let request = v1::ListReceiptsRequest {
        session: access.client.session.as_str().to_owned(),
        limit: MAX_DELIVERIES,
        ..v1::ListReceiptsRequest::default()
    };
    let Ok(reply) = access.client.call(SHORT_TIMEOUT, &request).await else {
        return Vec::new();
    };
    let ids = reply.reports.into_iter().map(|report| report.delivery_id);
    ids.collect()
}
