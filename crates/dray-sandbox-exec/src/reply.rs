//! One request to a script and its response, as records between marks that no content can forge (sandbox-transfer
//! 11.4). A process of the sandbox's user can read the marks in the arguments of the script, so a response gives it no
//! rights.

use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use rand::RngCore as _;

use super::channel::{Channel, Exec, RunningCommand};
use super::decode::TextDecoder;
use super::failure::{kind_of_text, unanswered};

/// The beginning of every script: functions that all of them use.
const SCRIPT_PRELUDE: &str = include_str!("script/prelude.sh");
/// Limit in bytes for other output before a response, and for a response without file contents.
pub(super) const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// 128 random bits that mark the output of one script, so that no file or banner can imitate it.
#[derive(Clone, Debug)]
pub(super) struct Nonce(String);

impl Nonce {
    pub(super) fn new() -> Self {
        let mut bits = [0_u8; 16];
        rand::rng().fill_bytes(&mut bits);
        Self(format!("{:032x}", u128::from_be_bytes(bits)))
    }

    #[cfg(test)]
    pub(super) fn fixed(nonce: &str) -> Self {
        Self(nonce.to_owned())
    }

    /// The hexadecimal digits of the nonce.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// A limit on file locks that no other program has. Below 2^60, which every shell can read, and with 18 digits,
    /// which no other limit has by chance.
    pub(super) fn lock_limit(&self) -> u64 {
        const MIN_LIMIT: u64 = 1 << 59;
        let digits = self.0.get(..14).unwrap_or_default();
        MIN_LIMIT | u64::from_str_radix(digits, 16).unwrap_or_default()
    }

    /// The mark before a word. Scripts put a line break before it, which is not part of it.
    pub(super) fn mark(&self, word: &str) -> Vec<u8> {
        format!("@@{} {word}", self.0).into_bytes()
    }
}

/// The command that runs a script: `sh -c SCRIPT sh NONCE WIRE ARGUMENTS…`. No argument becomes part of the script
/// (sandbox-transfer R-16).
pub(super) fn command(
    script: &str,
    nonce: &Nonce,
    text: bool,
    arguments: &[&[u8]],
) -> Vec<Vec<u8>> {
    let whole = format!("{SCRIPT_PRELUDE}{script}");
    let wire: &[u8] = if text { b"text" } else { b"raw" };
    let first: [&[u8]; 6] = [
        b"sh",
        b"-c",
        whole.as_bytes(),
        b"sh",
        nonce.0.as_bytes(),
        wire,
    ];
    first
        .iter()
        .chain(arguments)
        .map(|argument| argument.to_vec())
        .collect()
}

/// Length of a command on this channel in bytes, quoted where the channel needs it.
pub(super) fn weight(channel: &Channel, argv: &[Vec<u8>]) -> usize {
    argv.iter()
        .map(|argument| match channel.arguments {
            super::Arguments::Vector => argument.len() + 1,
            super::Arguments::Shell => super::quote(argument).len() + 1,
        })
        .sum()
}

/// The response of a script.
#[derive(Debug, Default)]
pub(super) struct Reply {
    records: Vec<(String, Vec<u8>)>,
    /// Whether the response continued beyond the limit.
    pub(super) cut: bool,
}

impl Reply {
    /// Runs a script and reads at most `limit` bytes of its response.
    pub(super) async fn of_script<E: Exec>(
        exec: &E,
        script: &str,
        arguments: &[&[u8]],
        stdin: Option<Body>,
        limit: usize,
    ) -> Result<Self, Error> {
        let nonce = Nonce::new();
        let text = !exec.channel().binary_output;
        let argv = command(script, &nonce, text, arguments);
        let running = exec.run(argv, stdin).await?;
        Self::collect(running, &nonce, limit).await
    }

    /// Reads at most `limit` bytes of the response of a running script.
    pub(super) async fn collect(
        mut running: RunningCommand,
        nonce: &Nonce,
        limit: usize,
    ) -> Result<Self, Error> {
        let mut output = Vec::new();
        let read_error = loop {
            match running.stdout.next().await {
                Some(Ok(chunk)) => output.extend_from_slice(&chunk),
                Some(Err(error)) => break Some(error),
                None => break None,
            }
            if output.len() > limit {
                return Self::cut(&output, nonce);
            }
        };
        drop(running.stdout);
        let ended = match read_error {
            Some(error) => Err(error),
            None => running.end.await,
        };
        let exit = match ended {
            Ok(exit) => exit,
            Err(error) => return Self::response_or_error(error, &output, nonce),
        };
        Self::parse(&output, nonce)?.ok_or_else(|| {
            let has_begun = find(&output, &nonce.mark("begin ")).is_some();
            let tail = output.len().saturating_sub(4096);
            unanswered(&exit, output.get(tail..).unwrap_or_default(), has_begun)
        })
    }

