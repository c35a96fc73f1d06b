//! Requests with input, which the script reads from the input of the persistent shell itself.
//!
//! The shell must never take a byte of the input for a command. Therefore no input is sent before the script reports
//! that it runs, because a shell may read ahead. On the same line, a loop after the script discards all lines up to a
//! mark, because a script that fails leaves input unread. The mark is random and follows the last byte.

use std::pin::pin;

use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::FutureExt as _;
use tokio::sync::mpsc;

use super::{
    CommandExit, Exec, Nonce, PersistentShell, Reply, ShellProcess, find, last_line, parse_response,
};

impl PersistentShell {
    /// Sends a request to the waiting shell, or to a new one. The script reads exactly the bytes of `input`. If the
    /// script ends before it has read them all, the shell is ended.
    ///
    /// # Errors
    ///
    /// The failure of the input, and failures of the request.
    pub(crate) async fn run_script_with_input<E: Exec>(
        &self,
        exec: &E,
        script: &'static str,
        arguments: &[&[u8]],
        input: Body,
        limit: usize,
    ) -> Result<Reply, Error> {
        let nonce = Nonce::new();
        let line = |shell: &mut ShellProcess| shell.line_with_input(script, &nonce, arguments);
        let mut shell = self.begin(exec, line).await?;
        let mut output = Vec::new();
        let mut feeding = pin!(feed(shell.input.clone(), input));
        let mut is_fed = false;
        let status = loop {
            let begun = find(&output, &nonce.mark("begin ")).is_some();
            let chunk = tokio::select! {
                // A shell reads ahead: input before this mark could be taken for commands.
                fed = &mut feeding, if begun && !is_fed => {
                    fed?;
                    is_fed = true;
                    continue;
                }
                chunk = shell.running.stdout.next() => chunk,
            };
            let Some(chunk) = chunk else {
                return shell
                    .ended(&output, &nonce)
                    .await
                    .map_err(|lost| lost.error);
            };
            output.extend_from_slice(&chunk?);
            if let Some(status) = last_line(&output, 0, &nonce) {
                break status;
            }
            if output.len() > limit {
                return Reply::cut(&output, &nonce);
            }
        };
        let mark = [b"\n".to_vec(), nonce.mark("resume\n")].concat();
        // The last chunk may have been sent although the end of the input was not noticed yet.
        let is_fed = is_fed || feeding.now_or_never().is_some_and(|fed| fed.is_ok());
        // A wait for room could last forever, since the output is no longer read.
        let is_taken = shell.input.capacity() == shell.input.max_capacity();
        if is_fed && is_taken && shell.input.try_send(mark.into()).is_ok() {
            self.park(shell);
        }
        let exit = CommandExit {
            status,
            stderr: String::new(),
        };
        parse_response(&output, &nonce, &exit)
    }
}

impl ShellProcess {
    /// The line with the script that reads the shell's input, and with the loop that discards the unread rest of the
    /// input.
    fn line_with_input(
        &mut self,
        script: &'static str,
        nonce: &Nonce,
        arguments: &[&[u8]],
    ) -> Bytes {
        let mut line = self.command(script, nonce, false, arguments, " 2>&1");
        // `read` takes the rest of the input line by line; the mark is its last one.
        line.extend_from_slice(b"; while IFS= read -r l; do case $l in *'");
        line.extend(nonce.mark("resume"));
        line.extend_from_slice(b"'*) break ;; esac; done\n");
        line.into()
    }
}

/// Writes a whole body to the input of a shell.
async fn feed(shell: mpsc::Sender<Bytes>, mut input: Body) -> Result<(), Error> {
    while let Some(chunk) = input.next().await {
        let gone_error = |_| Error::new(ErrorKind::Unavailable, "the shell is gone");
        shell.send(chunk?).await.map_err(gone_error)?;
    }
    Ok(())
}
