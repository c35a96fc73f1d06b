//! What can go wrong on purpose.

/// A failure that a test asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An answer with this code and this message in a `Status`, and after how many seconds to come back.
    Refuse(u16, String, Option<u64>),
    /// An answer with this code that is a page of something in between.
    Page(u16),
    /// The connection breaks without an answer.
    Break,
    /// The stream opens in a protocol that was not offered.
    Foreign,
    /// The stream breaks after so many bytes of output; the command goes on.
    Cut(usize),
    /// Only so many bytes of output come, and then the status of success (kubernetes 60140).
    Short(usize),
    /// The command is not run; the stream carries this message instead.
    NotRun(String),
    /// The command is not run; the stream carries this exit status.
    Exit(i32),
    /// The stream opens and nothing comes, not even answers to pings.
    Silence,
    /// The stream stays open after the status.
    Linger,
    /// The status comes twice.
    Twice,
    /// The status comes before the output.
    Early,
    /// Text instead of bytes.
    Text,
    /// A message of this length.
    Huge(usize),
    /// The stream is closed in order, but without a status.
    NoStatus,
}

/// What waits for its requests.
#[derive(Debug)]
pub(super) struct Planned<T> {
    pub(super) part: String,
    pub(super) times: usize,
    pub(super) what: T,
}

/// The failure of a request, when one was planned.
pub(super) fn take(planned: &mut [Planned<Fault>], request: &str) -> Option<Fault> {
    let fitting = |one: &&mut Planned<Fault>| one.times > 0 && request.contains(&one.part);
    let one = planned.iter_mut().find(fitting)?;
    one.times -= 1;
    Some(one.what.clone())
}
