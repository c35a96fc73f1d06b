//! The port and credentials that the endpoint of a directory keeps across restarts, so that links from before a restart
//! still work. Only the owner of the directory can read it.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use dray_types::Secret;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::layout::DirectoryLayout;
use super::private;
use crate::options::StoreOptions;

/// Port and credentials of the endpoint of a directory.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct EndpointIdentity {
    /// Port on loopback; 0 selects a free port.
    pub(super) port: u16,
    access_key: String,
    secret_key: String,
    /// Whether the process that serves the directory runs until it is stopped, as `dray up` does.
    #[serde(default)]
    pub(super) long_lived: bool,
}

impl EndpointIdentity {
    /// Reads the directory's identity, or creates a new one if none can be read.
    pub(super) fn of(root: &Path) -> io::Result<Self> {
        match Self::read(root) {
            Ok(identity) => Ok(identity),
            // The file is missing, or a crash truncated it. Links that were made with it are invalid, but the store
            // has to start.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
                Ok(Self::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the identity that an endpoint wrote.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let text = fs::read(DirectoryLayout::new(root).identity())?;
        serde_json::from_slice(&text).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    fn new() -> Self {
        let random = || Uuid::new_v4().simple().to_string();
        Self {
            port: 0,
            access_key: random(),
            // Two version 4 UUIDs have 244 random bits.
            secret_key: format!("{}{}", random(), random()),
            long_lived: false,
        }
    }

    /// Writes the identity to a new file that then replaces the old one.
    pub(super) fn write(&self, root: &Path) -> io::Result<()> {
        let target = DirectoryLayout::new(root).identity();
        let temporary = target.with_extension("new");
        // A crash may have left the file. `create_new` below does not follow a link in its place.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private::private_options()
            .write(true)
            .create_new(true)
            .open(&temporary)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        // One rename, so that a reader never gets a partial file.
        fs::rename(temporary, target)
    }

    /// The options that a client needs.
    pub(super) fn options(&self) -> StoreOptions {
        StoreOptions {
            endpoint: format!("http://127.0.0.1:{}", self.port),
            access_key: Secret::new(self.access_key.clone()),
            secret_key: Secret::new(self.secret_key.clone()),
            ..StoreOptions::default()
        }
    }
}
