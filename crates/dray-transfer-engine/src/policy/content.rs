//! Secrets in the content of files: private keys, and tokens that are recognized by their form.

use std::fmt;

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::path::SandboxPath;

/// Largest file in bytes that is scanned; larger ones pass unscanned.
pub const MAX_SCANNED_BYTES: u64 = 1 << 20;

/// Bytes of one word that are kept while it is matched; longer words are matched in overlapping parts.
const MAX_WORD_BYTES: usize = 512;
/// Bytes that two such parts share: more than the longest token that must be complete.
const OVERLAP_BYTES: usize = 128;
/// Longest label in bytes between `-----BEGIN ` and `-----`.
const MAX_LABEL_BYTES: usize = 48;
/// Text before the label of a PEM block.
const PEM_BEGIN: &[u8] = b"-----BEGIN ";
/// Beginning of the first line of a key of `PuTTY`.
const PUTTY_KEY_PREFIX: &[u8] = b"PuTTY-User-Key-File-";

/// The secret that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// A private key in PEM, OpenSSH, PGP or `PuTTY` form.
    PrivateKey,
    /// A token, with the name of its issuer.
    Token(&'static str),
}

/// The form in receipts and logs: `private_key`, or `token:` with the issuer.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrivateKey => f.write_str("private_key"),
            Self::Token(issuer) => write!(f, "token:{issuer}"),
        }
    }
}

impl Finding {
    /// The refusal of a file in which this was found, for the operator's log.
    pub(crate) fn refusal(self, path: &SandboxPath) -> Error {
        let text = format!(
            "{path} contains a secret ({self}); to allow it, add it to `allow` of the sandbox policy, \
             or change `content`"
        );
        Error::new(ErrorKind::DeniedPath, text)
    }

    /// Logs that a file in which this was found leaves the sandbox.
    pub(crate) fn warn(self, path: &SandboxPath) {
        tracing::warn!(
            finding = %self,
            %path,
            "a file that leaves the sandbox contains a secret; `content` of the sandbox policy decides about it"
        );
    }
}

/// Decision about a scanned file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The file passes.
    Pass,
    /// The file passes, with a warning that says what was found.
    Warn(Finding),
    /// The file is refused.
    Block(Finding),
}

/// Whether a file that begins like this is a private key.
pub fn is_private_key(head: &[u8]) -> bool {
    let head = head
        // A byte order mark, which editors on Windows put before text.
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(head)
        .trim_ascii_start();
    if head.starts_with(PUTTY_KEY_PREFIX) {
        return true;
    }
    let Some(rest) = head.strip_prefix(PEM_BEGIN) else {
        return false;
    };
    rest.windows(5)
        .take(MAX_LABEL_BYTES)
        .position(|dashes| dashes == b"-----")
        .and_then(|end| rest.get(..end))
        .is_some_and(is_key_label)
}

fn is_key_label(label: &[u8]) -> bool {
    label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK")
}

/// Scans a stream of text, in chunks of any size, with less than 1 KiB of memory. A private key takes precedence over a
/// token, even over one before it.
#[derive(Debug, Default)]
pub struct Scanner {
    word: Vec<u8>,
    begin: KeyLine,
    binary: bool,
    private_key: bool,
    token: Option<&'static str>,
}

impl Scanner {
    /// A scanner that has scanned no byte yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Scans the next bytes.
    pub fn push(&mut self, chunk: &[u8]) {
        // No finding takes precedence over a private key, so the rest is not scanned.
        if self.private_key {
            return;
        }
        for byte in chunk {
            match *byte {
                // Text in UTF-16 has a NUL beside every ASCII character.
                0 => {}
                // Control characters that do not occur in text. Tab, line ends and form feed (7 to 13) and escape (27)
                // do.
                1..=6 | 14..=26 | 28..=31 => self.binary = true,
                byte => self.scan_byte(byte),
            }
        }
    }

    /// Whether a private key begins anywhere in the bytes so far, text or not. Programs that read keys skip the bytes
    /// before the key.
    pub const fn has_private_key(&self) -> bool {
        self.private_key
    }

    /// The result of the scan; `None` for content that is not text.
    pub fn finish(mut self) -> Option<Finding> {
        self.end_word();
        if self.binary {
            return None;
        }
        if self.private_key {
            return Some(Finding::PrivateKey);
        }
        self.token.map(Finding::Token)
    }

    fn scan_byte(&mut self, byte: u8) {
        self.private_key |= self.begin.is_key(byte);
        if !is_word(byte) {
            self.end_word();
            return;
        }
        if self.word.len() == MAX_WORD_BYTES {
            self.scan_window();
            // The end of the full word stays: a token may have begun in it.
            self.word.drain(..MAX_WORD_BYTES - OVERLAP_BYTES);
        }
        self.word.push(byte);
    }

    fn end_word(&mut self) {
        self.scan_window();
        self.word.clear();
    }

