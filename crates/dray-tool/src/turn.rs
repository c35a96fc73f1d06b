//! The context of one chat request, for calls made on its behalf.

use std::sync::{Arc, Mutex, PoisonError};

use dray_agent::caller::Caller;
use dray_agent::message::{Attachment, Message};

use crate::FileStorage;

/// One chat request. Shared by all its calls.
#[derive(Debug)]
pub struct Turn {
    /// Credentials and headers of the caller.
    pub caller: Caller,
    /// Names the conversation on the bus and in sandboxes.
    pub session: String,
    /// The conversation as received, tool rounds of earlier turns in place; ends with the user's message.
    pub history: Vec<Message>,
    /// Files of calls, kept with the rights of the caller.
    pub storage: Arc<dyn FileStorage>,
    /// Most bytes of one file in an argument.
    pub file_limit: u64,
    interpreter: Mutex<Option<String>>,
    made_files: Mutex<Vec<Attachment>>,
}

impl Turn {
    /// Creates a turn. The interpreter's session comes from the earlier turns in the history.
    pub fn new(
        caller: Caller,
        session: impl Into<String>,
        history: Vec<Message>,
        storage: Arc<dyn FileStorage>,
        file_limit: u64,
    ) -> Self {
        let interpreter = dray_agent::state::interpreter_session(&history).map(str::to_owned);
        Self {
            caller,
            session: session.into(),
            history,
            storage,
            file_limit,
            interpreter: Mutex::new(interpreter),
            made_files: Mutex::default(),
        }
    }

    /// All files of the conversation, oldest first: those of its messages, and those that calls of this turn made.
    pub fn files(&self) -> Vec<Attachment> {
        let messages = self.history.iter();
        let named =
            messages.filter_map(|message| message.custom_content.as_ref()?.attachments.clone());
        let made = self.made_files.lock();
        // Files are added in one step, so the list is usable after a panic under the lock.
        let made = made.unwrap_or_else(PoisonError::into_inner).clone();
        named.flatten().chain(made).collect()
    }

    /// Adds the files of a call's result to those of the turn.
    pub fn add_files(&self, result: &Message) {
        let custom = result.custom_content.as_ref();
        let Some(files) = custom.and_then(|custom| custom.attachments.as_ref()) else {
            return;
        };
        let mut made = self
            .made_files
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        made.extend_from_slice(files);
    }

    /// The Python interpreter's session, if one is known.
    pub fn interpreter(&self) -> Option<String> {
        let session = self.interpreter.lock();
        // The id is replaced in one step, so it is usable after a panic under the lock.
        session.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores the Python interpreter's session for this turn and the next ones.
    pub fn set_interpreter(&self, session: impl Into<String>) {
        let mut known = self
            .interpreter
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = Some(session.into());
    }
}
