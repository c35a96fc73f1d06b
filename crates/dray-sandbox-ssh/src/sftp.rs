//! SFTP version 3 (draft-ietf-secsh-filexfer-02) with the extensions of OpenSSH.
//!
//! This project has its own client because names are arbitrary bytes, and the available clients carry paths as UTF-8. A
//! channel serves one request or one transfer at a time, so ending a transfer means closing its channel.

mod attributes;
mod change;
mod channel;
mod diagnose;
mod files;
mod pool;
mod read;
mod reply;
mod resolve;
mod wire;
mod write;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use change::{make_directory, remove, rename};
pub(crate) use diagnose::free_bytes;
pub(crate) use files::{list, stat};
pub(crate) use pool::{ChannelLease, Pool};
pub(crate) use read::{digest, download, release};
pub(crate) use resolve::real_path;
pub(crate) use write::{UploadTarget, upload};
