//! The command line and the input that carry a request through a channel.

use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::command::{CommandInput, CommandRequest};
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::StreamExt as _;
use futures_util::stream;

use crate::channel::Channel;
use crate::reply::{Nonce, weight};
use crate::text_command::{escaped, spelled};

/// The script that runs the program. It discards messages of the shell itself, which must not be taken for output.
const EXECUTE_SCRIPT: &str = concat!(
    "exec 2>/dev/null\n",
    include_str!("../script/marked.sh"),
    include_str!("../script/execute.sh")
);
/// Most bytes of standard input on a channel without input, where it is passed as an argument. In the notation for a
/// shell, a byte takes up to nine bytes.
const MAX_SPELLED_INPUT_BYTES: usize = 8 << 10;
/// Share of the output of a channel, in percent, that standard output may fill. As hexadecimal digits it grows to 3.4
/// times its size.
const OUTPUT_SHARE: usize = 25;
/// The share for standard error, which may be encoded twice.
const STDERR_SHARE: usize = 2;

/// Limits for the outputs of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputLimits {
    /// Most bytes of standard error.
    pub(super) stderr: usize,
    /// Most bytes of standard output; `None` where the channel sets no limit.
    pub(super) stdout: Option<usize>,
}

/// How a request is started on a channel.
#[derive(Debug)]
pub(super) struct ProgramPlan {
    pub(super) argv: Vec<Vec<u8>>,
    pub(super) input: Option<Body>,
    pub(super) limits: OutputLimits,
}

impl ProgramPlan {
    pub(super) async fn new(
        channel: &Channel,
        nonce: &Nonce,
        request: CommandRequest,
    ) -> Result<Self, Error> {
        check(&request)?;
        let limits = OutputLimits::of(channel, request.max_stderr_bytes);
        // An encoder of the whole output holds it back, and a limit on the output would count standard error too.
        let is_live = request.stderr.is_some() && channel.binary_output && limits.stdout.is_none();
        let (word, body) = input_word(channel, request.input).await?;
        // One byte above the limit, which shows whether the output was longer.
        let stderr = limits.stderr + 1;
        let stdout = limits.stdout.map_or(0, |most| most + 1);
        let mut arguments = vec![
            request.directory.as_bytes().to_vec(),
            word,
            stderr.to_string().into_bytes(),
            stdout.to_string().into_bytes(),
            request.lifetime_seconds.to_string().into_bytes(),
            nonce.lock_limit().to_string().into_bytes(),
            if is_live {
                b"live".to_vec()
            } else {
                b"-".to_vec()
            },
            request.environment.len().to_string().into_bytes(),
        ];
        let variables = request.environment.into_iter();
        arguments.extend(variables.map(|(name, value)| [name.as_bytes(), b"=", &value].concat()));
        arguments.extend(request.argv);
        let arguments = spelled(&arguments);
        let (argument, input) = if channel.input {
            (String::from("-"), Some(with_line(arguments, body)))
        } else {
            (arguments, None)
        };
        let argv = command_line(channel, nonce, &argument);
        let size = weight(channel, &argv);
        if size > channel.longest_arguments {
            let allowed = channel.longest_arguments as u64;
            return Err(Error::too_large(size as u64, allowed));
        }
        Ok(Self {
            argv,
            input,
            limits,
        })
    }
}

impl OutputLimits {
    fn of(channel: &Channel, max_stderr_bytes: usize) -> Self {
        match channel.longest_output {
            None => Self {
                stderr: max_stderr_bytes,
                stdout: None,
            },
            Some(longest) => Self {
                stderr: max_stderr_bytes.min(longest / 100 * STDERR_SHARE),
                stdout: Some(longest / 100 * OUTPUT_SHARE),
            },
        }
    }
}

/// Refuses values that a shell or `env` would misread.
fn check(request: &CommandRequest) -> Result<(), Error> {
    let invalid = |reason: &str| Err(Error::new(ErrorKind::InvalidName, reason));
    let Some(program) = request.argv.first() else {
        return invalid("the command has no program");
    };
    if program.is_empty() || program.starts_with(b"-") || program.contains(&b'=') {
        return invalid("the program's name is empty, begins with `-` or has `=`");
    }
    let values = request.environment.iter().map(|(_, value)| value);
    if request
        .argv
        .iter()
        .chain(values)
        .any(|word| word.contains(&0))
    {
        return invalid("an argument or a variable holds NUL");
    }
    if !request.environment.iter().all(|(name, _)| is_name(name)) {
        return invalid("the name of a variable is not valid in a shell");
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().next().is_some_and(letter)
        && name
            .bytes()
            .all(|byte| letter(byte) || byte.is_ascii_digit())
}

/// How the script gets the input, and the bytes that follow its own line.
async fn input_word(
    channel: &Channel,
    input: Option<CommandInput>,
) -> Result<(Vec<u8>, Option<Body>), Error> {
    let Some(CommandInput { size, body }) = input else {
        return Ok((b"none".to_vec(), None));
    };
    if channel.input && channel.binary_input {
        let word = if channel.input_end {
            b"end".to_vec()
        } else {
            size.to_string().into_bytes()
        };
        return Ok((word, Some(body.exactly(size))));
    }
    let bytes = body.read_all(MAX_SPELLED_INPUT_BYTES).await?;
    Ok((format!("text:{}", escaped(&bytes)).into_bytes(), None))
}

/// The line for the script, followed by the input of the program.
fn with_line(words: String, body: Option<Body>) -> Body {
    let line = stream::iter([Ok(Bytes::from(words + "\n"))]);
    match body {
        Some(body) => Body::new(line.chain(body)),
        None => Body::new(line),
    }
}

fn command_line(channel: &Channel, nonce: &Nonce, argument: &str) -> Vec<Vec<u8>> {
    let wire = if channel.binary_output { "raw" } else { "text" };
    // The shell has the mark in its environment from the beginning, so that it can be found before it runs anything.
    let mark = format!("DRAY_COMMAND=wrap.{}", nonce.as_str());
    let arguments = [
        "env",
        &mark,
        "sh",
        "-c",
        EXECUTE_SCRIPT,
        "sh",
        nonce.as_str(),
        wire,
        argument,
    ];
    arguments.map(|word| word.as_bytes().to_vec()).to_vec()
}
