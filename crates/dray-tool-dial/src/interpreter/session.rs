//! The session of a turn: finds it, checks it once, opens one if needed, and uploads files.

use std::collections::HashMap;

use dray_dial::InterpreterAction;
use dray_tool::{HandledFailure, Turn};
use serde_json::{Value, json};

use super::files::RequestedFile;
use super::{InterpreterFailure, InterpreterTool, OpenSession};

impl InterpreterTool {
    /// The id of an open session that contains the files. Concurrent calls of one turn wait for each other here.
    pub(super) async fn prepare_session(
        &self,
        turn: &Turn,
        requested: &[RequestedFile],
    ) -> Result<String, InterpreterFailure> {
        // The lock is held while the session is opened and filled, so that two calls do not open two sessions.
        let mut known = self.known.lock().await;
        if known.open.is_none() {
            // An error leaves the entry empty, so the next call of the turn tries again.
            known.open = Some(self.find_or_open(turn, &known.closed).await?);
        }
        let open = known.open.get_or_insert_with(OpenSession::default);
        let id = open.id.clone();
        let outcome = self.transfer_files(turn, open, requested).await;
        if matches!(outcome, Err(InterpreterFailure::Closed)) {
            known.open = None;
            known.closed.push(id.clone());
        }
        outcome.map(|()| id)
    }

    /// Forgets a session that was found closed, so that the next call opens another one.
    pub(super) async fn forget(&self, session: &str) {
        let mut known = self.known.lock().await;
        // A parallel call may have opened another session since; that one stays.
        if known.open.as_ref().is_some_and(|open| open.id == session) {
            known.open = None;
            known.closed.push(session.to_owned());
        }
    }

    /// The session of the conversation, otherwise the configured one, otherwise a new one.
    async fn find_or_open(
        &self,
        turn: &Turn,
        closed: &[String],
    ) -> Result<OpenSession, InterpreterFailure> {
        let candidate = [turn.interpreter(), self.options.default_session.clone()];
        let candidate = candidate
            .into_iter()
            .flatten()
            .find(|id| !closed.contains(id));
        if let Some(id) = candidate {
            let checked = self
                .ask(
                    turn,
                    InterpreterAction::GetSession,
                    &json!({ "sessionId": id }),
                )
                .await;
            match checked {
                Ok(_) => {
                    turn.set_interpreter(id.as_str());
                    let files = self.list_files(turn, &id).await?;
                    return Ok(OpenSession { id, files });
                }
                // The session is closed or not usable by this caller, so a new one is opened.
                Err(InterpreterFailure::Closed | InterpreterFailure::Reported(_)) => {}
                Err(failed @ InterpreterFailure::Failed(_)) => return Err(failed),
            }
        }
        let response = self
            .ask(turn, InterpreterAction::OpenSession, &json!({}))
            .await?;
        let Some(id) = response.get("sessionId").and_then(Value::as_str) else {
            let failed = HandledFailure::new("Python Code Interpreter opened no session.");
            return Err(InterpreterFailure::Failed(failed.into()));
        };
        // The session is recorded before the code runs, so that the next turn finds the session even after a failed
        // run.
        turn.set_interpreter(id);
        Ok(OpenSession {
            id: id.to_owned(),
            files: HashMap::new(),
        })
    }

    /// Names of the files in a session.
    async fn list_files(
        &self,
        turn: &Turn,
        id: &str,
    ) -> Result<HashMap<String, Option<String>>, InterpreterFailure> {
        let response = self
            .ask(
                turn,
                InterpreterAction::ListFiles,
                &json!({ "sessionId": id }),
            )
            .await?;
        let files = response.get("files").and_then(Value::as_array);
        let names = files.into_iter().flatten().filter_map(|file| {
            let path = file.get("path")?.as_str()?;
            Some((path.rsplit('/').next()?.to_owned(), None))
        });
        Ok(names.collect())
    }

    /// Transfers the files that the session lacks. A name that another address gave in this turn is transferred
    /// again, and one that several files of the conversation have.
    async fn transfer_files(
        &self,
        turn: &Turn,
        open: &mut OpenSession,
        requested: &[RequestedFile],
    ) -> Result<(), InterpreterFailure> {
        for file in requested {
            let is_present = match open.files.get(&file.name) {
                // The session does not know the address of a file from an earlier turn.
                Some(None) => !file.has_namesake,
                Some(Some(source)) => *source == file.url,
                None => false,
            };
            if is_present {
                continue;
            }
            let body = json!({
                "sessionId": open.id, "sourceUrl": file.url, "targetPath": file.name,
            });
            self.ask(turn, InterpreterAction::TransferInputFile, &body)
                .await?;
            open.files.insert(file.name.clone(), Some(file.url.clone()));
        }
        Ok(())
    }
}
