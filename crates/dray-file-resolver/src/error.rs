//! Errors that end a tool call, as opposed to an argument that the model can correct.

use dray_bus::CallError;
use dray_proto::convert::InvalidMessage;
use dray_store::{PresignError, PutError, ReadError};
use dray_types::{ByteSize, Fault, FaultCode};

use crate::shown::DisplayName;
use crate::{arguments, dial};

/// The reason for which a call ends with a fault.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The request breaks its contract.
    #[error("the request is not valid")]
    Request(#[source] InvalidMessage),
    /// The arguments cannot be read as JSON.
    #[error("the arguments cannot be read")]
    Arguments(#[source] arguments::ArgumentsError),
    /// The arguments are longer than the operator allows.
    #[error("arguments of {size} bytes are over the limit of {limit}")]
    ArgumentsTooLarge {
        /// Size of the arguments in bytes.
        size: u64,
        /// Most bytes allowed.
        limit: ByteSize,
    },
    /// The arguments have more references than the operator allows.
    #[error("{count} references are over the limit of {limit}")]
    TooManyReferences {
        /// Number of references in the arguments.
        count: usize,
        /// Most references that are allowed.
        limit: usize,
    },
    /// The list of resolved files does not fit a message.
    #[error("the reply does not fit a message even without its arguments")]
    AnswerTooLarge,
    /// The claim for the arguments cannot be read.
    #[error("the stored arguments cannot be read")]
    StoredArguments(#[source] ReadError),
    /// A file of DIAL could not be loaded, and another file would not help.
    #[error("{file} could not be loaded")]
    Dial {
        /// Name of the file, as it may be shown.
        file: DisplayName,
        /// Error of the DIAL client.
        #[source]
        source: dial::DialError,
    },
    /// No DIAL origin is configured.
    #[error("no DIAL origin is configured")]
    NoDial,
    /// The egress-fetcher could not be reached, or failed itself.
    #[error("{url} could not be fetched")]
    Egress {
        /// The URL, as it may be shown.
        url: DisplayName,
        /// Error of the call.
        #[source]
        source: Box<CallError>,
    },
    /// The egress-fetcher broke its contract.
    #[error("the egress-fetcher's reply cannot be used: {0}")]
    EgressAnswer(&'static str),
    /// A loaded file cannot be read back.
    #[error("a loaded file cannot be read back")]
    Stored(#[source] ReadError),
    /// The resolved arguments, or a loaded file, cannot be stored.
    #[error("the store did not accept the bytes")]
    Store(#[source] PutError),
    /// No link could be made for the resolved arguments.
    #[error("no link could be made")]
    Link(#[source] PresignError),
    /// The time for the tool call is over.
    #[error("the tool call ran out of time")]
    TimedOut,
}

impl From<ResolveError> for Fault {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Request(invalid) => invalid.into(),
            ResolveError::Arguments(error) => (&error).into(),
            ResolveError::ArgumentsTooLarge { size, limit } => too_large(
                "arguments_too_large",
                format!(
                    "The arguments have {size} bytes, more than the limit of {} bytes.",
                    limit.as_u64()
                ),
                "Pass large content as a file reference.",
            ),
            ResolveError::TooManyReferences { count, limit } => too_large(
                "too_many_references",
                format!(
                    "The arguments hold {count} file references, more than the limit of {limit}."
                ),
                "Split the tool call.",
            ),
            ResolveError::AnswerTooLarge => too_large(
                "answer_too_large",
                "The list of resolved files is too long.".to_owned(),
                "Split the tool call, or use shorter argument names.",
            ),
            ResolveError::StoredArguments(error) | ResolveError::Stored(error) => error.into(),
            ResolveError::Dial { file, source } => source.fault(&file),
            ResolveError::NoDial => Self::new(
                FaultCode::Unsupported,
                "Files of DIAL cannot be loaded here: no DIAL is configured.",
            )
            .detail("no_dial")
            .advice("Tell the operator to set DIAL_URL."),
            // The error of the call already has a message for the agent.
            ResolveError::Egress { url: _, source } => (*source).into(),
            ResolveError::EgressAnswer(_) => Self::internal().detail("egress_answer"),
            ResolveError::Store(error) => error.into(),
            ResolveError::Link(error) => error.into(),
            ResolveError::TimedOut => Self::new(
                FaultCode::Timeout,
                "The files of the tool call were not loaded in time.",
            )
            .detail("tool_timeout")
            .advice("Try again, with fewer or smaller files."),
        }
    }
}

fn too_large(detail: &str, message: String, advice: &str) -> Fault {
    Fault::new(FaultCode::TooLarge, message)
        .detail(detail)
        .advice(advice)
}
