//! Messages of the provider, with the fields that are used here. Names and numbers are those of the descriptors in
//! the package `modal` 1.6.4; other fields are skipped when they arrive and absent when they are sent.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{Message, Oneof};

/// `modal.client.SandboxGetTaskIdRequest`: asks for the task of a sandbox. The second version takes the same.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetTaskId {
    #[prost(string, tag = "1")]
    pub(crate) sandbox_id: String,
}

/// `modal.client.SandboxGetTaskIdResponse`: without a task id the sandbox waits for a place to run.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskId {
    #[prost(string, optional, tag = "1")]
    pub(crate) task_id: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub(crate) task_result: Option<GenericResult>,
}

/// `modal.client.GenericResult`. Status 0 means that the result is not there yet.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GenericResult {
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
}

/// `modal.client.TaskGetCommandRouterAccessRequest`, for tasks of the first version.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskAccess {
    #[prost(string, tag = "1")]
    pub(crate) task_id: String,
}

/// `modal.client.SandboxGetCommandRouterAccessRequest`. Only its task id is sent, never the sandbox id: the task is
/// the incarnation.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SandboxAccess {
    #[prost(string, tag = "2")]
    pub(crate) task_id: String,
}

/// `modal.client.TaskGetCommandRouterAccessResponse` and `SandboxGetCommandRouterAccessResponse`, which have the same
/// fields.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RouterAccess {
    #[prost(string, tag = "1")]
    pub(crate) jwt: String,
    #[prost(string, tag = "2")]
    pub(crate) url: String,
}

/// `modal.client.AuthTokenGetRequest`, and every other message without fields.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct EmptyMessage {}

/// `modal.client.AuthTokenGetResponse`: the credential for calls of the second version.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthToken {
    #[prost(string, tag = "1")]
    pub(crate) token: String,
}

/// `google.rpc.Status`, as `grpc-status-details-bin` carries it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<StatusDetail>,
}

/// `google.protobuf.Any`, one detail of a status.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusDetail {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// `modal.client.RPCRetryPolicy`, the detail of a status that asks to wait.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RetryPolicy {
    #[prost(float, tag = "1")]
    pub(crate) retry_after_secs: f32,
}

/// `modal.task_command_router.TaskExecStartRequest`. The caller chooses `exec_id`, which makes a start idempotent.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecStartRequest {
    #[prost(string, tag = "1")]
    pub(crate) task_id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) command_args: Vec<String>,
    /// [`PIPE_OUTPUT`], or 0 to drop the output.
    #[prost(int32, tag = "4")]
    pub(crate) stdout_config: i32,
    /// [`PIPE_OUTPUT`], or 0 to drop the output.
    #[prost(int32, tag = "5")]
    pub(crate) stderr_config: i32,
    #[prost(btree_map = "string, string", tag = "12")]
    pub(crate) env: BTreeMap<String, String>,
}

/// The value of `TASK_EXEC_STDOUT_CONFIG_PIPE` and of `TASK_EXEC_STDERR_CONFIG_PIPE`.
pub(crate) const PIPE_OUTPUT: i32 = 1;

/// `TaskExecWaitRequest`, `TaskExecPollRequest` and `TaskExecStdinStatusRequest`: they name a command.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecRequest {
    #[prost(string, tag = "1")]
    pub(crate) task_id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
}

/// `TaskExecWaitResponse` and `TaskExecPollResponse`; without a status the command still runs.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecWaitResponse {
    #[prost(oneof = "ExitStatus", tags = "1, 2")]
    pub(crate) exit_status: Option<ExitStatus>,
}

/// The exit code of a command, or the signal that ended it.
#[derive(Clone, Copy, PartialEq, Eq, Oneof)]
pub(crate) enum ExitStatus {
    #[prost(int32, tag = "1")]
    Code(i32),
    #[prost(int32, tag = "2")]
    Signal(i32),
}

/// `TaskExecStdioReadRequest`: reads output from an offset, so that a broken stream can be continued.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StdioRead {
    #[prost(string, tag = "1")]
    pub(crate) task_id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(uint64, tag = "3")]
    pub(crate) offset: u64,
    /// Either [`STDOUT`] or [`STDERR`].
    #[prost(int32, tag = "4")]
    pub(crate) file_descriptor: i32,
}

/// The value of `TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT`.
pub(crate) const STDOUT: i32 = 0;
/// The value of `TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR`.
pub(crate) const STDERR: i32 = 1;

/// `TaskExecStdioReadResponse`: the next chunk of the output.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StdioChunk {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) data: Bytes,
}

/// `TaskExecStdinWriteRequest`: writes input at an offset, and may end it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StdinWrite {
    #[prost(string, tag = "1")]
    pub(crate) task_id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(uint64, tag = "3")]
    pub(crate) offset: u64,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) data: Bytes,
    #[prost(bool, tag = "5")]
    pub(crate) eof: bool,
}

/// `TaskExecStdinWriteStreamRequest`: one message of a stream of input.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StdinChunk {
    #[prost(oneof = "StreamPayload", tags = "1, 2, 3")]
    pub(crate) payload: Option<StreamPayload>,
}

/// The content of a message of the stream: a start, data, and an end, in this order.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum StreamPayload {
    #[prost(message, tag = "1")]
    Start(StdinStart),
    #[prost(bytes = "bytes", tag = "2")]
    Data(Bytes),
    #[prost(message, tag = "3")]
    End(EmptyMessage),
}

/// `TaskExecStdinWriteStreamStart`: the command, and the offset of the first data.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StdinStart {
    #[prost(string, tag = "1")]
    pub(crate) task_id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
    #[prost(uint64, tag = "3")]
    pub(crate) offset: u64,
}

/// `TaskExecStdinStatusResponse`: the offset from which a broken stream of input is continued.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct StdinStatus {
    #[prost(uint64, tag = "1")]
    pub(crate) num_bytes_written: u64,
    #[prost(bool, tag = "2")]
    pub(crate) closed: bool,
}
