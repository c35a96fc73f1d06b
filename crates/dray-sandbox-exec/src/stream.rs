//! A long response that is read as it arrives: noise, a beginning, bytes, a trailer (sandbox-transfer 11.4).

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::future::BoxFuture;

use super::channel::{CommandExit, Exec, RunningCommand};
use super::decode::{GzipExpander, TextDecoder};
use super::failure::{kind_of_text, unanswered};
use super::reply::{MAX_RESPONSE_BYTES, Nonce, Reply, command, find, find_last};

/// Longest trailer, with the messages of a shell after it. This many bytes are held back until it is known whether they
/// are content.
const MAX_TRAILER_BYTES: usize = 4096;
/// Bytes of compressed text that are decoded in one step.
const DECODE_STEP_BYTES: usize = 4096;

/// How the program's output carries the file.
enum ContentCoding {
    Raw,
    Text(TextDecoder),
    Gzip(TextDecoder, Box<GzipExpander>),
}

/// The next part of a response.
pub(super) enum StreamEvent {
    /// A chunk of the content.
    Bytes(Bytes),
    /// The end of the content; the command has ended.
    End(StreamTrailer),
}

/// The report of the script after the content.
pub(super) struct StreamTrailer {
    /// SHA-256 of the content, where it was requested.
    pub(super) digest: Option<String>,
    /// Facts about the file after it was read.
    pub(super) facts: String,
    /// The failure that left the content incomplete.
    pub(super) failure: Option<Error>,
}

/// A long response that is being received. Dropping it ends the command.
pub(super) struct Stream {
    /// Most bytes that the script intends to send.
    pub(super) announced: u64,
    /// Facts about the file before it was read.
    pub(super) facts: String,
    nonce: Nonce,
    stdout: Body,
    end: Option<BoxFuture<'static, Result<CommandExit, Error>>>,
    coding: ContentCoding,
    incoming: Bytes,
    tail: BytesMut,
    in_trailer: bool,
    ended: bool,
    /// Whether the script reported that reading the content failed.
    broken: bool,
    trailer: Option<String>,
    ready: VecDeque<Bytes>,
}

impl Stream {
    /// Runs a script and waits until its response begins.
    pub(super) async fn open<E: Exec>(
        exec: &E,
        script: &str,
        text: bool,
        arguments: &[&[u8]],
    ) -> Result<Self, Error> {
        let nonce = Nonce::new();
        let running = exec
            .run(command(script, &nonce, text, arguments), None)
            .await?;
        Self::of(nonce, running).await
    }

    /// Waits until the response of a running script begins.
    pub(super) async fn of(nonce: Nonce, running: RunningCommand) -> Result<Self, Error> {
        let mut stream = Self {
            announced: 0,
            facts: String::new(),
            nonce,
            stdout: running.stdout,
            end: Some(running.end),
            coding: ContentCoding::Raw,
            incoming: Bytes::new(),
            tail: BytesMut::new(),
            in_trailer: false,
            ended: false,
            broken: false,
            trailer: None,
            ready: VecDeque::new(),
        };
        stream.begin().await?;
        Ok(stream)
    }

    async fn begin(&mut self) -> Result<(), Error> {
        let mark = self.nonce.mark("begin ");
        let mut noise = BytesMut::new();
        loop {
            if let Some(line) = find(&noise, &mark).map(|at| at + mark.len())
                && let Some(length) = noise
                    .get(line..)
                    .and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
            {
                let mut rest = noise.split_off(line);
                let header = rest.split_to(length);
                let _ = rest.split_to(1);
                self.incoming = rest.freeze();
                return self.header(&String::from_utf8_lossy(&header));
            }
            if noise.len() > MAX_RESPONSE_BYTES {
                return Err(Error::new(ErrorKind::Protocol, "the response never begins"));
            }
            match self.stdout.next().await {
                Some(chunk) => noise.extend_from_slice(&chunk?),
                None => return Err(self.refusal(&noise).await?),
            }
        }
    }

    /// Returns the reason why the response is missing.
    async fn refusal(&mut self, noise: &[u8]) -> Result<Error, Error> {
        let exit = self.exit().await?;
        if find(noise, &self.nonce.mark("begin ")).is_some() {
            return Ok(unanswered(&exit, b"", true));
        }
        if let Some(reply) = Reply::parse(noise, &self.nonce)? {
            reply.check("text")?;
        }
        let tail = noise.len().saturating_sub(4096);
        let noise = noise.get(tail..).unwrap_or_default();
        Ok(unanswered(&exit, noise, false))
    }

    async fn exit(&mut self) -> Result<CommandExit, Error> {
        match self.end.take() {
            Some(end) => end.await,
            None => Err(Error::new(ErrorKind::Protocol, "the command has ended")),
        }
    }

    fn header(&mut self, line: &str) -> Result<(), Error> {
        let mut words = line.split_whitespace();
        let (encoder, compression) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let announced = words.next().and_then(|announced| announced.parse().ok());
        let missing = || Error::new(ErrorKind::Protocol, "the response has no length");
        self.announced = announced.ok_or_else(missing)?;
        self.facts = words.collect::<Vec<_>>().join(" ");
        self.coding = match (encoder, compression) {
            ("raw", _) => ContentCoding::Raw,
            (encoder, "gzip") => ContentCoding::Gzip(
                TextDecoder::new(encoder)?,
                Box::new(GzipExpander::new(self.announced)),
            ),
            (encoder, _) => ContentCoding::Text(TextDecoder::new(encoder)?),
        };
        Ok(())
    }

