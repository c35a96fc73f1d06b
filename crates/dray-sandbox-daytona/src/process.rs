//! Runs commands in the sandbox as its user. The toolbox takes a command as one string for a shell and returns its
//! output as text.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dray_sandbox::{Body, Error, ErrorKind};
use dray_sandbox_exec::{Arguments, Channel, CommandExit, Exec, RunningCommand, quote};
use dray_sandbox_hosted::{Provider as _, unanswered};
use serde::Deserialize;
use serde_json::json;

use crate::link::ToolboxClient;

/// Most bytes of a command: it becomes one argument of a shell.
const MAX_COMMAND_BYTES: usize = 131_071;
/// Most bytes of output of one command.
const MAX_OUTPUT_BYTES: usize = 2 << 20;
/// Added to the time limit of a command, so that its response can arrive.
const RESPONSE_GRACE: Duration = Duration::from_secs(10);

/// Runs commands by the toolbox.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    link: Arc<ToolboxClient>,
}

impl Processes {
    pub(crate) fn new(link: Arc<ToolboxClient>) -> Self {
        Self { link }
    }
}

/// The toolbox's report of a command: its status, and both its outputs as one text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecuteResponse {
    #[serde(default)]
    exit_code: i32,
    #[serde(default)]
    result: String,
}

#[async_trait]
impl Exec for Processes {
    fn channel(&self) -> Channel {
        Channel {
            arguments: Arguments::Shell,
            binary_output: false,
            binary_input: false,
            input: false,
            input_end: false,
            longest_arguments: MAX_COMMAND_BYTES,
            // Output comes as one JSON text at the end, so all of it is held in memory.
            longest_output: Some(MAX_OUTPUT_BYTES),
        }
    }

    async fn run(&self, argv: Vec<Vec<u8>>, _stdin: Option<Body>) -> Result<RunningCommand, Error> {
        let command = command_line(&argv)?;
        let timeout = self.link.control.config.command_timeout.as_duration();
        let request = self
            .link
            .post("/process/execute")
            // The response comes when the command has ended; the usual limit would cut long digests.
            .response_within(timeout + RESPONSE_GRACE)
            .json(&json!({ "command": command, "timeout": timeout.as_secs() }));
        let response = self.link.send(request).await?;
        // JSON may write one byte as six characters (`\u0000`).
        let body = response.bytes(6 * MAX_OUTPUT_BYTES).await;
        let body = match body.map_err(unanswered) {
            Ok(body) => body,
            Err(error) => return Err(self.link.explained(error).await),
        };
        let executed: ExecuteResponse = serde_json::from_slice(&body).map_err(|error| {
            Error::new(ErrorKind::Protocol, "the response is malformed").caused_by(error)
        })?;
        let mut output = executed.result.into_bytes();
        output.truncate(MAX_OUTPUT_BYTES);
        let exit = CommandExit {
            status: executed.exit_code,
            // Both outputs came as one text, so errors are in stdout.
            stderr: String::new(),
        };
        Ok(RunningCommand {
            stdout: Body::from_bytes(output),
            end: Box::pin(async { Ok(exit) }),
        })
    }
}

/// The command line for a shell. It is text on this wire, so other bytes are refused.
fn command_line(argv: &[Vec<u8>]) -> Result<String, Error> {
    // The toolbox gives the text to a shell (sandbox-transfer 11.3).
    let quoted: Vec<_> = argv.iter().map(|word| quote(word)).collect();
    let command = String::from_utf8(quoted.join(&b' '))
        .map_err(|_| Error::new(ErrorKind::InvalidName, "the wire carries UTF-8 names only"))?;
    if command.len() > MAX_COMMAND_BYTES {
        return Err(Error::new(
            ErrorKind::ToolMissing,
            "the command is too long",
        ));
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_16_arguments_reach_the_shell_as_words() {
        let argv = ["sh", "it's", "$(touch pwned)", ""].map(|word| word.as_bytes().to_vec());
        let expected = r"'sh' 'it'\''s' '$(touch pwned)' ''";
        assert_eq!(command_line(&argv).unwrap(), expected);
    }

    #[test]
    fn arguments_that_are_not_utf_8_or_too_long_are_refused() {
        let kind = |word: Vec<u8>| command_line(&[word]).unwrap_err().kind();
        assert_eq!(kind(b"\xff".to_vec()), ErrorKind::InvalidName);
        assert_eq!(kind(vec![b'a'; MAX_COMMAND_BYTES]), ErrorKind::ToolMissing);
    }
}
