//! Contexts of whole directories of DIAL: at the beginning of a turn, their files become contexts of single files.
//!
//! Directories are listed with the caller's own key, so an agent shows a caller only files that DIAL lets this caller
//! list. The number of files, directories and the time are limited, and a text in the prompt says what is missing. A
//! directory that cannot be listed keeps the files that the conversation knows: they were not removed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_agent::manifest::{Context, Manifest};
use dray_agent::message::Message;
use dray_agent::notify;
use dray_dial::{DialClient, DialFolder, FileUrl};
use tokio::time::{Instant, timeout_at};

/// Most files of all directories of a manifest.
const MAX_FOLDER_FILES: usize = 200;
/// Most directories that are listed in one turn. Each may take several requests.
const MAX_LISTED_FOLDERS: usize = 50;
/// Longest time for all directories.
const LISTING_TIMEOUT: Duration = Duration::from_secs(10);

/// Files and directories that this turn may still list, and the time at which the listing must end.
#[derive(Debug)]
struct ListingBudget {
    files: usize,
    folders: usize,
    ends_at: Instant,
}

/// The files of one directory.
#[derive(Debug, Default)]
struct FolderFiles {
    urls: BTreeSet<String>,
    /// The reason why files are missing.
    gap: Option<&'static str>,
}

/// The manifest with the files of its directories in place of the directories. A manifest without directories is
/// returned unchanged.
pub(super) async fn expand_folders(
    core: Option<&DialClient>,
    caller: &Caller,
    manifest: Arc<Manifest>,
    messages: &[Message],
) -> Arc<Manifest> {
    let has_folder = |context: &Context| matches!(context, Context::Folder { .. });
    if !manifest.contexts.iter().any(has_folder) {
        return manifest;
    }
    let mut expanded = Manifest::clone(&manifest);
    expanded.contexts = expand_contexts(core, caller, &manifest.contexts, messages).await;
    Arc::new(expanded)
}

async fn expand_contexts(
    core: Option<&DialClient>,
    caller: &Caller,
    given: &[Context],
    messages: &[Message],
) -> Vec<Context> {
    let mut budget = ListingBudget {
        files: MAX_FOLDER_FILES,
        folders: MAX_LISTED_FOLDERS,
        ends_at: Instant::now() + LISTING_TIMEOUT,
    };
    // A file that the manifest names itself has its own description, and is not listed twice.
    let named: BTreeSet<_> = given
        .iter()
        .filter_map(|context| match context {
            Context::File { url, .. } => canonical_file(url),
            _ => None,
        })
        .collect();
    let mut contexts = Vec::new();
    for context in given {
        let Context::Folder {
            url,
            description,
            max_depth,
        } = context
        else {
            contexts.push(context.clone());
            continue;
        };
        let root = DialFolder::parse(url);
        let mut found = list_files(core, caller, root.as_ref(), *max_depth, &mut budget).await;
        if let (Some(_), Some(root)) = (found.gap, &root) {
            let known = notify::known_urls(messages);
            let known = known.filter_map(|known| canonical_file(&known));
            found
                .urls
                .extend(known.filter(|file| is_within(file, root)));
        }
        // The set sorts files by address, because the order of a listing can differ between turns, and the prompt must
        // not.
        let unnamed = found.urls.into_iter().filter(|file| !named.contains(file));
        contexts.extend(unnamed.map(|file| Context::File {
            url: file,
            description: description.clone(),
        }));
        // The prompt mentions missing files, because the model must not take the list for all files.
        if let Some(gap) = found.gap {
            let content = format!("The files of the directory {url} are incomplete: {gap}.");
            contexts.push(Context::UserDefined { content });
        }
    }
    contexts
}

async fn list_files(
    core: Option<&DialClient>,
    caller: &Caller,
    root: Option<&DialFolder>,
    max_depth: u32,
    budget: &mut ListingBudget,
) -> FolderFiles {
    let mut found = FolderFiles::default();
    let (Some(core), Some(root)) = (core, root) else {
        found.gap = Some("it is not a directory of DIAL");
        return found;
    };
    // Breadth first, so that a limit leaves out the deepest files.
    let mut waiting = VecDeque::from([(root.clone(), 1)]);
    while let Some((folder, depth)) = waiting.pop_front() {
        if budget.folders == 0 {
            found.gap = Some("it has more directories than are listed");
            return found;
        }
        // The directory is counted before the request, so that directories that fail count too.
        budget.folders -= 1;
        let listing = match timeout_at(budget.ends_at, core.list_folder(caller, &folder)).await {
            Ok(Ok(listing)) => listing,
            Ok(Err(error)) => {
                let url = root.url();
                tracing::warn!(%error, url, "the directory of a context cannot be listed");
                found.gap = Some("a part of it cannot be listed at the moment");
                continue;
            }
            Err(_elapsed) => {
                found.gap = Some("listing it takes too long");
                return found;
            }
        };
        if listing.is_truncated {
            found.gap = Some("it has more files than are listed");
        }
        for item in listing.items {
            // An entry outside of the directory would give the agent files that the manifest does not name.
            if item.is_folder() {
                let inner = DialFolder::parse(&item.url);
                let inner = inner.filter(|inner| is_within(&inner.url(), &folder));
                if let (Some(inner), true) = (inner, depth < max_depth) {
                    waiting.push_back((inner, depth + 1));
                }
                continue;
            }
            let file = canonical_file(&item.url).filter(|file| is_within(file, &folder));
            let Some(file) = file else { continue };
            if budget.files == 0 {
                found.gap = Some("it has more files than are listed");
                return found;
            }
            if found.urls.insert(file) {
                budget.files -= 1;
            }
        }
    }
    found
}

