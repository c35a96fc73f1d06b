//! Files of users, and what `files.info` reports about files.

use dray_http::fake_server::{ConnectionClosed, Reply, SharedState, bytes_reply};
use serde_json::json;

use super::state::{FakeState, SlackFile};
use super::{BOT_TOKEN, FakeSlack, InjectedFault, error_reply, ok_reply};

impl FakeSlack {
    /// Stores a file of a user and returns its URL.
    pub fn keep(&self, bytes: Vec<u8>) -> String {
        let shared = self.server.shared();
        let mut state = shared.lock();
        let path = format!("/files-pri/{}", state.next());
        state.downloads.insert(path.clone(), bytes);
        format!("{}{path}", shared.url())
    }

    /// Stores a file of a user in another organization, of which events name only the id, and returns this id.
    pub fn keep_shared(&self, name: &str, bytes: Vec<u8>) -> String {
        let length = bytes.len() as u64;
        let url = self.keep(bytes);
        let mut state = self.server.shared().lock();
        let id = format!("F{:08}", state.next());
        let file = SlackFile {
            name: name.to_owned(),
            length,
            url: Some(url),
            ..SlackFile::default()
        };
        state.files.insert(id.clone(), file);
        id
    }
}

pub(super) fn file_info(shared: &SharedState<FakeState>, id: &str) -> Reply {
    let mut state = shared.lock();
    if let Some(InjectedFault::FailInfo(count)) =
        state.fault(|fault| matches!(fault, InjectedFault::FailInfo(_)))
    {
        if count > 1 {
            state.faults.push(InjectedFault::FailInfo(count - 1));
        }
        return error_reply("fatal_error");
    }
    let Some(file) = state.files.get_mut(id) else {
        return error_reply("file_not_found");
    };
    let mut shares = json!({});
    if let Some((channel, ts, hidden_calls)) = &mut file.shared {
        // The fault `ShareLate` hides it.
        if *hidden_calls > 0 {
            *hidden_calls -= 1;
        } else {
            shares = json!({ "public": { channel.as_str(): [{ "ts": ts }] } });
        }
    }
    let size = file.content.as_ref().map(|content| content.size);
    let size = size.or(file.url.as_ref().map(|_| file.length));
    ok_reply(json!({ "file": {
        "id": id, "name": file.name, "size": size, "shares": shares,
        "url_private_download": file.url, "mimetype": "text/csv",
    } }))
}

pub(super) fn download_file(
    shared: &SharedState<FakeState>,
    path: &str,
    bearer: Option<&str>,
) -> Result<Reply, ConnectionClosed> {
    let state = shared.lock();
    if bearer != Some(&format!("Bearer {BOT_TOKEN}")) {
        // The real server does the same without a valid token or scope.
        return Ok(bytes_reply(200, "text/html", "<html>Sign in</html>".into()));
    }
    let bytes = state.downloads.get(path).cloned().ok_or(ConnectionClosed)?;
    Ok(bytes_reply(200, "application/octet-stream", bytes.into()))
}
