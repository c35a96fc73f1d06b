//! Faults that tests can set.

use bytes::Bytes;
use prost::Message as _;
use tonic::{Code, Status};

use crate::wire::{RetryPolicy, RpcStatus, StatusDetail};

/// A fault in one or more calls.
#[derive(Clone, Debug)]
pub enum InjectedFault {
    /// Calls of a method are refused.
    Refuse {
        /// Name of the method without the service.
        method: &'static str,
        /// Status code of the refusal.
        code: Code,
        /// Number of calls that are refused.
        times: usize,
    },
    /// One call of a method is refused with a retry policy.
    Throttle {
        /// Name of the method without the service.
        method: &'static str,
        /// Delay of the policy, in seconds.
        seconds: f32,
    },
    /// The next stream of standard output that is this long breaks after so many bytes.
    CutOutput(u64),
    /// The next stream of standard input that is this long breaks after so many bytes.
    CutInput(u64),
    /// The next stream of standard input is taken completely, and then its response is lost.
    LoseInputAnswer,
    /// The next stream of standard input is taken completely, and its end is refused because the input is closed by
    /// then.
    ClosedInput,
    /// The next poll of a command finds it running, even if it has ended.
    LateExit,
    /// Standard output ends cleanly after this many bytes, regardless of the command.
    ShortOutput(u64),
    /// The provider returns addresses of routers without TLS.
    PlainRouter,
    /// The sandbox has no shell.
    NoShell,
    /// The sandbox has no file tool.
    NoTool,
}

/// The status with which a call is refused now, if one is set.
pub(super) fn refusal(faults: &mut Vec<InjectedFault>, called: &str) -> Option<Status> {
    let at = faults.iter().position(|fault| match fault {
        InjectedFault::Refuse { method, .. } | InjectedFault::Throttle { method, .. } => {
            *method == called
        }
        _ => false,
    })?;
    let fault = faults.get_mut(at)?;
    match fault {
        InjectedFault::Refuse { code, times, .. } => {
            let code = *code;
            *times = times.saturating_sub(1);
            if *times == 0 {
                faults.remove(at);
            }
            Some(Status::new(code, "refused by a test"))
        }
        InjectedFault::Throttle { seconds, .. } => {
            let status = throttled_status(*seconds);
            faults.remove(at);
            Some(status)
        }
        _ => None,
    }
}

/// Takes the first fault for which `wanted` returns something.
pub(super) fn take<T>(
    faults: &mut Vec<InjectedFault>,
    wanted: impl Fn(&InjectedFault) -> Option<T>,
) -> Option<T> {
    let (at, found) = faults
        .iter()
        .enumerate()
        .find_map(|(at, fault)| Some((at, wanted(fault)?)))?;
    faults.remove(at);
    Some(found)
}

fn throttled_status(seconds: f32) -> Status {
    let policy = RetryPolicy {
        retry_after_secs: seconds,
    };
    let details = RpcStatus {
        code: Code::ResourceExhausted.into(),
        message: "slower".to_owned(),
        details: vec![StatusDetail {
            type_url: "type.googleapis.com/modal.client.RPCRetryPolicy".to_owned(),
            value: policy.encode_to_vec(),
        }],
    };
    let details = Bytes::from(details.encode_to_vec());
    Status::with_details(Code::ResourceExhausted, "slower", details)
}
