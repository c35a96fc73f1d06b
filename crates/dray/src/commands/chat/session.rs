//! A running conversation: questions, files in both directions, and interruptions.

use std::path::Path;

use dray_agent::message::{Attachment, CustomContent, Message, Role};
use dray_dial::chat::ChatAnswer;
use dray_presentation::name;
use dray_types::FaultCode;
use tokio::signal::unix::Signal;

use super::ask;
use super::conversation::{ChatQuestion, ConversationFile};
use super::downloads::{DownloadDirectory, DownloadOutcome};
use super::peer::ChatPeer;
use super::screen::ChatScreen;
use super::{attach, chat_failure};
use crate::outcome::CommandFailure;

/// A conversation with its peer, its output and its files.
#[derive(Debug)]
pub(super) struct ChatSession<'a> {
    peer: &'a ChatPeer,
    conversation: ConversationFile,
    downloads: Option<DownloadDirectory>,
    screen: ChatScreen,
    /// Files for the next message.
    pending: Vec<Attachment>,
    /// One line for each received file.
    received: Vec<String>,
    interrupted: bool,
    ended: bool,
}

impl<'a> ChatSession<'a> {
    /// A session whose first message carries `files`.
    pub(super) const fn new(
        peer: &'a ChatPeer,
        conversation: ConversationFile,
        downloads: Option<DownloadDirectory>,
        screen: ChatScreen,
        files: Vec<Attachment>,
    ) -> Self {
        Self {
            peer,
            conversation,
            downloads,
            screen,
            pending: files,
            received: Vec::new(),
            interrupted: false,
            ended: false,
        }
    }

    /// Sends a message with the pending files, and shows the answer.
    pub(super) async fn send_message(
        &mut self,
        text: &str,
        interrupts: &mut Signal,
    ) -> Result<(), CommandFailure> {
        let mut message = Message::new(Role::User, text);
        if !self.pending.is_empty() {
            message.custom_content = Some(CustomContent {
                attachments: Some(std::mem::take(&mut self.pending)),
                ..CustomContent::default()
            });
        }
        let question = self.conversation.begin_question(message);
        self.turn(question, interrupts).await
    }

    /// Sends the last message again.
    pub(super) async fn retry(&mut self, interrupts: &mut Signal) -> Result<(), CommandFailure> {
        let question = self.conversation.retry_question();
        let question = question.ok_or_else(|| {
            CommandFailure::Usage("the conversation has no message to ask again".to_owned())
        })?;
        self.turn(question, interrupts).await
    }

    async fn turn(
        &mut self,
        question: ChatQuestion,
        interrupts: &mut Signal,
    ) -> Result<(), CommandFailure> {
        self.screen.begin();
        let messages = self.conversation.messages(&question);
        // Dropping the answer closes the connection, which stops the work of the agent.
        let stream = tokio::select! {
            answer = ask::ask_and_show(self.peer, &messages, &mut self.screen) => answer,
            _ = interrupts.recv() => Err(self.interrupt()),
        };
        self.screen.stop();
        match stream {
            Ok(answer) => self.finish_answer(question, answer, interrupts).await,
            Err(failure) => {
                // The question is kept in the file too, so that `/retry` works in a later chat.
                self.conversation.record_unanswered(question);
                if let Err(save_failure) = self.conversation.save() {
                    self.screen.failure(save_failure);
                }
                Err(failure)
            }
        }
    }