/// The canonical address of a file; `None` where it is not a file of DIAL.
fn canonical_file(url: &str) -> Option<String> {
    FileUrl::parse(url).map(|file| file.as_str().to_owned())
}

/// Whether a canonical address is below a directory.
fn is_within(url: &str, folder: &DialFolder) -> bool {
    let inside = url.strip_prefix(&folder.url());
    inside.is_some_and(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use dray_dial::DialOptions;
    use dray_testkit::dial::DialCore;
    use dray_types::Secret;
    use serde_json::json;

    use super::*;

    struct FolderFixture {
        core: DialCore,
        client: DialClient,
        caller: Caller,
    }

    impl FolderFixture {
        async fn new(files: &[&str]) -> Self {
            let core = DialCore::start().await.unwrap();
            core.add_key("key", "B");
            for file in files {
                core.put(*file, "x", "text/plain");
            }
            let options = DialOptions {
                backoff: Duration::from_millis(1),
                ..DialOptions::new(core.url(), "2024-10-21")
            };
            let client = DialClient::new(options).unwrap();
            let caller = Caller {
                api_key: Some(Secret::new("key")),
                ..Caller::default()
            };
            Self {
                core,
                client,
                caller,
            }
        }

        async fn contexts(&self, url: &str, max_depth: u32, messages: &[Message]) -> Vec<String> {
            let folder = Context::Folder {
                url: url.to_owned(),
                description: Some("reports".to_owned()),
                max_depth,
            };
            let core = Some(&self.client);
            let expanded = expand_contexts(core, &self.caller, &[folder], messages).await;
            let texts = expanded.into_iter().map(|context| match context {
                Context::File { url, description } => {
                    assert_eq!(description.as_deref(), Some("reports"));
                    url
                }
                Context::UserDefined { content } => content,
                Context::Folder { .. } => panic!("{context:?}"),
            });
            texts.collect()
        }
    }

    #[tokio::test]
    async fn the_files_of_a_directory_are_listed_over_pages_and_down_to_the_depth() {
        let fixture = FolderFixture::new(&[
            "B/dir/b.txt",
            "B/dir/a a.txt",
            "B/dir/in/c.txt",
            "B/dir/in/deep/d.txt",
            "B/dirt.txt",
        ])
        .await;
        fixture.core.page(1);
        let files = ["files/B/dir/a%20a.txt", "files/B/dir/b.txt"];
        assert_eq!(fixture.contexts("files/B/dir/", 1, &[]).await, files);
        let all = fixture.contexts("files/B/dir/", 10, &[]).await;
        assert_eq!(all.len(), 4);
        assert_eq!(all[3], "files/B/dir/in/deep/d.txt");
    }

    #[tokio::test]
    async fn other_spellings_of_a_directory_and_of_a_named_file_are_the_same() {
        let fixture = FolderFixture::new(&["B/my dir/a a.txt", "B/my dir/b.txt"]).await;
        let files = ["files/B/my%20dir/a%20a.txt", "files/B/my%20dir/b.txt"];
        for url in [
            "files/B/my dir/",
            "/files/B/my%20dir/",
            "FILES/%42/my%20dir/",
        ] {
            assert_eq!(fixture.contexts(url, 1, &[]).await, files, "{url}");
        }
        let contexts = [
            json!({"type": "file", "url": "/files/B/my dir/a a.txt", "description": "its own"}),
            json!({"type": "folder", "url": "files/B/my dir/"}),
        ];
        let contexts = contexts.map(|context| serde_json::from_value(context).unwrap());
        let core = Some(&fixture.client);
        let expanded = expand_contexts(core, &fixture.caller, &contexts, &[]).await;
        let [Context::File { description, .. }, Context::File { url, .. }] = &expanded[..] else {
            panic!("{expanded:?}");
        };
        assert_eq!(
            (description.as_deref(), url.as_str()),
            (Some("its own"), files[1])
        );
        // Files that the conversation knows stay listed, under the same spelling of the directory.
        let notice = json!({"entries": [
            {"title": "a.txt", "url": "files/C/my%20dir/a.txt", "type": "text/plain"}]});
        let messages: Vec<Message> = serde_json::from_value(json!([
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {
                "name": notify::LIST_TOOL, "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": notice.to_string()},
        ]))
        .unwrap();
        let contexts = fixture.contexts("/files/C/my dir/", 1, &messages).await;
        assert_eq!(contexts[0], "files/C/my%20dir/a.txt");
    }

    #[tokio::test]
    async fn left_out_files_are_mentioned_and_known_files_stay() {
        let names: Vec<_> = (0..=MAX_FOLDER_FILES)
            .map(|number| format!("B/dir/{number}.txt"))
            .collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let fixture = FolderFixture::new(&names).await;
        let contexts = fixture.contexts("files/B/dir/", 1, &[]).await;
        assert_eq!(contexts.len(), MAX_FOLDER_FILES + 1);
        let gap = contexts.last().unwrap();
        assert!(
            gap.contains("files/B/dir/ are incomplete: it has more files"),
            "{gap}"
        );
        // The first file is in another bucket, which the caller may not list.
        let notice = json!({"entries": [
            {"title": "a.txt", "url": "files/C/dir/a.txt", "type": "text/plain"},
            {"title": "b.txt", "url": "files/B/b.txt", "type": "text/plain"},
        ]});
        let messages: Vec<Message> = serde_json::from_value(json!([
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {
                "name": notify::LIST_TOOL, "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": notice.to_string()},
        ]))
        .unwrap();
        let contexts = fixture.contexts("files/C/dir/", 1, &messages).await;
        assert_eq!(contexts[0], "files/C/dir/a.txt");
        assert!(contexts[1].contains("cannot be listed"), "{contexts:?}");
        assert_eq!(contexts.len(), 2);
    }
}
