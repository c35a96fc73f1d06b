//! `dray chat`: a person chats with an agent, on a terminal or through a pipe.

mod answer_error;
mod ask;
mod attach;
mod conversation;
mod downloads;
mod embedded;
mod input;
mod peer;
mod screen;
mod session;

use std::path::Path;

use dray_types::Fault;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::{ChatArgs, GlobalOptions};
use crate::outcome::CommandFailure;

use conversation::ConversationFile;
use input::{ChatInput, InputLine};
use peer::ChatPeer;
use screen::ChatScreen;
use session::ChatSession;

/// Sends the message of the command line, or chats until standard input ends.
pub(crate) async fn run(global: &GlobalOptions, chat: &ChatArgs) -> Result<(), CommandFailure> {
    let message = match chat.message.as_deref() {
        Some("-") => Some(input::read_all().await?),
        message => message.map(ToOwned::to_owned),
    };
    // Mistakes on the command line are reported here, before any service is started.
    let conversation = ConversationFile::open(chat.conversation.as_deref())?;
    let mut files = Vec::new();
    for file in &chat.attach {
        files.push(attach::read_attachment(file)?);
    }
    if message
        .as_deref()
        .is_some_and(|text| text.trim().is_empty())
    {
        return Err(CommandFailure::Usage(
            "the message is empty; files need a text, too".to_owned(),
        ));
    }
    let peer = ChatPeer::open(global, chat).await?;
    let outcome = chat_with_peer(global, chat, &peer, conversation, files, message).await;
    // The peer is closed after a failure too, because services that run here must stop in order.
    peer.close().await;
    outcome
}

async fn chat_with_peer(
    global: &GlobalOptions,
    chat: &ChatArgs,
    peer: &ChatPeer,
    conversation: ConversationFile,
    files: Vec<dray_agent::message::Attachment>,
    message: Option<String>,
) -> Result<(), CommandFailure> {
    // The listener is registered before the first question, so that an early interruption does not kill the process
    // during the question.
    let mut interrupts = signal(SignalKind::interrupt())
        .map_err(CommandFailure::local("cannot listen for interruptions"))?;
    let downloads = chat.downloads.as_deref();
    let downloads = downloads
        .map(|directory| peer.downloads(directory))
        .transpose()?;
    let screen = ChatScreen::new(global.json, !chat.no_stages, chat.verbose);
    let mut session = ChatSession::new(peer, conversation, downloads, screen, files);
    match message {
        Some(message) => ask_once(&mut session, &mut interrupts, &message).await,
        None => read_and_ask(&mut session, &mut interrupts).await,
    }
}

async fn ask_once(
    session: &mut ChatSession<'_>,
    interrupts: &mut Signal,
    message: &str,
) -> Result<(), CommandFailure> {
    let turn = async {
        if message == "/retry" {
            session.retry(interrupts).await
        } else {
            session.send_message(message, interrupts).await
        }
    };
    match turn.await {
        Ok(()) => Ok(()),
        Err(failure) => Err(session.print_failure(failure)),
    }
}

/// Reads lines until the end of input. Without a terminal, one failed line makes the command fail.
async fn read_and_ask(
    session: &mut ChatSession<'_>,
    interrupts: &mut Signal,
) -> Result<(), CommandFailure> {
    let mut input = ChatInput::start()?;
    let mut failed = false;
    loop {
        input.prompt();
        let line = tokio::select! {
            line = input.next() => line,
            _ = interrupts.recv() => {
                session.leave();
                return Err(CommandFailure::Reported);
            }
        };
        // A person at a terminal has noticed the interruption; a script has not.
        if input.is_terminal() {
            session.forget_interruption();
        }
        let done = match line {
            // The input has ended, as with Ctrl-D.
            None => break,
            Some(InputLine::Unusable(reason)) => Err(CommandFailure::Usage(reason)),
            Some(InputLine::Text(text)) => run_line(session, interrupts, text.trim()).await,
        };
        match done {
            Ok(LineAction::Line) => {}
            Ok(LineAction::End) => break,
            Err(failure) => {
                failed = true;
                session.print_failure(failure);
            }
        }
        // A second interruption of the user ends the command, not only the turn.
        if session.is_ended() {
            return Err(CommandFailure::Reported);
        }
    }
    session.leave();
    if failed && !input.is_terminal() {
        return Err(CommandFailure::Reported);
    }
    Ok(())
}

/// The next action after a line of input.
enum LineAction {
    Line,
    End,
}

/// Executes a line: a command that begins with a slash, or a message.
async fn run_line(
    session: &mut ChatSession<'_>,
    interrupts: &mut Signal,
    text: &str,
) -> Result<LineAction, CommandFailure> {
    let (command, rest) = match text.split_once(char::is_whitespace) {
        Some((command, rest)) => (command, rest.trim()),
        None => (text, ""),
    };
    match (command, rest) {
        ("", _) => {}
        ("/quit" | "/exit", "") => return Ok(LineAction::End),
        ("/help", _) => session.note(
            "/attach PATH, /files, /retry, /save [FILE], /quit; a message that begins with a slash is written with two",
        ),
        ("/attach", "") => {
            return Err(CommandFailure::Usage("name the file: /attach PATH".to_owned()));
        }
        ("/attach", path) => session.attach(Path::new(path))?,
        ("/files", _) => session.list(),
        ("/retry", _) => session.retry(interrupts).await?,
        ("/save", "") => session.save(None)?,
        ("/save", path) => session.save(Some(Path::new(path)))?,
        _ => match text.strip_prefix('/') {
            // Two slashes: the message begins with one.
            Some(message) if message.starts_with('/') => session.send_message(message, interrupts).await?,
            Some(_) => {
                return Err(CommandFailure::Usage(format!(
                    "{command} is not a command; /help lists the commands, and a message that begins with a slash needs two"
                )));
            }
            None => session.send_message(text, interrupts).await?,
        },
    }
    Ok(LineAction::Line)
}

/// A fault of the chat itself, with advice for the person.
fn chat_failure(
    code: dray_types::FaultCode,
    detail: &str,
    message: impl Into<String>,
    advice: impl Into<String>,
) -> CommandFailure {
    Fault::new(code, message)
        .detail(detail)
        .advice(advice)
        .into()
}
