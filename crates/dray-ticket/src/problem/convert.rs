//! Failures of records and of the store as problems, and problems as faults of calls.

use dray_store::{PutError, ReadError};
use dray_types::{Fault, FaultCode};
use http::StatusCode;

use super::TicketProblem;
use crate::records::RecordError;

impl From<RecordError> for TicketProblem {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Stale => Self::Superseded,
            RecordError::Bus(_) | RecordError::Directory(_) => {
                tracing::warn!(error = ?error, "could not access the record of a ticket");
                Self::Unavailable
            }
        }
    }
}

impl From<PutError> for TicketProblem {
    fn from(error: PutError) -> Self {
        if let PutError::TooLarge { limit } = error {
            return Self::TooLarge { limit };
        }
        tracing::warn!(error = ?error, "could not store bytes of a ticket");
        match Fault::from(error).detail.as_str() {
            "store_full" => Self::StorageFull,
            _ => Self::Unavailable,
        }
    }
}

impl From<ReadError> for TicketProblem {
    fn from(error: ReadError) -> Self {
        tracing::warn!(error = ?error, "could not read bytes of a ticket");
        match error {
            ReadError::Request(_) => Self::Unavailable,
            _ => Self::ContentGone,
        }
    }
}

impl From<TicketProblem> for Fault {
    fn from(problem: TicketProblem) -> Self {
        if let TicketProblem::SourceFailed(fault) | TicketProblem::DirectoryDenied(fault) = problem
        {
            return *fault;
        }
        let code = match problem.status() {
            StatusCode::NOT_FOUND | StatusCode::GONE => FaultCode::NotFound,
            StatusCode::PAYLOAD_TOO_LARGE => FaultCode::TooLarge,
            StatusCode::TOO_MANY_REQUESTS => FaultCode::RateLimited,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => FaultCode::Denied,
            StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::INSUFFICIENT_STORAGE
            | StatusCode::BAD_GATEWAY => FaultCode::Unavailable,
            _ => FaultCode::InvalidArgument,
        };
        // This is a sentence for people; the error text of Rust begins in lower case.
        let text = problem.to_string();
        let mut letters = text.chars();
        let message: String = letters
            .next()
            .into_iter()
            .flat_map(char::to_uppercase)
            .chain(letters)
            .chain(['.'])
            .collect();
        Self::new(code, message)
            .detail(problem.name().replace('-', "_"))
            .advice(problem.advice())
    }
}
