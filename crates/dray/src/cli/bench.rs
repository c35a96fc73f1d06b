//! Options of `dray bench`.

use std::path::PathBuf;

use clap::Args;
use dray_types::ByteSize;

use super::positive_size;

/// `dray bench`
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Copy into and out of this sandbox too, for example `docker:web` or `ssh:me@host`. The files are put into its
    /// working directory and removed at the end. Can be given several times.
    #[arg(long = "sandbox", value_name = "KIND:NAME")]
    pub(crate) sandboxes: Vec<String>,
    /// Fetch this URL too, beside `curl`. Can be given several times.
    #[arg(long = "url", value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Read this document too, beside `markitdown`. Can be given several times.
    #[arg(long = "document", value_name = "FILE")]
    pub(crate) documents: Vec<PathBuf>,
    /// Size of the copied files, for example `100MiB`. Can be given several times.
    #[arg(long = "size", value_name = "N", value_parser = positive_size, default_values = ["1KiB", "25MiB"])]
    pub(crate) sizes: Vec<ByteSize>,
    /// Measured runs of each row; one more before them is not counted.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Directory for plots, one SVG file for each group of rows; created when it is missing.
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
}
