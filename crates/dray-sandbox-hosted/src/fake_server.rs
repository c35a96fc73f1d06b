//! The part that fake servers of providers share: injected faults, and files of this host as files of a sandbox.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use dray_http::fake_server::{ConnectionClosed, ReceivedRequest, Reply, bytes_reply, cut_reply};

use crate::OCTET_STREAM;

/// A fault to inject into a fake server, once.
#[derive(Clone, Debug, PartialEq)]
pub enum ProviderFault {
    /// The next request whose path begins with this prefix is refused: prefix, status, message.
    Refuse(&'static str, u16, &'static str),
    /// The next request for files is refused with status 429 and this delay.
    RateLimit(Duration),
    /// The connection of the next download breaks after this many bytes.
    CutDownload(usize),
    /// The next download responds with these bytes and a regular end.
    Instead(&'static [u8]),
    /// The next download ignores the requested range, where the provider supports ranges.
    IgnoreRange,
    /// The sandbox ends after this many bytes of the next download.
    DieDuringDownload(usize),
    /// The sandbox ends after the first bytes of the next upload.
    DieDuringUpload,
    /// The next upload writes only this many bytes and reports success.
    KeepOnly(usize),
    /// The next upload is written, but the connection is closed without a response.
    LoseResponse,
    /// The response about the next command breaks after this many bytes.
    CutOutput(usize),
}

/// Injected faults that have not happened yet, oldest first.
#[derive(Debug, Default)]
pub struct FaultQueue(Vec<ProviderFault>);

impl FaultQueue {
    /// Adds a fault.
    pub fn push(&mut self, fault: ProviderFault) {
        self.0.push(fault);
    }

    /// Removes and returns the oldest fault that matches.
    pub fn take(&mut self, is_wanted: impl Fn(&ProviderFault) -> bool) -> Option<ProviderFault> {
        let at = self.0.iter().position(is_wanted)?;
        Some(self.0.remove(at))
    }

    /// Removes and returns the oldest fault of an upload.
    pub fn take_upload_fault(&mut self) -> Option<ProviderFault> {
        self.take(|fault| {
            matches!(
                fault,
                ProviderFault::DieDuringUpload
                    | ProviderFault::KeepOnly(_)
                    | ProviderFault::LoseResponse
            )
        })
    }

    /// The response to a download of these bytes by the oldest fault of a download; `None` without one.
    /// `end_sandbox` is called when the sandbox ends during the download.
    pub fn faulty_download(&mut self, whole: &Bytes, end_sandbox: impl FnOnce()) -> Option<Reply> {
        let fault = self.take(|fault| {
            matches!(
                fault,
                ProviderFault::CutDownload(_)
                    | ProviderFault::Instead(_)
                    | ProviderFault::DieDuringDownload(_)
            )
        })?;
        match fault {
            ProviderFault::CutDownload(kept_bytes) => {
                Some(cut_reply(OCTET_STREAM, whole, kept_bytes))
            }
            ProviderFault::DieDuringDownload(kept_bytes) => {
                end_sandbox();
                Some(cut_reply(OCTET_STREAM, whole, kept_bytes))
            }
            ProviderFault::Instead(bytes) => {
                Some(bytes_reply(200, OCTET_STREAM, Bytes::from_static(bytes)))
            }
            _ => None,
        }
    }

    /// The number of bytes after which the next command's response is cut; `None` if it is not cut.
    pub fn take_output_cut(&mut self) -> Option<usize> {
        match self.take(|fault| matches!(fault, ProviderFault::CutOutput(_)))? {
            ProviderFault::CutOutput(kept_bytes) => Some(kept_bytes),
            _ => None,
        }
    }

    /// All faults that were not injected yet.
    pub fn pending(&self) -> Vec<ProviderFault> {
        self.0.clone()
    }
}

/// Creates a file and its missing parents, as the file calls of providers do.
///
/// # Errors
///
/// The errors of the file system.
pub fn create_file(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create(path)
}

/// Writes the body of an upload with the fault that [`FaultQueue::take_upload_fault`] returned. `end_sandbox` is
/// called when the sandbox ends during the upload.
///
/// # Errors
///
/// [`ConnectionClosed`] when the client closed the connection, or when the fault closes it.
pub async fn write_upload(
    request: ReceivedRequest,
    mut file: File,
    fault: Option<ProviderFault>,
    end_sandbox: impl FnOnce(),
) -> Result<(), ConnectionClosed> {
    let mut remaining_bytes = match fault {
        Some(ProviderFault::KeepOnly(kept_bytes)) => kept_bytes,
        _ => usize::MAX,
    };
    let mut reader = request.into_reader();
    while let Some(chunk) = reader.next_chunk().await? {
        let kept_bytes = chunk
            .get(..remaining_bytes.min(chunk.len()))
            .unwrap_or_default();
        remaining_bytes -= kept_bytes.len();
        file.write_all(kept_bytes).map_err(|_| ConnectionClosed)?;
        if fault == Some(ProviderFault::DieDuringUpload) {
            end_sandbox();
            return Err(ConnectionClosed);
        }
    }
    if fault == Some(ProviderFault::LoseResponse) {
        return Err(ConnectionClosed);
    }
    Ok(())
}
