//! `files/authorizeUpload` and `files/authorizeDownload`: tickets in the shapes of SEP-2631, a draft of the protocol.
//!
//! They make the same tickets as the tools `upload_ticket` and `download_ticket`, under the same scopes and limits, and
//! are served where those tools are. The capability is under `experimental` until the proposal is accepted.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_ticket::{IssuedTicket, StoredContent, TicketDirection, TicketRequest};
use dray_types::{Fault, FaultCode, Sha256Digest};
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, ExperimentalCapabilities, JsonObject};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::auth::{Scope, ScopeSet, required_scopes};
use crate::content::ContentAccess;
use crate::failure;
use crate::location::{self, Location};
use crate::message_check::{INITIALIZE_METHOD, invalid_initialize};
use crate::options::{ServerOptions, TicketAccess, ToolName};
use crate::progress::ProgressReporter;
use crate::tools::tickets::{DEFAULT_UPLOAD_BYTES, issue_download, principal};

/// Method that prepares an upload.
pub(crate) const AUTHORIZE_UPLOAD: &str = "files/authorizeUpload";
/// Method that resolves a download.
pub(crate) const AUTHORIZE_DOWNLOAD: &str = "files/authorizeDownload";
/// Methods of the protocol that are served and need parameters.
const SERVED_METHODS: [&str; 4] = [
    "tools/call",
    "resources/read",
    "prompts/get",
    "completion/complete",
];
/// Name of the capability.
const FILES_CAPABILITY: &str = "files";
/// The digest algorithm that every implementation has.
const SHA_256: &str = "sha-256";
/// Field of the form with the file.
const FILE_FIELD: &str = "file";

/// A request of one of the methods, parsed.
#[derive(Debug)]
pub(crate) enum TransferRequest {
    Upload(AuthorizeUpload),
    Download(AuthorizeDownload),
}

/// The error of a method that this server does not have.
pub(crate) fn method_not_offered() -> ErrorData {
    let words = "The method is not offered here.";
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, words, None)
}

/// Parameters of `files/authorizeUpload`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuthorizeUpload {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    mime_type: Option<String>,
    #[serde(default)]
    size: Option<u64>,
    #[serde(default)]
    digest: Option<FileDigest>,
}

/// Parameters of `files/authorizeDownload`.
#[derive(Debug, Deserialize)]
pub(crate) struct AuthorizeDownload {
    uri: String,
}

/// A digest of a complete file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileDigest {
    algorithm: String,
    /// The digest in base64url without padding.
    value: String,
}

/// The properties of a file, without its bytes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileValue {
    uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<FileDigest>,
}

/// The capabilities of the server; empty if it creates no tickets.
pub(crate) fn capabilities(options: &ServerOptions) -> ExperimentalCapabilities {
    let Some(tickets) = &options.tickets else {
        return ExperimentalCapabilities::new();
    };
    let mut files = JsonObject::new();
    for (member, tool) in [
        ("upload", ToolName::UploadTicket),
        ("download", ToolName::DownloadTicket),
    ] {
        if options.offers(tool) {
            files.insert(member.to_owned(), json!(true));
        }
    }
    if files.is_empty() {
        return ExperimentalCapabilities::new();
    }
    files.insert("transports".to_owned(), json!([transport(tickets)]));
    [(FILES_CAPABILITY.to_owned(), files)].into()
}

/// The family of a descriptor: `https`, or `http` for an endpoint on this machine, which the draft does not have.
fn transport(tickets: &TicketAccess) -> &'static str {
    if tickets.base_url.starts_with("https://") {
        "https"
    } else {
        "http"
    }
}

impl TransferRequest {
    /// Parses a request. A method that is not offered counts as unknown.
    pub(crate) fn parse(
        options: &ServerOptions,
        method: &str,
        params: Option<Value>,
    ) -> Result<Self, ErrorData> {
        let params = params.unwrap_or_else(|| json!({}));
        let invalid = |error: serde_json::Error| ErrorData::invalid_params(error.to_string(), None);
        match method {
            AUTHORIZE_UPLOAD if options.offers(ToolName::UploadTicket) => {
                serde_json::from_value(params)
                    .map(Self::Upload)
                    .map_err(invalid)
            }
            AUTHORIZE_DOWNLOAD if options.offers(ToolName::DownloadTicket) => {
                serde_json::from_value(params)
                    .map(Self::Download)
                    .map_err(invalid)
            }
            INITIALIZE_METHOD => Err(invalid_initialize(Some(params))),
            // A request of a served method whose parameters do not fit arrives here, too.
            _ if SERVED_METHODS.contains(&method) => Err(ErrorData::invalid_params(
                format!("The parameters of {method} are missing or have another type."),
                None,
            )),
            _ => Err(method_not_offered()),
        }
    }

    /// The scopes of the tool that makes the same ticket.
    pub(crate) fn scopes(&self) -> ScopeSet {
        match self {
            Self::Upload(_) => [Scope::Put].into_iter().collect(),
            Self::Download(download) => {
                let arguments = json!({"from": download.uri});
                required_scopes(ToolName::DownloadTicket, arguments.as_object())
            }
        }
    }

    /// Makes the ticket and describes it.
    pub(crate) async fn run(
        self,
        access: &ContentAccess,
        mut progress: ProgressReporter,
    ) -> Result<Value, ErrorData> {
        let tickets = access.tickets.clone();
        let tickets = tickets.ok_or_else(|| failure::protocol_error(&Fault::internal()))?;
        match self {
            Self::Upload(upload) => upload.run(access, &tickets).await,
            Self::Download(download) => download.run(access, &tickets, &mut progress).await,
        }
    }
}

