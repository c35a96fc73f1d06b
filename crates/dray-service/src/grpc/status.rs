//! Converts a fault to a gRPC status, and back. The complete fault is in the status details.

use dray_proto::v1;
use dray_types::{Fault, FaultCode};
use prost::{Message as _, Name as _};
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::pb;

/// Returns the status for a fault: a code for clients that do not know the contract, the sentence, and the fault itself
/// as a detail (`google.rpc.Status` with one `dray.v1.Fault`).
pub fn status_of(fault: &Fault) -> Status {
    status_with_code(code_of(fault.code), fault)
}

/// Like [`status_of`], with a code that no fault maps to, such as `UNAUTHENTICATED`.
pub(super) fn status_with_code(code: Code, fault: &Fault) -> Status {
    let wire = v1::Fault::from(fault.clone());
    let details = pb::Status {
        code: code.into(),
        message: fault.message.clone(),
        details: vec![prost_types::Any {
            type_url: format!("type.googleapis.com/{}", v1::Fault::full_name()),
            value: wire.encode_to_vec(),
        }],
    };
    Status::with_details(code, fault.message.clone(), details.encode_to_vec().into())
}

/// Returns the fault inside a status, or `None` for a status without one, for example of a proxy.
pub fn fault_of(status: &Status) -> Option<Fault> {
    let details = pb::Status::decode(status.details()).ok()?;
    let name = v1::Fault::full_name();
    let any = details
        .details
        .into_iter()
        // The host before the slash is free (protobuf `Any`); only the type name counts.
        .find(|any| any.type_url.rsplit('/').next() == Some(name.as_str()))?;
    v1::Fault::decode(any.value.as_slice()).ok().map(Into::into)
}

/// Returns the response with a fault in it where the library refused the request for its size; its own status has none.
pub(super) fn with_size_fault(response: http::Response<Body>) -> http::Response<Body> {
    let refused = response.extensions().get::<Status>();
    let is_too_large = refused
        .is_some_and(|status| status.code() == Code::OutOfRange && status.details().is_empty());
    if !is_too_large {
        return response;
    }
    let limit = dray_proto::MAX_MESSAGE_BYTES / 1024;
    let message = format!("The request is larger than the limit of {limit} KiB.");
    let fault = Fault::new(FaultCode::TooLarge, message)
        .detail("message_too_large")
        .advice("Put large content into a stored file, and name it in the request.");
    status_of(&fault).into_http()
}

fn code_of(code: FaultCode) -> Code {
    match code {
        FaultCode::InvalidArgument => Code::InvalidArgument,
        FaultCode::NotFound => Code::NotFound,
        FaultCode::Denied => Code::PermissionDenied,
        // `ResourceExhausted` is for load, where another attempt helps.
        FaultCode::TooLarge => Code::OutOfRange,
        FaultCode::Unsupported => Code::Unimplemented,
        FaultCode::RateLimited => Code::ResourceExhausted,
        FaultCode::Timeout => Code::DeadlineExceeded,
        FaultCode::Unavailable => Code::Unavailable,
        FaultCode::Internal => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn faults_cross_grpc_unchanged() {
        for code in FaultCode::ALL_CODES {
            let fault = Fault::new(code, "sentence")
                .detail("detail")
                .advice("advice")
                .retry_after(Duration::from_millis(250))
                .trace_id("trace");
            let status = status_of(&fault);
            assert_eq!(status.message(), "sentence");
            assert_eq!(fault_of(&status), Some(fault));
        }
    }

    #[test]
    fn fault_codes_map_to_grpc_status_codes() {
        let codes: Vec<Code> = FaultCode::ALL_CODES.into_iter().map(code_of).collect();
        assert_eq!(
            codes,
            [
                Code::InvalidArgument,
                Code::NotFound,
                Code::PermissionDenied,
                Code::OutOfRange,
                Code::Unimplemented,
                Code::ResourceExhausted,
                Code::DeadlineExceeded,
                Code::Unavailable,
                Code::Internal,
            ]
        );
    }

    #[test]
    fn a_status_from_elsewhere_holds_no_fault() {
        assert_eq!(fault_of(&Status::unavailable("proxy")), None);
        let odd = Status::with_details(Code::Internal, "x", bytes::Bytes::from_static(b"\xff\xff"));
        assert_eq!(fault_of(&odd), None);
    }
}