    /// Handles a complete answer. It is stored before its files are fetched, which may fail or take long.
    async fn finish_answer(
        &mut self,
        question: ChatQuestion,
        answer: ChatAnswer,
        interrupts: &mut Signal,
    ) -> Result<(), CommandFailure> {
        self.interrupted = false;
        let ending = answer.ending().clone();
        if ending.calls_tools {
            self.screen
                .print_note("the agent asks for tools of this client, which has none");
        }
        let files = answer.attachments().to_vec();
        self.conversation
            .record_answer(question, answer.into_message());
        // The error is reported only below: the files of the answer are fetched even if the conversation cannot be
        // stored.
        let save_result = self.conversation.save();
        let mut lost = 0;
        for file in &files {
            let outcome = self.download(file, interrupts).await;
            lost += usize::from(matches!(outcome, Some(DownloadOutcome::Failed(_))));
            let line = self.screen.file(file, outcome.as_ref());
            self.received.push(line);
        }
        self.screen.end(&ending);
        save_result?;
        if lost > 0 {
            return Err(chat_failure(
                FaultCode::Unavailable,
                "not_saved",
                format!("{lost} of {} files could not be saved.", files.len()),
                "The answer itself is whole; /files says what was wrong.",
            ));
        }
        Ok(())
    }

    async fn download(
        &mut self,
        file: &Attachment,
        interrupts: &mut Signal,
    ) -> Option<DownloadOutcome> {
        let downloads = self.downloads.as_ref()?;
        let outcome = tokio::select! {
            outcome = downloads.save(file) => outcome,
            // Ends this file only; the answer is complete.
            _ = interrupts.recv() => {
                self.interrupted = true;
                DownloadOutcome::Failed("interrupted".to_owned())
            }
        };
        Some(outcome)
    }

    fn interrupt(&mut self) -> CommandFailure {
        // The second of two interruptions without a line between them ends the command.
        self.ended = self.interrupted;
        self.interrupted = true;
        chat_failure(
            FaultCode::Timeout,
            "interrupted",
            "Stopped.",
            "The message is kept: /retry sends it again.",
        )
    }

    /// Whether a second interruption followed the first.
    pub(super) const fn is_ended(&self) -> bool {
        self.ended
    }

    /// Notes that a person continued after an interruption.
    pub(super) const fn forget_interruption(&mut self) {
        self.interrupted = false;
    }

    /// Adds a file to the next message.
    pub(super) fn attach(&mut self, file: &Path) -> Result<(), CommandFailure> {
        let attachment = attach::read_attachment(file)?;
        let line = attachment_remark(&attachment);
        self.screen.print_note(&format!("to be sent: {line}"));
        self.pending.push(attachment);
        Ok(())
    }

    /// Shows the files in both directions.
    pub(super) fn list(&mut self) {
        let waiting = self.pending.iter().map(attachment_remark);
        let waiting: Vec<_> = waiting.map(|line| format!("to be sent: {line}")).collect();
        if waiting.is_empty() && self.received.is_empty() {
            self.screen.print_note("no files yet");
        }
        for line in waiting.iter().chain(&self.received) {
            self.screen.print_note(line);
        }
    }

    /// Writes the conversation to its file, or a copy to a new one.
    pub(super) fn save(&mut self, file: Option<&Path>) -> Result<(), CommandFailure> {
        match file {
            Some(file) => {
                self.conversation.copy(file)?;
                let file = name::shown_text(file.as_os_str().as_encoded_bytes(), 400);
                self.screen.print_note(&format!("saved to {file}"));
                Ok(())
            }
            None if self.conversation.has_file() => self.conversation.save(),
            None => Err(CommandFailure::Usage(
                "name the file: /save FILE".to_owned(),
            )),
        }
    }

    /// Prints a notice for people.
    pub(super) fn note(&mut self, line: &str) {
        self.screen.print_note(line);
    }

    /// Prints a failure, and returns it as reported.
    pub(super) fn print_failure(&mut self, failure: CommandFailure) -> CommandFailure {
        self.screen.failure(failure)
    }

    /// Ends the session; reports files that were never sent.
    pub(super) fn leave(&mut self) {
        if !self.pending.is_empty() {
            let count = self.pending.len();
            self.screen
                .print_note(&format!("{count} files were attached and never sent"));
        }
    }
}

fn attachment_remark(attachment: &Attachment) -> String {
    let title = attachment.title.as_deref().unwrap_or_default();
    let kind = attachment.kind.as_deref().unwrap_or_default();
    format!(
        "{} ({kind})",
        name::shown_text(title, name::MAX_SHOWN_CHARACTERS)
    )
}
