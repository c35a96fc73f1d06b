//! Failures that tests can plan.

/// A planned failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// A response with this status code and a `StatusBody` with this message, and the seconds of its `Retry-After`.
    Refuse(u16, String, Option<u64>),
    /// A response with this code that is an HTML page, as a proxy in between sends it.
    Page(u16),
    /// The connection breaks without a response.
    Break,
    /// The stream opens in a protocol that was not offered.
    Foreign,
    /// The stream breaks after this many bytes of output; the command continues.
    Cut(usize),
    /// Only this many bytes of output arrive, and then the status of success (kubernetes 60140).
    Short(usize),
    /// The command is not run; the stream carries this message instead.
    NotRun(String),
    /// The command is not run; the stream carries this exit status.
    Exit(i32),
    /// The stream opens and no byte arrives, not even answers to pings.
    Silence,
    /// The stream stays open after the status.
    Linger,
    /// The status arrives twice.
    Twice,
    /// The status arrives before the output.
    Early,
    /// A text message instead of a binary one.
    Text,
    /// A message of this length in bytes.
    Huge(usize),
    /// The stream is closed in order, but without a status.
    NoStatus,
}

/// A planned fault or change, with the requests that it waits for.
#[derive(Debug)]
pub(super) struct PlannedStep<T> {
    pub(super) part: String,
    pub(super) times: usize,
    pub(super) what: T,
}

/// Takes the failure of a request, if one was planned.
pub(super) fn take(
    planned: &mut [PlannedStep<InjectedFault>],
    request: &str,
) -> Option<InjectedFault> {
    let fitting =
        |step: &&mut PlannedStep<InjectedFault>| step.times > 0 && request.contains(&step.part);
    let one = planned.iter_mut().find(fitting)?;
    one.times -= 1;
    Some(one.what.clone())
}
