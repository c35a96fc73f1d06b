//! The tools and permissions of a server, which are fixed at its start.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use dray_ticket::TicketService;
use dray_types::ByteSize;

use crate::confirm::OfferedChat;

/// A tool of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolName {
    /// Reads a document as Markdown.
    Read,
    /// Fetches an outside URL into the store.
    Fetch,
    /// Lists a directory.
    List,
    /// Copies a file into the store, and to the local directory where writing is allowed.
    Get,
    /// Copies a file into the sandbox.
    Put,
    /// Sends files to the chat of the session.
    SendFile,
    /// Shows the outcome of deliveries.
    Receipts,
    /// Resolves the `file:` references in the arguments of another tool.
    ResolveFileArguments,
    /// Explains whether a URL may be fetched.
    PolicyCheck,
    /// Creates a URL for the upload of one file.
    UploadTicket,
    /// Creates a URL for the download of one file.
    DownloadTicket,
}

/// The text is not the name of a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown tool `{name}`; the tools are {}", ToolName::ALL_TOOLS.map(ToolName::as_str).join(", "))]
pub struct UnknownTool {
    name: String,
}

impl ToolName {
    /// Whether a call moves one file, which may take long.
    pub(crate) const fn is_transfer(self) -> bool {
        matches!(self, Self::Fetch | Self::Get | Self::Put)
    }

    /// Every tool, in the order in which the server lists them.
    pub const ALL_TOOLS: [Self; 11] = [
        Self::Read,
        Self::Fetch,
        Self::List,
        Self::Get,
        Self::Put,
        Self::SendFile,
        Self::Receipts,
        Self::ResolveFileArguments,
        Self::PolicyCheck,
        Self::UploadTicket,
        Self::DownloadTicket,
    ];

    /// The name in the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Fetch => "fetch",
            Self::List => "list",
            Self::Get => "get",
            Self::Put => "put",
            Self::SendFile => "send_file",
            Self::Receipts => "receipts",
            Self::ResolveFileArguments => "resolve_file_arguments",
            Self::PolicyCheck => "policy_check",
            Self::UploadTicket => "upload_ticket",
            Self::DownloadTicket => "download_ticket",
        }
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ToolName {
    type Err = UnknownTool;

    fn from_str(name: &str) -> Result<Self, UnknownTool> {
        Self::ALL_TOOLS
            .into_iter()
            .find(|tool| tool.as_str() == name)
            .ok_or_else(|| UnknownTool {
                name: name.to_owned(),
            })
    }
}

/// Which effects the tools may have. By default they have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Whether tools may write: into the sandbox, and new files into the local directory.
    pub write: bool,
    /// Whether tools may send files to people.
    pub send: bool,
}

/// Largest local files that tools accept. A larger one is refused before any of its bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimits {
    /// Largest document that `read` accepts.
    pub read: ByteSize,
    /// Largest file that the other tools take.
    pub transfer: ByteSize,
}

impl Default for FileLimits {
    /// The defaults of the services: `reading.max_file_size` and `sandbox-transfer.max_file`.
    fn default() -> Self {
        Self {
            read: ByteSize::mib(25),
            transfer: ByteSize::mib(2048),
        }
    }
}

/// The ticket endpoint of a server, through whose URLs files bypass the model.
#[derive(Clone, Debug)]
pub struct TicketAccess {
    /// Creates the tickets and keeps their records.
    pub service: TicketService,
    /// Base of their URLs, such as `http://127.0.0.1:7340`.
    pub base_url: String,
}

/// Settings of a server: the tools that it offers to its clients, and their permissions and limits.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The tools to offer; `None` offers all that the permissions allow.
    pub tools: Option<Vec<ToolName>>,
    /// The effects that tools may have.
    pub permissions: Permissions,
    /// Largest files of this machine that tools take.
    pub limits: FileLimits,
    /// The ticket endpoint; without one, the server has no ticket tools.
    pub tickets: Option<TicketAccess>,
    /// Whether the user of the client has to confirm each call of `send_file`. Clients that cannot ask are refused.
    pub confirm_send: bool,
    /// Time for which an answer of the client's user about a host is valid; `None` if users of clients are not asked.
    pub approve_hosts: Option<Duration>,
    /// Chats from which the user of the client may select, if the session has none.
    pub offered_chats: Vec<OfferedChat>,
}

impl ServerOptions {
    /// Whether the tool is listed and may be called.
    pub fn offers(&self, tool: ToolName) -> bool {
        let permitted = match tool {
            ToolName::Put => self.permissions.write,
            ToolName::SendFile => self.permissions.send,
            ToolName::UploadTicket | ToolName::DownloadTicket => self.tickets.is_some(),
            ToolName::Read
            | ToolName::Fetch
            | ToolName::List
            | ToolName::Get
            | ToolName::Receipts
            | ToolName::ResolveFileArguments
            | ToolName::PolicyCheck => true,
        };
        permitted
            && self
                .tools
                .as_ref()
                .is_none_or(|tools| tools.contains(&tool))
    }

    /// The offered tools, always in the same order.
    pub(crate) fn offered(&self) -> impl Iterator<Item = ToolName> {
        ToolName::ALL_TOOLS
            .into_iter()
            .filter(|tool| self.offers(*tool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_with_effects_are_off_until_they_are_permitted() {
        let names = |options: &ServerOptions| options.offered().collect::<Vec<_>>();
        let plain = names(&ServerOptions::default());
        assert!(!plain.contains(&ToolName::Put) && !plain.contains(&ToolName::SendFile));
        let all = ServerOptions {
            permissions: Permissions {
                write: true,
                send: true,
            },
            ..ServerOptions::default()
        };
        let tickets = [ToolName::UploadTicket, ToolName::DownloadTicket];
        let without_endpoint = ToolName::ALL_TOOLS.into_iter();
        let without_endpoint = without_endpoint.filter(|tool| !tickets.contains(tool));
        assert!(names(&all).into_iter().eq(without_endpoint));
    }

    #[test]
    fn a_list_of_tools_narrows_and_grants_nothing() {
        let options = ServerOptions {
            tools: Some(vec![ToolName::SendFile, ToolName::List, ToolName::Read]),
            ..ServerOptions::default()
        };
        let offered: Vec<_> = options.offered().collect();
        assert_eq!(offered, [ToolName::Read, ToolName::List]);
    }
}