    fn scan_window(&mut self) {
        self.private_key |= self
            .word
            .windows(PUTTY_KEY_PREFIX.len())
            .any(|part| part == PUTTY_KEY_PREFIX);
        if self.token.is_none() {
            self.token = token(&self.word);
        }
    }
}

/// Recognises the first line of a key.
#[derive(Debug, Default)]
struct KeyLine {
    matched: usize,
    label: Vec<u8>,
}

impl KeyLine {
    /// Whether this byte ends the label of a private key.
    fn is_key(&mut self, byte: u8) -> bool {
        if self.matched == PEM_BEGIN.len() {
            return self.label(byte);
        }
        if PEM_BEGIN.get(self.matched) == Some(&byte) {
            self.matched += 1;
        } else {
            // Of more than five dashes, the last five count.
            self.matched = match (byte, self.matched) {
                (b'-', 5) => 5,
                (b'-', _) => 1,
                _ => 0,
            };
        }
        false
    }

    fn label(&mut self, byte: u8) -> bool {
        // A label cannot contain a line end, so an unfinished line does not swallow the next one.
        if byte != b'-' && byte != b'\n' && self.label.len() < MAX_LABEL_BYTES {
            self.label.push(byte);
            return false;
        }
        let key = byte == b'-' && is_key_label(&self.label);
        self.label.clear();
        // The dash that ended the label may be the first of the next `-----BEGIN `.
        self.matched = usize::from(byte == b'-');
        key
    }
}

/// The form of a token: its prefix, the alphabet of the rest, and the least length of the rest.
struct TokenForm {
    issuer: &'static str,
    prefix: &'static [u8],
    alphabet: fn(u8) -> bool,
    rest: usize,
}

const fn form(
    issuer: &'static str,
    prefix: &'static [u8],
    alphabet: fn(u8) -> bool,
    rest: usize,
) -> TokenForm {
    TokenForm {
        issuer,
        prefix,
        alphabet,
        rest,
    }
}

const TOKEN_FORMS: [TokenForm; 23] = [
    form("AWS", b"AKIA", is_upper_or_digit, 16),
    form("AWS", b"ASIA", is_upper_or_digit, 16),
    form("Anthropic", b"sk-ant-", is_word, 32),
    form("GitHub", b"ghp_", is_alphanumeric, 36),
    form("GitHub", b"gho_", is_alphanumeric, 36),
    form("GitHub", b"ghu_", is_alphanumeric, 36),
    form("GitHub", b"ghs_", is_alphanumeric, 36),
    form("GitHub", b"ghr_", is_alphanumeric, 36),
    form("GitHub", b"github_pat_", is_word, 40),
    form("GitLab", b"glpat-", is_word, 20),
    form("Google", b"AIza", is_word, 35),
    form("Hugging Face", b"hf_", is_alphanumeric, 34),
    form("npm", b"npm_", is_alphanumeric, 36),
    form("OpenAI", b"sk-proj-", is_word, 40),
    form("OpenAI", b"sk-", is_alphanumeric, 40),
    form("PyPI", b"pypi-AgE", is_word, 50),
    form("SendGrid", b"SG.", is_word, 60),
    form("Slack", b"xapp-", is_word, 20),
    form("Slack", b"xoxa-", is_word, 20),
    form("Slack", b"xoxb-", is_word, 20),
    form("Slack", b"xoxp-", is_word, 20),
    form("Slack", b"xoxr-", is_word, 20),
    form("Stripe", b"sk_live_", is_alphanumeric, 20),
];

/// Issuer of the token in this word.
fn token(word: &[u8]) -> Option<&'static str> {
    let mut before = None;
    for (position, byte) in word.iter().enumerate() {
        // Inside a base64 text a prefix occurs by chance; after `-`, `.` and `:` a token may begin.
        let begins = !before.is_some_and(|byte| is_alphanumeric(byte) || byte == b'_');
        before = Some(*byte);
        if !begins {
            continue;
        }
        let rest = word.get(position..).unwrap_or_default();
        let known = TOKEN_FORMS.iter().find(|form| is_token(rest, form));
        if let Some(form) = known {
            return Some(form.issuer);
        }
        if is_telegram(rest) {
            return Some("Telegram");
        }
    }
    None
}

fn is_token(text: &[u8], form: &TokenForm) -> bool {
    text.strip_prefix(form.prefix).is_some_and(|rest| {
        rest.iter()
            .take(form.rest)
            .filter(|byte| (form.alphabet)(**byte))
            .count()
            == form.rest
    })
}

/// Whether the text begins like a bot token of Telegram: eight to ten digits, a colon, and 35 characters of which the
/// first two are always `AA`.
fn is_telegram(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = text.get(digits..).unwrap_or_default();
    let secret = |rest: &[u8]| rest.iter().take(33).filter(|byte| is_word(**byte)).count() == 33;
    (8..=10).contains(&digits) && rest.strip_prefix(b":AA").is_some_and(secret)
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':')
}

const fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

const fn is_upper_or_digit(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}