impl AuthorizeUpload {
    async fn run(self, access: &ContentAccess, tickets: &TicketAccess) -> Result<Value, ErrorData> {
        let sha256 = self.digest.as_ref().map(FileDigest::parse).transpose()?;
        let media_type = self.mime_type.as_deref().map(dray_media_type::essence);
        let request = TicketRequest::upload(self.size.unwrap_or(DEFAULT_UPLOAD_BYTES))
            .size(self.size)
            // This type has no information about the content, so it is not used as a condition.
            .media_type(media_type.filter(|media_type| media_type != "application/octet-stream"))
            .sha256(sha256)
            .name(self.name.clone().unwrap_or_default());
        let issued = tickets.service.issue(&principal(access), request).await;
        let ticket = issued.map_err(|problem| refusal(&problem.into(), self.size))?;
        let file = FileValue {
            uri: location::ticket_uri(ticket.id()),
            name: self.name,
            mime_type: self.mime_type,
            size: self.size,
            digest: self.digest,
        };
        Ok(json!({"file": file, "upload": descriptor(&ticket, tickets)}))
    }
}

impl AuthorizeDownload {
    async fn run(
        self,
        access: &ContentAccess,
        tickets: &TicketAccess,
        progress: &mut ProgressReporter,
    ) -> Result<Value, ErrorData> {
        let issued = self.issue(access, tickets, progress).await;
        let (ticket, uri) = issued.map_err(|fault| refusal(&fault, None))?;
        let content = ticket
            .content
            .as_ref()
            .ok_or_else(|| failure::protocol_error(&Fault::internal()))?;
        let file = file_value(content, uri);
        Ok(json!({"file": file, "download": descriptor(&ticket, tickets)}))
    }
}

impl AuthorizeDownload {
    /// The ticket, and the URI that the file keeps.
    async fn issue(
        &self,
        access: &ContentAccess,
        tickets: &TicketAccess,
        progress: &mut ProgressReporter,
    ) -> Result<(IssuedTicket, Option<String>), Fault> {
        let location = access.parse(&self.uri)?;
        let ticket = issue_download(access, tickets, &location, progress, |request| request);
        // The content of a ticket never changes; the content of other locations may.
        let uri = matches!(location, Location::Ticket(_)).then(|| self.uri.clone());
        Ok((ticket.await?, uri))
    }
}

impl FileDigest {
    fn parse(&self) -> Result<Sha256Digest, ErrorData> {
        let invalid_digest = |reason: &str| {
            let data = json!({"reason": reason, "supported": [SHA_256]});
            ErrorData::invalid_params("The digest cannot be used.", Some(data))
        };
        if !self.algorithm.eq_ignore_ascii_case(SHA_256) {
            return Err(invalid_digest("unsupportedDigest"));
        }
        let bytes = URL_SAFE_NO_PAD.decode(&self.value);
        let bytes = bytes.map_err(|_| invalid_digest("invalidDigest"))?;
        Sha256Digest::try_from(bytes.as_slice()).map_err(|_| invalid_digest("invalidDigest"))
    }
}

fn file_value(content: &StoredContent, uri: Option<String>) -> FileValue {
    let sha256 = content.sha256.parse::<Sha256Digest>().ok();
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    FileValue {
        uri: uri
            .or_else(|| sha256.map(location::artifact_uri))
            .unwrap_or_default(),
        name: given(&content.name),
        mime_type: given(&content.media_type),
        size: Some(content.size),
        digest: sha256.map(|sha256| FileDigest {
            algorithm: SHA_256.to_owned(),
            value: URL_SAFE_NO_PAD.encode(sha256.as_bytes()),
        }),
    }
}

/// Describes to the client how it uploads or downloads the bytes.
fn descriptor(ticket: &IssuedTicket, tickets: &TicketAccess) -> Value {
    let expires_at_ms = i64::try_from(ticket.expires_at_ms).unwrap_or(i64::MAX);
    let expires_at = jiff::Timestamp::from_millisecond(expires_at_ms).map(|at| format!("{at}"));
    let (transport, url) = (transport(tickets), ticket.url(&tickets.base_url));
    let expires_at = expires_at.unwrap_or_default();
    match ticket.direction {
        TicketDirection::Upload => json!({
            "transport": transport,
            "url": url,
            "expiresAt": expires_at,
            "method": "POST",
            "multipart": {"fileField": FILE_FIELD, "fields": {}},
        }),
        TicketDirection::Download => json!({
            "transport": transport,
            "url": url,
            "expiresAt": expires_at,
            "method": "GET",
        }),
    }
}

/// A refused request, with the reason as the draft has it.
fn refusal(fault: &Fault, size: Option<u64>) -> ErrorData {
    let mut error = failure::protocol_error(fault);
    // A file that violates a limit is a wrong parameter in the draft.
    if fault.code == FaultCode::TooLarge {
        error.code = ErrorCode::INVALID_PARAMS;
    }
    if let Some(Value::Object(data)) = &mut error.data {
        let reason = match fault.code {
            FaultCode::TooLarge => "maxSizeExceeded",
            FaultCode::NotFound => "unknownFile",
            FaultCode::RateLimited => "quotaExceeded",
            _ => "refused",
        };
        data.insert("reason".to_owned(), json!(reason));
        if let (FaultCode::TooLarge, Some(size)) = (fault.code, size) {
            data.insert("actualSize".to_owned(), json!(size));
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_served_method_that_do_not_fit_are_invalid() {
        let code = |method| {
            TransferRequest::parse(&ServerOptions::default(), method, Some(json!({"name": 5})))
                .unwrap_err()
                .code
        };
        assert_eq!(code("tools/call"), ErrorCode::INVALID_PARAMS);
        assert_eq!(code("tools/none"), ErrorCode::METHOD_NOT_FOUND);
    }
}
