//! Whole directories as tar streams.

use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::Transport;
use dray_sandbox::path::SandboxPath;
use futures_util::stream;

use super::channel::Exec;
use super::files::ExecFiles;
use super::input::{WatchedInput, base64_lines};
use super::stream::{Stream, StreamEvent};

impl<E: Exec + 'static> ExecFiles<E> {
    /// See [`dray_sandbox::Sandbox::read_tree`]. Names begin with `./`; hard links are stored as files where `tar` is
    /// GNU's.
    ///
    /// # Errors
    ///
    /// Also [`ErrorKind::ToolMissing`] where the output of a command is limited: a tar stream cannot be read in ranges.
    pub async fn read_tree(&self, path: &SandboxPath) -> Result<(Body, Transport), Error> {
        let channel = self.exec.channel();
        if channel.longest_output.is_some() {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "the output of this channel is too short for a tree",
            ));
        }
        let script = include_str!("script/tar_out.sh");
        let text = !channel.binary_output;
        let exec = self.exec.as_ref();
        let stream = Stream::open(exec, script, text, &[path.as_bytes()]).await?;
        let body = Body::new(stream::try_unfold(stream, next));
        Ok((body, command_transport(!text)))
    }

    /// See [`dray_sandbox::Sandbox::write_tree`]. The directory keeps its mode; what is unpacked belongs to the sandbox
    /// user.
    ///
    /// # Errors
    ///
    /// Also [`ErrorKind::ToolMissing`] where the channel has no stdin, or cannot end it.
    pub async fn write_tree(&self, path: &SandboxPath, tar: Body) -> Result<Transport, Error> {
        let channel = self.exec.channel();
        if !channel.input || !channel.input_end {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "the channel takes no stream",
            ));
        }
        let (input, body) = WatchedInput::watch(tar);
        let (coding, body): (&[u8], Body) = if channel.binary_input {
            (b"raw", body)
        } else {
            (b"base64", base64_lines(body))
        };
        let script = include_str!("script/tar_in.sh");
        let arguments = [path.as_bytes(), coding];
        let reply = self.run_script(script, &arguments, Some(body));
        input.guard(reply).await?.check("text")?;
        Ok(command_transport(channel.binary_input))
    }
}

/// The transport of a command whose bytes are raw (`binary`) or text.
const fn command_transport(binary: bool) -> Transport {
    if binary {
        Transport::ExecRaw
    } else {
        Transport::ExecBase64
    }
}

async fn next(mut stream: Stream) -> Result<Option<(Bytes, Stream)>, Error> {
    match stream.next().await? {
        StreamEvent::Bytes(bytes) => Ok(Some((bytes, stream))),
        StreamEvent::End(trailer) => match trailer.failure {
            Some(failure) => Err(failure),
            None => Ok(None),
        },
    }
}
