//! `dray chat`.

use std::path::PathBuf;

use clap::Args;
use dray_types::Secret;

/// Shown at the end of `dray chat --help`.
const AFTER_HELP: &str = "\
Examples:
  dray chat 'What is in this workbook?' --url http://127.0.0.1:5000 --attach ports.xlsx
  dray chat --url http://127.0.0.1:5000 --model harbour --conversation harbour.json --downloads out
  dray chat --manifests ./agents --model-url http://127.0.0.1:11434/v1     all services in this process
  dray chat --model-url http://127.0.0.1:11434/v1 --model llama3.2         a model without a manifest
  dray chat --deployment quick_apps2 --url https://core.dial.example --api-key-file key.txt
  printf 'hello\\n/save hello.json\\n' | dray chat --url http://127.0.0.1:5000

At the prompt:
  /attach PATH   sends a file with the next message
  /files         lists the files to be sent and those received
  /retry         sends the last message again
  /save [FILE]   writes the conversation
  /help, /quit   (write a message that begins with a slash with two slashes)

Ctrl-C stops the response and keeps the message for /retry; a second Ctrl-C exits. The response goes to standard output,
everything else to standard error. With --json there is one object per line: content, stage, attachment, state, end and
error; the member `event` names the kind.

Exit codes: 0 answered, 1 refused, failed or interrupted, 2 the command line is wrong, 69 --url does not respond,
78 the configuration is wrong.";

/// `dray chat`
#[derive(Debug, Default, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ChatArgs {
    /// One message; `-` reads it from standard input, `/retry` sends the last one again. Without it, every line of
    /// standard input is a message.
    #[arg(value_name = "MESSAGE")]
    pub(crate) message: Option<String>,
    /// A running orchestrator, DIAL Core, or any endpoint of chat completions. Without it all services run in this
    /// process.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The agent: name of a manifest of the orchestrator. Not needed where there is only one.
    #[arg(long, value_name = "NAME")]
    pub(crate) manifest: Option<String>,
    /// With --url, the model that requests name. Without --url, the model for manifests without a model.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// Send requests to this deployment as DIAL clients do, with the key as `Api-Key`.
    #[arg(long, value_name = "ID", requires = "url", conflicts_with_all = ["manifest", "model"])]
    pub(crate) deployment: Option<String>,
    /// Key for --url. Other users of this machine may see it: --api-key-file keeps it to yourself. Without both, the
    /// variable `DIAL_API_KEY` is used where --url has the origin of `DIAL_URL`.
    #[arg(long, visible_alias = "key", value_name = "KEY", requires = "url", conflicts_with = "api_key_file", value_parser = parse_secret)]
    pub(crate) api_key: Option<Secret>,
    /// File that holds the key for --url.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// PEM file with more authorities that sign the certificate of --url.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Directory of manifests, `NAME.json` each, for the services in this process.
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) manifests: Option<PathBuf>,
    /// Endpoint of chat completions that the services in this process use. Its key is the variable
    /// `DRAY_ORCHESTRATOR__MODEL_KEY`.
    #[arg(long, value_name = "URL", conflicts_with = "url")]
    pub(crate) model_url: Option<String>,
    /// A file for the first message, at most 10 MiB. Can be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Keep the conversation in this file and continue it. Only you can read the file.
    #[arg(long, value_name = "FILE")]
    pub(crate) conversation: Option<PathBuf>,
    /// Directory for received files. No file is overwritten. Without it, files are only named.
    #[arg(long, value_name = "DIR")]
    pub(crate) downloads: Option<PathBuf>,
    /// Do not show stages.
    #[arg(long)]
    pub(crate) no_stages: bool,
    /// Show what stages contain.
    #[arg(short, long, conflicts_with = "no_stages")]
    pub(crate) verbose: bool,
    /// Seconds of silence after which an answer counts as lost.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "clap requires this type of a parser"
)]
fn parse_secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    // The parsed arguments derive `Debug`; this type does not show its content there.
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct ChatLine {
        #[command(flatten)]
        chat: ChatArgs,
    }

    fn read(words: &[&str]) -> Result<ChatArgs, clap::Error> {
        let line = ChatLine::try_parse_from(["chat"].iter().chain(words));
        line.map(|line| line.chat)
    }

    #[test]
    fn a_key_is_not_shown_by_accident() {
        let chat = read(&["hi", "--url", "http://x", "--key", "k-123"]).unwrap();
        assert_eq!(chat.api_key.as_ref().unwrap().expose(), "k-123");
        assert!(!format!("{chat:?}").contains("k-123"));
    }

    #[test]
    fn refuses_options_that_do_not_fit_together() {
        for words in [
            &["--deployment", "a"][..],
            &["--api-key", "k"],
            &["--url", "http://x", "--manifests", "d"],
            &["--url", "http://x", "--model-url", "http://y"],
            &["--url", "http://x", "--deployment", "a", "--model", "b"],
            &["--url", "http://x", "--key", "k", "--api-key-file", "f"],
            &["--timeout", "0"],
        ] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
