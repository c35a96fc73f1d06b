//! What the endpoint of a folder keeps from one start to the next: its port and its credentials, so that links which
//! were handed out before a restart open afterwards. Readable by the owner of the folder only.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use dray_types::Secret;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::layout::DirectoryLayout;
use super::private;
use crate::options::StoreOptions;

/// Port and credentials of a folder's endpoint.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct EndpointIdentity {
    /// Port on loopback; 0 for any.
    pub(super) port: u16,
    access_key: String,
    secret_key: String,
}

impl EndpointIdentity {
    /// The folder's identity, or a new one when it has none that can be read.
    pub(super) fn of(root: &Path) -> io::Result<Self> {
        match Self::read(root) {
            Ok(found) => Ok(found),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
                Ok(Self::new())
            }
            Err(error) => Err(error),
        }
    }

    /// The identity that an endpoint wrote.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let text = fs::read(DirectoryLayout::new(root).identity())?;
        serde_json::from_slice(&text).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    fn new() -> Self {
        let random = || Uuid::new_v4().simple().to_string();
        Self {
            port: 0,
            access_key: random(),
            secret_key: format!("{}{}", random(), random()),
        }
    }

    /// Keeps the identity: a new file that takes the place of the old one.
    pub(super) fn write(&self, root: &Path) -> io::Result<()> {
        let target = DirectoryLayout::new(root).identity();
        let temporary = target.with_extension("new");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private::private_options()
            .write(true)
            .create_new(true)
            .open(&temporary)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(temporary, target)
    }

    /// What a client needs.
    pub(super) fn options(&self) -> StoreOptions {
        StoreOptions {
            endpoint: format!("http://127.0.0.1:{}", self.port),
            access_key: Secret::new(self.access_key.clone()),
            secret_key: Secret::new(self.secret_key.clone()),
            ..StoreOptions::default()
        }
    }
}