    /// Returns the response that arrived before the channel broke, if it is complete. A script that fails leaves input
    /// unread, and some channels break when they send unread input. The caller then gets the error of the script, not
    /// that of the channel.
    fn response_or_error(error: Error, output: &[u8], nonce: &Nonce) -> Result<Self, Error> {
        let whole = begin(output, nonce).and_then(|_| Self::parse(output, nonce).ok().flatten());
        match whole {
            Some(reply) => {
                tracing::debug!(%error, "a channel broke after the response");
                Ok(reply)
            }
            None => Err(error),
        }
    }

    /// Parses a whole response; `None` when it has no end.
    pub(super) fn parse(output: &[u8], nonce: &Nonce) -> Result<Option<Self>, Error> {
        let Some((coding, rest)) = begin(output, nonce) else {
            // A script that refuses before it begins prints the refusal without a beginning.
            let records = split(output, nonce);
            let refused = records.iter().any(|(tag, _)| tag == "refused");
            return Ok(refused.then_some(Self {
                records,
                cut: false,
            }));
        };
        let Some(end) = find_last(rest, &nonce.mark("end")) else {
            return Ok(None);
        };
        // The script wrote this line break before the mark.
        let payload = rest.get(..end).unwrap_or_default();
        let payload = decode(&coding, payload.strip_suffix(b"\n").unwrap_or(payload))?;
        Ok(Some(Self {
            records: split(&payload, nonce),
            cut: false,
        }))
    }

    /// The complete records of a response that was too long.
    pub(super) fn cut(output: &[u8], nonce: &Nonce) -> Result<Self, Error> {
        let Some((coding, rest)) = begin(output, nonce) else {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the output has no response",
            ));
        };
        let mut decoder = TextDecoder::new(&coding)?;
        let payload = match coding.as_str() {
            "raw" => rest.to_vec(),
            _ => decoder.feed(rest)?,
        };
        let mut records = split(&payload, nonce);
        // The last record may be incomplete.
        records.pop();
        Ok(Self { records, cut: true })
    }

    /// All records, in the order of the script.
    pub(super) fn records(&self) -> &[(String, Vec<u8>)] {
        &self.records
    }

    /// The value of the first record with this tag.
    pub(super) fn get(&self, tag: &str) -> Option<&[u8]> {
        self.records
            .iter()
            .find(|(found, _)| found == tag)
            .map(|(_, value)| value.as_slice())
    }

    /// The value of a record without the line break that the tool printed after it.
    pub(super) fn line(&self, tag: &str) -> Option<&[u8]> {
        self.get(tag).map(one_line)
    }

    /// The value of a record as text, trimmed; empty where it is missing.
    pub(super) fn text(&self, tag: &str) -> String {
        String::from_utf8_lossy(self.get(tag).unwrap_or_default())
            .trim()
            .to_owned()
    }

    /// The value of a record as a number.
    pub(super) fn number(&self, tag: &str) -> Option<u64> {
        self.text(tag).parse().ok()
    }

    /// Fails when the script refused, or when its step failed. The record `message_tag` holds the error message of that
    /// step.
    pub(super) fn check(&self, message_tag: &str) -> Result<(), Error> {
        let message = self.text(message_tag);
        // The refusal is checked first: it has no status, and the script itself has chosen its kind.
        if self.get("refused").is_some() {
            let refusal = self.text("refused");
            let kind = ErrorKind::ALL
                .into_iter()
                .find(|kind| kind.as_str() == refusal);
            let text = self.text("text");
            let kind = kind
                .or_else(|| kind_of_text(&text))
                .unwrap_or(ErrorKind::NotFound);
            return Err(Error::new(kind, format!("refused: {refusal} {text}")));
        }
        match self.text("status").as_str() {
            "0" => Ok(()),
            status => {
                let kind = match status {
                    "126" | "127" => ErrorKind::ToolMissing,
                    "" => ErrorKind::Truncated,
                    _ => kind_of_text(&message).unwrap_or(ErrorKind::Unavailable),
                };
                Err(Error::new(kind, format!("status {status}: {message}")))
            }
        }
    }
}

/// The coding and the rest of a response after its beginning.
fn begin<'o>(output: &'o [u8], nonce: &Nonce) -> Option<(String, &'o [u8])> {
    let mark = nonce.mark("begin ");
    let rest = output.get(find(output, &mark)? + mark.len()..)?;
    let line = rest.iter().position(|byte| *byte == b'\n')?;
    let coding = String::from_utf8_lossy(rest.get(..line)?).trim().to_owned();
    // The first record begins with the line break before its mark, so it stays.
    Some((coding, rest.get(line..)?))
}

