//! Faults to inject.

/// One fault. Those of a send happen to the next `send…` method except `sendChatAction`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// No fault: the send succeeds. The faults after it wait for later sends.
    Nothing,
    /// A send is refused: too many requests, again after these seconds.
    RateLimit(u64),
    /// A send is refused with this code and description (without `Bad Request: ` for others than 400).
    Refuse(u16, String),
    /// A send is read to its end and answered with this status and a page of a proxy. Nothing appears.
    FailAfterBody(u16),
    /// A send is carried out, and the connection closed.
    LoseAnswer,
    /// A send is carried out and never answered.
    NeverAnswer,
    /// The connection is closed after the first bytes of the body of a send.
    CloseDuringBody,
    /// The first bytes of the body of a send are read, and no more; the connection stays.
    StallDuringBody,
    /// A send is carried out; the message in the response has no file.
    ForgetFiles,
    /// A send is carried out; the response is cut in the middle.
    CutAnswer,
    /// A send is carried out; the response reports this size of the file, in bytes.
    MisstateSize(u64),
    /// An album breaks: so many items appear, then the next fails with this description.
    BreakAlbum(usize, String),
    /// An album appears with this many items and is answered with success.
    ShortAlbum(usize),
    /// The connection is closed in the middle of the next download.
    CutDownload,
    /// The next download is redirected there.
    RedirectDownload(String),
    /// The next `getUpdates` is answered with this status and description.
    RefuseUpdates(u16, String),
    /// The next response to `getFile` contains this path.
    TellPath(String),
}

/// What a fault happens to.
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
            Self::TellPath(_) => FaultPoint::File,
            _ => FaultPoint::Send,
        }
    }
}
