//! A channel with scripted responses, which use the marks of the call.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::{FutureExt as _, StreamExt as _, future, stream};

use crate::{Channel, CommandExit, Exec, LocalExec, RunningCommand};

/// A scripted response: `@@N` becomes the mark of the call.
pub(super) type ScriptedOutput = Box<dyn Fn(&str) -> Vec<Result<Vec<u8>, Error>> + Send + Sync>;

/// Gives every command the same response.
pub(super) struct ScriptedExec {
    pub(super) response: ScriptedOutput,
    pub(super) status: i32,
    pub(super) stderr: &'static str,
    /// Whether the response never ends by itself.
    pub(super) endless: bool,
}

impl ScriptedExec {
    pub(super) fn new(
        response: impl Fn(&str) -> Vec<Result<Vec<u8>, Error>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            response: Box::new(response),
            status: 0,
            stderr: "",
            endless: false,
        }
    }
}

impl fmt::Debug for ScriptedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

#[async_trait]
impl Exec for ScriptedExec {
    fn channel(&self) -> Channel {
        Channel::PIPE_CAPABILITIES
    }

    async fn run(&self, argv: Vec<Vec<u8>>, _stdin: Option<Body>) -> Result<RunningCommand, Error> {
        let nonce = String::from_utf8(argv[4].clone()).unwrap();
        let chunks = (self.response)(&nonce);
        let last = chunks.last().and_then(|chunk| chunk.as_ref().ok()).cloned();
        let said = stream::iter(chunks.into_iter().map(|chunk| chunk.map(Bytes::from)));
        let stdout = match last {
            Some(last) if self.endless => {
                Body::new(said.chain(stream::repeat_with(move || Ok(last.clone().into()))))
            }
            _ => Body::new(said),
        };
        let exit = CommandExit {
            status: self.status,
            stderr: self.stderr.to_owned(),
        };
        Ok(RunningCommand {
            stdout,
            end: future::ready(Ok(exit)).boxed(),
        })
    }
}

/// Runs commands, counts bytes, and loses responses on demand.
#[derive(Debug)]
pub(super) struct CountingExec {
    pub(super) exec: LocalExec,
    /// Most bytes of one response.
    pub(super) longest_output: AtomicUsize,
    /// Bytes of all responses.
    pub(super) output: AtomicUsize,
    /// Most bytes of arguments.
    pub(super) longest_arguments: AtomicUsize,
    /// Bytes of input.
    pub(super) input: std::sync::Arc<AtomicUsize>,
    /// Commands so far.
    pub(super) runs: AtomicU32,
    /// Commands whose responses get lost.
    pub(super) lost: Mutex<Vec<u32>>,
}

impl CountingExec {
    pub(super) fn new(exec: LocalExec) -> Self {
        Self {
            exec,
            longest_output: AtomicUsize::new(0),
            output: AtomicUsize::new(0),
            longest_arguments: AtomicUsize::new(0),
            input: std::sync::Arc::default(),
            runs: AtomicU32::new(0),
            lost: Mutex::default(),
        }
    }
}

#[async_trait]
impl Exec for CountingExec {
    fn channel(&self) -> Channel {
        self.exec.channel()
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        let weight = crate::reply::weight(&self.channel(), &argv);
        self.longest_arguments.fetch_max(weight, Ordering::SeqCst);
        let input = std::sync::Arc::clone(&self.input);
        let stdin = stdin.map(|stdin| {
            Body::new(stdin.inspect(move |chunk| {
                let length = chunk.as_ref().map_or(0, Bytes::len);
                input.fetch_add(length, Ordering::SeqCst);
            }))
        });
        // The response is read to its end, so that the effect of the command is complete before the response is lost.
        let running = self.exec.run(argv, stdin).await?;
        let said = running.stdout.read_all(64 << 20).await?;
        let exit = running.end.await?;
        self.longest_output.fetch_max(said.len(), Ordering::SeqCst);
        self.output.fetch_add(said.len(), Ordering::SeqCst);
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        if self.lost.lock().unwrap().contains(&run) {
            return Err(Error::new(ErrorKind::Unavailable, "the response was lost"));
        }
        Ok(RunningCommand {
            stdout: Body::from_bytes(said),
            end: future::ready(Ok(exit)).boxed(),
        })
    }
}