fn decode(coding: &str, payload: &[u8]) -> Result<Vec<u8>, Error> {
    if coding == "raw" {
        return Ok(payload.to_vec());
    }
    let mut decoder = TextDecoder::new(coding)?;
    let decoded = decoder.feed(payload)?;
    decoder.finish()?;
    Ok(decoded)
}

/// Splits records: a mark at the beginning of a line, a tag, a space, and a value up to the line break before the
/// next mark.
fn split(payload: &[u8], nonce: &Nonce) -> Vec<(String, Vec<u8>)> {
    let mark = [b"\n".to_vec(), nonce.mark("")].concat();
    let mut records = Vec::new();
    let mut rest = payload;
    let mut open = false;
    loop {
        let next = find(rest, &mark);
        let value = rest.get(..next.unwrap_or(rest.len())).unwrap_or_default();
        if open {
            let tag_end = value
                .iter()
                .position(u8::is_ascii_whitespace)
                .unwrap_or(value.len());
            let (tag, value) = value.split_at(tag_end);
            let value = value.strip_prefix(b" ").unwrap_or(value);
            records.push((String::from_utf8_lossy(tag).into_owned(), value.to_vec()));
        }
        match next.and_then(|start| rest.get(start + mark.len()..)) {
            Some(after) => rest = after,
            None => return records,
        }
        open = true;
    }
}

/// Removes the one line break that a tool prints at the end; a second one belongs to the name.
pub(super) fn one_line(value: &[u8]) -> &[u8] {
    value.strip_suffix(b"\n").unwrap_or(value)
}

/// Position of the first `needle`.
pub(super) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// Position of the last `needle`.
pub(super) fn find_last(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .rposition(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(output: &[u8]) -> Option<Reply> {
        Reply::parse(output, &Nonce::fixed("7e57")).unwrap()
    }

    #[test]
    fn other_output_around_a_response_is_ignored() {
        let reply = parse(
            b"Welcome!\n@@other begin raw\n@@7e57 begin raw\n\n@@7e57 real /a\n\n@@7e57 status 0\n@@7e57 end\nlogout\n",
        )
        .unwrap();
        assert_eq!(reply.line("real"), Some(b"/a".as_slice()));
        assert!(reply.check("real").is_ok());
    }

    #[test]
    fn a_name_may_contain_line_breaks_and_marks_of_other_scripts() {
        let reply = parse(
            b"\n@@7e57 begin raw\n\n@@7e57 real /a\n@@dead end\n\n\n@@7e57 status 0\n@@7e57 end\n",
        )
        .unwrap();
        assert_eq!(reply.line("real"), Some(b"/a\n@@dead end\n".as_slice()));
    }

    #[test]
    fn a_base64_response_may_have_other_line_breaks() {
        // base64 of "\n@@7e57 real /a\n\n@@7e57 status 0"
        let reply = parse(b"motd\r\n@@7e57 begin base64\r\nCkBAN2U1NyByZWFsIC9hCgpA\r\nQDdlNTcgc3RhdHVzIDA=\r\n\r\n@@7e57 end\r\n").unwrap();
        assert_eq!(reply.line("real"), Some(b"/a".as_slice()));
        assert_eq!(reply.number("status"), Some(0));
    }

    #[test]
    fn a_response_without_its_end_is_invalid() {
        assert!(parse(b"\n@@7e57 begin raw\n\n@@7e57 status 0").is_none());
        assert!(parse(b"nothing of ours").is_none());
    }

    #[test]
    fn a_refusal_has_the_kind_that_the_script_names_or_that_its_text_means() {
        let reply = parse(b"\n@@7e57 refused is_directory\n").unwrap();
        assert_eq!(
            reply.check("text").unwrap_err().kind(),
            ErrorKind::IsDirectory
        );
        let reply =
            parse(b"\n@@7e57 text ls: /x: Permission denied\n\n@@7e57 refused unknown\n").unwrap();
        assert_eq!(
            reply.check("text").unwrap_err().kind(),
            ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn r_16_a_path_is_never_part_of_a_script() {
        let path = b"/w/$(touch pwned)'\"`id`";
        let argv = command("true", &Nonce::fixed("7e57"), true, &[path]);
        assert_eq!(argv.last().unwrap(), path);
        assert!(find(&argv[2], b"pwned").is_none());
        assert_eq!(argv[4..6], [b"7e57".to_vec(), b"text".to_vec()]);
    }
}
