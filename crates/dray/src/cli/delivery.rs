//! The arguments of `dray send`, `dray deliver`, `dray receipts` and `dray resend`.

use std::path::PathBuf;

use clap::Args;

/// `dray send`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dray send /workspace/report.pdf --from docker:web --to telegram:12345
  dray send /srv/box/a.csv /srv/box/b.csv --from local:/srv/box --message 'The figures'
  dray send report.pdf --session chat-7 --nats nats://127.0.0.1:4222

Without --to and --session the files are copied into the current directory. With --delivery-id the same command
again continues the same delivery instead of sending twice.")]
pub(crate) struct SendArgs {
    /// Files or directories in the sandbox: absolute, `~/…`, or relative to its working directory. A directory is
    /// sent as a ZIP.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Sandbox that holds them, for example `docker:web`, `ssh:me@host`, `local:/srv/box`.
    #[arg(long, value_name = "SANDBOX")]
    pub(crate) from: Option<String>,
    #[command(flatten)]
    pub(crate) options: DeliveryOptions,
}

/// `dray deliver`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  dray deliver report.pdf --to slack:C0123 --message 'As promised'")]
pub(crate) struct DeliverArgs {
    /// Files on this machine.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) options: DeliveryOptions,
}

/// Target and options of a delivery.
#[derive(Debug, Args)]
pub(crate) struct DeliveryOptions {
    /// Where to: `PLATFORM[/ACCOUNT]:CHAT[#THREAD]`, for example `telegram:12345`; `cli:` is the current directory.
    #[arg(long, value_name = "TARGET")]
    pub(crate) to: Option<String>,
    /// Session whose sandbox and chat are used where no option names them.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Text that is sent with the files.
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub(crate) message: String,
    #[command(flatten)]
    pub(crate) appearance: AppearanceArgs,
    /// Show account, policy, limits and routes, and send nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Id of the delivery. The same id again continues the same delivery.
    #[arg(long, value_name = "ID")]
    pub(crate) delivery_id: Option<String>,
    /// Seconds to wait for the end.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = super::seconds_parser())]
    pub(crate) timeout: u64,
}

/// Options for the appearance of files on the platform.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct AppearanceArgs {
    /// Send everything as a plain document: exact bytes, no photo or video player.
    #[arg(long)]
    pub(crate) as_document: bool,
    /// Send audio as a voice message.
    #[arg(long)]
    pub(crate) as_voice: bool,
    /// Hide pictures until they are clicked, where the platform can.
    #[arg(long)]
    pub(crate) spoiler: bool,
    /// Send a link to a preview in place of each file of the session's sandbox, which stays there.
    /// `platform-delivery.preview_links` must allow it. The receipt says whether the link was opened.
    #[arg(long)]
    pub(crate) as_preview: bool,
}

/// `dray receipts`
#[derive(Debug, Args)]
pub(crate) struct ReceiptsArgs {
    /// Only the receipt of this delivery.
    #[arg(value_name = "DELIVERY", conflicts_with_all = ["session", "open", "limit"])]
    pub(crate) delivery: Option<String>,
    /// Only receipts of this session.
    #[arg(long, value_name = "ID", default_value = "")]
    pub(crate) session: String,
    /// Only deliveries that run, failed, were refused or have an unknown outcome.
    #[arg(long)]
    pub(crate) open: bool,
    /// Also print the address of each delivery in the console at this URL, for example `http://127.0.0.1:7300`.
    #[arg(long, value_name = "URL")]
    pub(crate) console: Option<String>,
    /// Most deliveries to show.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

/// `dray resend`
#[derive(Debug, Args)]
pub(crate) struct ResendArgs {
    /// Id of the earlier delivery, from `dray receipts`.
    pub(crate) delivery: String,
    /// Also send the files that were delivered already.
    #[arg(long)]
    pub(crate) all: bool,
    /// Seconds to wait for the end.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = super::seconds_parser())]
    pub(crate) timeout: u64,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct ReceiptsLine {
        #[command(flatten)]
        receipts: ReceiptsArgs,
    }

    #[test]
    fn a_named_delivery_is_not_filtered_without_a_word() {
        let read = |words: &[&str]| {
            let line = ReceiptsLine::try_parse_from(["receipts"].iter().chain(words));
            line.map(|line| line.receipts)
        };
        let named = read(&["d1", "--console", "http://127.0.0.1:7300"]).unwrap();
        assert_eq!(named.delivery.as_deref(), Some("d1"));
        let listed = read(&["--session", "s", "--open", "--limit", "3"]).unwrap();
        assert_eq!((listed.delivery, listed.limit), (None, 3));
        for words in [
            &["d1", "--session", "s"][..],
            &["d1", "--open"],
            &["d1", "--limit", "3"],
        ] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
