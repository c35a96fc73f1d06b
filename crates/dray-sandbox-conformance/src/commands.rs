//! Cases of programs that a caller runs.

use std::sync::Arc;

use bytes::Bytes;
use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::backend::Sandbox;
use dray_sandbox::body::Body;
use dray_sandbox::command::{CommandEnd, CommandInput, CommandRequest, SandboxCommand};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::path::SandboxPath;
use futures_util::future::try_join_all;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::CaseContext;
use super::context::{chunks, random};
use super::expect::expect_error;

/// Most bytes of standard error that the cases keep.
const MAX_STDERR_BYTES: usize = 64 << 10;
/// Lifetime of a program that ends by itself earlier, in seconds.
const LIFETIME_SECONDS: u64 = 300;
/// Size of an input that every channel can transmit, in bytes.
const SMALL_INPUT_BYTES: usize = 4096;
/// Starts three children that outlive the script, and writes their process ids. Two are in separate sessions; the last
/// one has cleared its environment when its process id is written.
pub(super) const CHILDREN_SCRIPT: &str = "sleep 300 & echo $! >pids.new
setsid sleep 301 2>/dev/null & echo $! >>pids.new
mkfifo bare
setsid env -i PATH=\"$PATH\" sh -c 'echo $$ >bare; exec sleep 302' 2>/dev/null &
cat bare >>pids.new
mv pids.new pids";

/// The result of a program that was read to its end.
pub(super) struct CompletedProgram {
    pub(super) output: Vec<u8>,
    pub(super) end: CommandEnd,
}