    /// The next chunk of content, or the end.
    pub(super) async fn next(&mut self) -> Result<StreamEvent, Error> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                if bytes.is_empty() {
                    continue;
                }
                return Ok(StreamEvent::Bytes(bytes));
            }
            if !self.incoming.is_empty() {
                let step = match self.coding {
                    // One step may expand a thousandfold, so the chunks in memory stay limited.
                    ContentCoding::Gzip(..) => DECODE_STEP_BYTES.min(self.incoming.len()),
                    ContentCoding::Raw | ContentCoding::Text(_) => self.incoming.len(),
                };
                let chunk = self.incoming.split_to(step);
                self.take(chunk)?;
                continue;
            }
            if self.ended {
                return self.finish().await;
            }
            if let Some(chunk) = self.stdout.next().await {
                self.incoming = chunk?;
            } else {
                self.ended = true;
                self.trailer = self.close()?;
            }
        }
    }

    fn take(&mut self, chunk: Bytes) -> Result<(), Error> {
        if matches!(self.coding, ContentCoding::Raw) {
            self.push_raw(chunk);
            return Ok(());
        }
        // `contains` is a quick check, and most chunks have no mark. `@` is in no text encoding, so content cannot
        // contain it (sandbox-transfer 11.4).
        self.in_trailer |= chunk.contains(&b'@');
        let content = if self.tail.is_empty() && self.in_trailer {
            let at = chunk.iter().position(|byte| *byte == b'@');
            at.unwrap_or(chunk.len())
        } else if self.in_trailer {
            0
        } else {
            chunk.len()
        };
        let (content, after) = (chunk.slice(..content), chunk.slice(content..));
        self.tail.extend_from_slice(&after);
        if self.tail.len() > MAX_RESPONSE_BYTES {
            return Err(Error::new(ErrorKind::Protocol, "the trailer has no end"));
        }
        match &mut self.coding {
            ContentCoding::Raw => {}
            ContentCoding::Text(decoder) => self.ready.push_back(decoder.feed(&content)?.into()),
            ContentCoding::Gzip(decoder, expander) => {
                let compressed = decoder.feed(&content)?;
                let chunks = expander.feed(&compressed)?;
                self.ready.extend(chunks.into_iter().map(Bytes::from));
            }
        }
        Ok(())
    }

    /// Passes on all but the last bytes, which may be the trailer.
    fn push_raw(&mut self, mut chunk: Bytes) {
        if chunk.len() >= MAX_TRAILER_BYTES {
            // Raw bytes may look like a mark, so only the end of the stream decides where the trailer begins.
            let tail = chunk.split_off(chunk.len() - MAX_TRAILER_BYTES);
            self.ready.push_back(self.tail.split().freeze());
            self.ready.push_back(chunk);
            self.tail.extend_from_slice(&tail);
        } else {
            self.tail.extend_from_slice(&chunk);
            if self.tail.len() > MAX_TRAILER_BYTES {
                let content = self.tail.split_to(self.tail.len() - MAX_TRAILER_BYTES);
                self.ready.push_back(content.freeze());
            }
        }
    }

    /// Splits the last bytes when the output has ended: the content, and the trailer after it.
    fn close(&mut self) -> Result<Option<String>, Error> {
        let mark = self.nonce.mark("end ");
        // A line without its end may be cut, and a partial digest must not be compared.
        let whole = find_last(&self.tail, &mark).filter(|at| {
            let line = self.tail.get(*at..).unwrap_or_default();
            line.contains(&b'\n')
        });
        let Some(at) = whole else {
            return Ok(None);
        };
        match std::mem::replace(&mut self.coding, ContentCoding::Raw) {
            ContentCoding::Raw => {
                // The script put the line break before the mark.
                let content = self.tail.split_to(at).freeze();
                let length = content.len() - usize::from(content.ends_with(b"\n"));
                self.ready.push_back(content.slice(..length));
            }
            ContentCoding::Text(decoder) => decoder.finish()?,
            ContentCoding::Gzip(decoder, expander) => {
                decoder.finish()?;
                self.ready.extend(expander.finish()?.map(Bytes::from));
            }
        }
        let at = find_last(&self.tail, &mark).unwrap_or_default();
        let (before, trailer) = self.tail.split_at_checked(at).unwrap_or_default();
        self.broken = find(before, &self.nonce.mark("broken")).is_some();
        Ok(Some(String::from_utf8_lossy(trailer).into_owned()))
    }

    async fn finish(&mut self) -> Result<StreamEvent, Error> {
        let exit = self.exit().await?;
        match self.trailer.take() {
            Some(text) => Ok(StreamEvent::End(self.trailer(&text, &exit))),
            None => Err(unanswered(&exit, b"", true)),
        }
    }

    fn trailer(&self, text: &str, exit: &CommandExit) -> StreamTrailer {
        // Messages of a shell at its end may look like marks, but they are never on this line.
        let line = text.lines().next().unwrap_or_default();
        let mut words = line.split_whitespace().skip(2);
        let status = words.next().unwrap_or_default();
        let digest = words.next().filter(|word| *word != "-").map(str::to_owned);
        // Inside a pipeline the status of the reading command is lost, so the script marks a failure on stderr.
        let broken = String::from_utf8_lossy(&self.nonce.mark("broken")).into_owned();
        let failed =
            status != "0" || self.broken || text.contains(&broken) || exit.stderr.contains(&broken);
        let failure = failed.then(|| {
            let stderr = exit.stderr.replace(&broken, "");
            let kind = kind_of_text(&stderr).unwrap_or(ErrorKind::Unavailable);
            Error::new(kind, format!("status {status}: {}", stderr.trim()))
        });
        StreamTrailer {
            digest,
            facts: words.collect::<Vec<_>>().join(" "),
            failure,
        }
    }
}
