//! A fake of `MinIO`'s two programs, for the images of the `docker compose up` test. `minio` serves the embedded S3
//! endpoint, which enforces the policies of its access keys; keys can be added while it runs. `mc` administers it.
//! Which of the two runs follows from the name of the program.
//!
//! It supports what `docker-compose.yml` and `deploy/minio/setup.sh` use, and refuses everything else. For
//! administration, the two programs use a private protocol on a separate port.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "both programs write to their standard streams"
)]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

mod client;
mod server;
mod state;

/// Port of the server for requests of `mc`: each connection carries one line of JSON in each direction.
const ADMIN_PORT: u16 = 9001;

/// Any failure; its text is printed.
type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let program = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let name = Path::new(&program)
        .file_name()
        .and_then(|name| name.to_str());
    let result = match name {
        Some("minio") => server::run(&arguments),
        Some("mc") => client::run(&arguments),
        _ => Err(format!("{program} is neither `minio` nor `mc`").into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A variable of the environment that must be set.
fn variable(name: &str) -> Result<String, Failure> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the programs that this fake replaces read it too"
    )]
    std::env::var(name).map_err(|error| format!("{name}: {error}").into())
}