impl CaseContext<'_> {
    fn command<W: AsRef<[u8]>>(&self, argv: &[W]) -> CommandRequest {
        CommandRequest {
            argv: argv.iter().map(|word| word.as_ref().to_vec()).collect(),
            directory: self.directory.clone(),
            environment: Vec::new(),
            input: None,
            max_stderr_bytes: MAX_STDERR_BYTES,
            stderr: None,
            lifetime_seconds: LIFETIME_SECONDS,
            stop: CancellationToken::new(),
        }
    }

    pub(super) fn script(&self, script: &str) -> CommandRequest {
        self.command(&["sh", "-c", script])
    }

    async fn finish(&self, request: CommandRequest) -> Result<CompletedProgram, Error> {
        finish(Arc::clone(&self.sandbox), request).await
    }

    /// Runs a script to its end and returns its result.
    pub(super) async fn run_script(&self, script: &str) -> Result<CompletedProgram, Error> {
        self.finish(self.script(script)).await
    }

    /// Checks repeatedly until no process of the case runs. The time limit of the case ends the wait.
    pub(super) async fn processes_end(&self) -> Result<(), CaseEnd> {
        let script = "for pid in $(cat pids); do if kill -0 \"$pid\" 2>/dev/null; then
            case $(cat \"/proc/$pid/stat\" 2>/dev/null) in *') Z '*|'') ;; *) echo alive ;; esac
        fi; done";
        while !self.sh(script).await?.is_empty() {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

async fn finish(
    sandbox: Arc<dyn Sandbox>,
    request: CommandRequest,
) -> Result<CompletedProgram, Error> {
    let SandboxCommand { mut output, end } = sandbox.execute(request).await?;
    let mut all = Vec::new();
    while let Some(chunk) = output.next().await {
        all.extend_from_slice(&chunk?);
    }
    Ok(CompletedProgram {
        output: all,
        end: end.await?,
    })
}

fn input(bytes: &[u8]) -> CommandInput {
    CommandInput {
        size: bytes.len() as u64,
        body: chunks(bytes),
    }
}

pub(super) fn runs_commands(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.commands)
}

pub(super) async fn a_program_ends_with_its_status(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    for status in [0, 1, 7, 126, 255] {
        let ended = context.run_script(&format!("exit {status}")).await?;
        expect_equal("status", ended.end.status, status)?;
        expect_bytes("output", &ended.output, b"")?;
        expect_bytes("stderr", &ended.end.stderr, b"")?;
    }
    Ok(())
}

pub(super) async fn a_signal_is_part_of_the_status(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    for signal in [15, 9] {
        let ended = context
            .run_script(&format!("echo before; kill -{signal} $$"))
            .await?;
        expect_equal("status", ended.end.status, 128 + signal)?;
        expect_bytes("output", &ended.output, b"before\n")?;
        // The message of a shell about the signal does not belong to the program's stderr.
        expect_bytes("stderr", &ended.end.stderr, b"")?;
    }
    Ok(())
}

pub(super) async fn input_reaches_the_program(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    for bytes in [
        Vec::new(),
        b"one line\n".to_vec(),
        (0..=255)
            .cycle()
            .take(SMALL_INPUT_BYTES)
            .collect::<Vec<u8>>(),
    ] {
        let mut request = context.command(&["cat"]);
        request.input = Some(input(&bytes));
        let ended = context.finish(request).await?;
        expect_bytes("the input", &ended.output, &bytes)?;
    }
    let without = context.finish(context.command(&["cat"])).await?;
    expect_bytes("no input", &without.output, b"")
}

pub(super) async fn much_input_arrives_or_is_refused(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let bytes = random(1 << 20);
    let mut request = context.command(&["wc", "-c"]);
    request.input = Some(input(&bytes));
    match context.finish(request).await {
        Ok(ended) => {
            let text = String::from_utf8_lossy(&ended.output).trim().to_owned();
            expect_equal("bytes read", text.as_str(), "1048576")?;
        }
        Err(error) => expect_error("much input", Err::<(), _>(error), &[ErrorKind::TooLarge])?,
    }
    // A program that does not read its input may end at any time.
    let mut request = context.script("exit 3");
    request.input = Some(input(&bytes));
    match context.finish(request).await {
        Ok(ended) => expect_equal("status", ended.end.status, 3),
        Err(error) => expect_error("much input", Err::<(), _>(error), &[ErrorKind::TooLarge]),
    }
}

pub(super) async fn input_that_breaks_is_a_failure(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let broken = futures_util::stream::iter([
        Ok(Bytes::from_static(b"half")),
        Err(Error::new(ErrorKind::Unavailable, "the source broke")),
    ]);
    let mut request = context.script("cat >got; echo whole >result");
    request.input = Some(CommandInput {
        size: 8,
        body: Body::new(broken),
    });
    let failed = context.finish(request).await;
    expect_true(
        failed.is_err(),
        "half of an input was accepted as the whole input",
    )
}

pub(super) async fn variables_reach_the_program(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let mut request = context.script("printf '%s|' \"$FIRST\" \"$SECOND\" \"$THIRD\" \"$PATH\"");
    let second = "two words\n'quoted' \"$(id)\" \u{e4}\\0101\n".as_bytes();
    let path = context.run_script("printf %s \"$PATH\"").await?.output;
    request.environment = vec![
        ("FIRST".to_owned(), b"".to_vec()),
        ("SECOND".to_owned(), second.to_vec()),
        ("THIRD".to_owned(), b"\xff=\x01".to_vec()),
    ];
    let ended = context.finish(request).await?;
    let expected = [b"|".as_slice(), second, b"|\xff=\x01|", &path, b"|"].concat();
    expect_bytes("values", &ended.output, &expected)?;
    let own = context
        .run_script("env | sed -n 's/^\\(dray_[a-z]*\\)=.*/\\1/p'")
        .await?;
    expect_bytes("variables of the script", &own.output, b"")
}

pub(super) async fn arguments_reach_the_program_as_they_are(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let words: [&[u8]; 9] = [
        b"two words",
        b"line\nbreaks\n",
        "\u{e4}\u{1f600}".as_bytes(),
        b"",
        b"'$(touch pwned)`touch pwned`\"\\",
        b"-n",
        b"*",
        b"\xff\xfe\x01",
        b"a=b",
    ];
    let mut argv: Vec<&[u8]> = vec![b"printf", b"%s|"];
    argv.extend(words);
    let ended = context.finish(context.command(&argv)).await?;
    let mut expected = words.join(&b'|');
    expected.push(b'|');
    expect_bytes("words", &ended.output, &expected)?;
    let metadata = context
        .sandbox
        .stat(&context.path("pwned")?, dray_sandbox::Follow::No)
        .await;
    expect_error(
        "the file that a word would create",
        metadata,
        &[ErrorKind::NotFound],
    )
}

pub(super) async fn long_output_comes_whole_or_is_cut(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let ended = context
        .run_script("head -c 5000000 /dev/zero; echo; echo end")
        .await?;
    expect_equal("status", ended.end.status, 0)?;
    let expected = [vec![0; 5_000_000], b"\nend\n".to_vec()].concat();
    if !ended.end.output_truncated {
        return expect_bytes("output", &ended.output, &expected);
    }
    expect_true(
        !ended.output.is_empty() && expected.starts_with(&ended.output),
        "the output is not a prefix of what the program wrote",
    )
}

pub(super) async fn output_may_be_any_bytes(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let bytes: Vec<u8> = (0..=255).chain(*b"\n@@\n@@ end 0\r\n\n").collect();
    let path = context.put("bytes", &bytes).await?;
    let argv: [&[u8]; 2] = [b"cat", path.as_bytes()];
    let ended = context.finish(context.command(&argv)).await?;
    expect_bytes("output", &ended.output, &bytes)
}

pub(super) async fn standard_error_is_kept_apart(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let ended = context
        .run_script("echo out; printf 'err\\0or\\n\\n' >&2; echo out")
        .await?;
    expect_bytes("output", &ended.output, b"out\nout\n")?;
    expect_bytes("stderr", &ended.end.stderr, b"err\0or\n\n")?;
    expect_true(!ended.end.stderr_truncated, "a short text was cut")?;
    let mut request = context.script("head -c 300000 /dev/zero >&2; echo end");
    request.max_stderr_bytes = 1000;
    let ended = context.finish(request).await?;
    expect_true(
        ended.end.stderr_truncated && (1..=1000).contains(&ended.end.stderr.len()),
        format_args!("{} bytes of stderr", ended.end.stderr.len()),
    )?;
    expect_bytes("output", &ended.output, b"end\n")
}

pub(super) async fn a_program_runs_in_its_directory(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let ended = context.run_script("pwd -P").await?;
    let expected = [context.directory.as_bytes(), b"\n"].concat();
    expect_bytes("directory", &ended.output, &expected)?;
    let missing = CommandRequest {
        directory: context.path("missing")?,
        ..context.script("echo no")
    };
    let kinds = [ErrorKind::NotDirectory, ErrorKind::NotFound];
    expect_error("missing", context.finish(missing).await.map(drop), &kinds)?;
    let file = CommandRequest {
        directory: context.put("file", b"x").await?,
        ..context.script("echo no")
    };
    expect_error("a file", context.finish(file).await.map(drop), &kinds)?;
    context.needs(|traits| traits.links)?;
    context.sh("mkdir other; ln -s other link").await?;
    let swapped = CommandRequest {
        directory: context.path("link")?,
        ..context.script("echo no")
    };
    let kinds = [ErrorKind::ChangedDuringTransfer];
    expect_error("a link", context.finish(swapped).await.map(drop), &kinds)
}

pub(super) async fn an_unknown_program_is_refused(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    for program in [
        "no-such-program-here",
        "./missing",
        "/missing/program",
        "cd ",
    ] {
        let ended = context.finish(context.command(&[program])).await;
        expect_error(program, ended.map(drop), &[ErrorKind::NotFound])?;
    }
    let plain = context.put("plain", b"echo no\n").await?;
    let ended = context.finish(context.command(&[plain.as_bytes()])).await;
    expect_error(
        "a plain file",
        ended.map(drop),
        &[ErrorKind::PermissionDenied],
    )?;
    // A builtin of the shell is not a program, and neither is a function of the script that runs it.
    for program in ["eval", "dray_kill"] {
        let ended = context.finish(context.command(&[program, "echo no"])).await;
        expect_error(program, ended.map(drop), &[ErrorKind::NotFound])?;
    }
    Ok(())
}

pub(super) async fn an_ambiguous_request_is_refused(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let argvs: [&[&[u8]]; 5] = [&[], &[b""], &[b"-i"], &[b"A=b"], &[b"echo", b"a\0b"]];
    for argv in argvs {
        let ended = context.finish(context.command(argv)).await;
        expect_error("an argument", ended.map(drop), &[ErrorKind::InvalidName])?;
    }
    for name in ["", "1A", "A-B", "A=B", "A\nB", "A B"] {
        let mut request = context.script("echo no");
        request.environment = vec![(name.to_owned(), b"x".to_vec())];
        let ended = context.finish(request).await;
        expect_error("a variable", ended.map(drop), &[ErrorKind::InvalidName])?;
    }
    Ok(())
}

pub(super) async fn a_dropped_program_ends_with_its_children(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let request = context.script(&format!("{CHILDREN_SCRIPT}; echo $$ >>pids; echo; wait"));
    // The command runs in a task, because a channel without streams responds only when the program has ended.
    let mut running = JoinSet::new();
    running.spawn(finish(Arc::clone(&context.sandbox), request));
    let pids = context.path("pids")?;
    wait_for(context, &pids).await?;
    running.abort_all();
    context.processes_end().await?;
    let after = context.run_script("echo usable").await?;
    expect_bytes("afterwards", &after.output, b"usable\n")
}

pub(super) async fn children_end_with_their_program(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let ended = context
        .run_script(&format!("{CHILDREN_SCRIPT}; echo early; exit 4"))
        .await?;
    expect_equal("status", ended.end.status, 4)?;
    expect_bytes("output", &ended.output, b"early\n")?;
    context.processes_end().await
}

pub(super) async fn output_of_a_child_does_not_delay_the_end_of_its_program(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    // The child writes without end to both streams, which are still open when the program has ended.
    let ended = context
        .run_script(
            "echo early; (while :; do echo late; echo late >&2; sleep 0.02; done) & echo $! >pids",
        )
        .await?;
    expect_equal("status", ended.end.status, 0)?;
    expect_true(
        ended.output.starts_with(b"early\n") || ended.output.starts_with(b"late\n"),
        "the output begins with other bytes",
    )?;
    context.processes_end().await
}

pub(super) async fn a_program_ends_with_its_lifetime(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let mut request = context.script(&format!("echo begun; {CHILDREN_SCRIPT}; sleep 300"));
    request.lifetime_seconds = 1;
    let ended = context.finish(request).await?;
    expect_equal("status", ended.end.status, 137)?;
    expect_bytes("output", &ended.output, b"begun\n")?;
    context.processes_end().await
}

pub(super) async fn a_stopped_program_reports_what_it_wrote(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let script = format!("echo out; echo wrong >&2; {CHILDREN_SCRIPT}; sleep 300");
    let request = context.script(&script);
    let stop = request.stop.clone();
    let mut running = JoinSet::new();
    running.spawn(finish(Arc::clone(&context.sandbox), request));
    wait_for(context, &context.path("pids")?).await?;
    stop.cancel();
    let Some(Ok(ended)) = running.join_next().await else {
        return Err(CaseEnd::Fail("the program was lost".to_owned()));
    };
    let ended = ended?;
    expect_bytes("output", &ended.output, b"out\n")?;
    expect_bytes("stderr", &ended.end.stderr, b"wrong\n")?;
    context.processes_end().await
}

pub(super) async fn eight_programs_run_concurrently(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    runs_commands(context)?;
    let all = (0..8_u8).map(|number| async move {
        let ended = context
            .run_script(&format!("echo {number}; echo {number} >&2; exit {number}"))
            .await?;
        let expected = format!("{number}\n").into_bytes();
        expect_equal("status", ended.end.status, number)?;
        expect_bytes("output", &ended.output, &expected)?;
        expect_bytes("stderr", &ended.end.stderr, &expected)
    });
    try_join_all(all).await.map(drop)
}

/// Checks repeatedly until a path exists.
async fn wait_for(context: &CaseContext<'_>, path: &SandboxPath) -> Result<(), CaseEnd> {
    loop {
        match context.sandbox.stat(path, dray_sandbox::Follow::No).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => tokio::task::yield_now().await,
            Err(error) => return Err(error.into()),
        }
    }
}
