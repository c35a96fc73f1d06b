//! Faults to inject.

/// A fault. A fault of a send applies to the next `send…` method except `sendChatAction`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// No fault: the send succeeds. Later sends get the faults after this one.
    Nothing,
    /// A send is refused because of too many requests, with this delay in seconds.
    RateLimit(u64),
    /// A send is refused with this code and description (without `Bad Request: ` for others than 400).
    Refuse(u16, String),
    /// After its whole body, a send gets this status and the error page of a proxy. No message appears.
    FailAfterBody(u16),
    /// A send succeeds, but the connection is closed instead of a response.
    LoseResponse,
    /// A send succeeds, but never gets a response.
    NeverRespond,
    /// The connection is closed after the first bytes of the body of a send.
    CloseDuringBody,
    /// Only the first bytes of the body of a send are read; the connection stays open.
    StallDuringBody,
    /// A send succeeds, but the message in the response has no file.
    ForgetFiles,
    /// A send succeeds, but the response is cut off in the middle.
    TruncateResponse,
    /// A send succeeds, but the response reports this size of the file, in bytes.
    MisstateSize(u64),
    /// This many items of an album appear, and the next one fails with this description.
    BreakAlbum(usize, String),
    /// Only this many items of an album appear, but the response is a success.
    ShortAlbum(usize),
    /// The connection is closed in the middle of the next download.
    CutDownload,
    /// The next download is redirected to this URL.
    RedirectDownload(String),
    /// The next `getUpdates` gets this status and description.
    RefuseUpdates(u16, String),
    /// The next response to `getFile` contains this path.
    ReturnPath(String),
}

/// The kind of request that a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultPoint {
    Send,
    Download,
    Updates,
    File,
}

impl InjectedFault {
    pub(super) const fn point(&self) -> FaultPoint {
        match self {
            Self::CutDownload | Self::RedirectDownload(_) => FaultPoint::Download,
            Self::RefuseUpdates(..) => FaultPoint::Updates,
            Self::ReturnPath(_) => FaultPoint::File,
            _ => FaultPoint::Send,
        }
    }
}
