//! The messages of refused and failed fetches (egress-security, section 17).
//!
//! They are part of the wire format: callers and prompts depend on their exact text, including the missing capital
//! letter after "could not be fetched.". The file-resolver adds its own advice to the four policy sentences.

use super::{Code, ShownHost, ShownUrl};

/// The parts of a message.
enum ReasonMessage {
    /// A complete sentence.
    Policy(&'static str),
    /// A statement that follows the URL.
    Url(&'static str),
    /// The cause, after the sentence that the URL could not be fetched.
    Transport(&'static str),
    /// The host was not found; the message names it.
    Host,
    /// The status that the server answered.
    Status(u16),
    /// The line of the robots.txt that refuses the URL; 0 where the file could not be read.
    Robots(u32),
    /// Only the sentence that the URL could not be fetched.
    NotFetched,
}

impl Code {
    /// The message for the agent, in one or two sentences.
    pub(super) fn message(self, url: &ShownUrl, host: ShownHost<'_>) -> String {
        let not_fetched = format!("External URL {url} could not be fetched.");
        match self.sentence() {
            ReasonMessage::Policy(sentence) => sentence.to_owned(),
            ReasonMessage::Url(verdict) => format!("External URL {url} {verdict}"),
            ReasonMessage::Transport(cause) => format!("{not_fetched} {cause}"),
            ReasonMessage::Host => format!("{not_fetched} could not resolve host {host}."),
            ReasonMessage::Status(status) => {
                format!("{not_fetched} The server answered HTTP status {status}.")
            }
            ReasonMessage::Robots(0) => {
                format!("{not_fetched} The robots.txt of its server could not be read.")
            }
            // The message has only the number of the line: its text comes from the server and could contain
            // instructions for a model.
            ReasonMessage::Robots(line) => {
                format!(
                    "External URL {url} is refused by the robots.txt of its server (line {line})."
                )
            }
            ReasonMessage::NotFetched => not_fetched,
        }
    }

    #[rustfmt::skip]
    const fn sentence(self) -> ReasonMessage {
        match self {
            Self::DisabledByAdmin => ReasonMessage::Policy("External URL fetching is disabled by operator policy (EXTERNAL_URL_FETCH_ENABLED)."),
            Self::DisabledByApp => ReasonMessage::Policy("External URL fetching is disabled by this app (features.external_url_fetch.enabled=false)."),
            Self::HostNotInAdminAllowlist => ReasonMessage::Policy("External URL host is not in the operator allowlist (EXTERNAL_URL_FETCH_HOST_ALLOWLIST)."),
            Self::HostNotInAppAllowlist => ReasonMessage::Policy("External URL host is not in this app's allowlist (features.external_url_fetch.host_allowlist)."),
            Self::PolicyInvalid => ReasonMessage::Policy("This app's external fetch policy is invalid; ask the app owner to correct features.external_url_fetch."),
            Self::Overloaded => ReasonMessage::Policy("External URL fetching is busy; try again shortly."),
            Self::InvalidUrl => ReasonMessage::Url("is not a valid absolute http(s) URL."),
            Self::UnsupportedScheme => ReasonMessage::Url("uses a scheme that is not supported; use http or https."),
            Self::UrlCredentials => ReasonMessage::Url("contains credentials, which are not accepted."),
            Self::AmbiguousHost => ReasonMessage::Url("writes its host in an ambiguous form; use a plain host name or a dotted-decimal address."),
            Self::PortNotAllowed => ReasonMessage::Url("uses a port that is not allowed."),
            Self::BlockedHost => ReasonMessage::Url("names a host that is never fetched (local, internal or reserved name)."),
            Self::SsrfBlocked => ReasonMessage::Url("resolves to a blocked address (loopback, private, link-local, or cloud-metadata)."),
            Self::PolicyDenied => ReasonMessage::Policy("External URL is not allowed by operator policy for this tenant, session or app."),
            Self::ApprovalRequired => ReasonMessage::Policy("External URL host needs the approval of a person for this session."),
            Self::MediaTypeNotAllowed => ReasonMessage::Url("has a media type that operator policy does not allow."),
            Self::QuotaExceeded => ReasonMessage::Policy("External URL fetching has used the quota of this tenant."),
            Self::RobotsDenied(line) => ReasonMessage::Robots(line),
            Self::RedirectLimit => ReasonMessage::Url("exceeded the configured redirect limit."),
            Self::TooLarge => ReasonMessage::Url("exceeds the configured file-size limit."),
            Self::Timeout => ReasonMessage::Url("timed out."),
            Self::DeadlineExpired => ReasonMessage::Url("timed out. It was not fetched before its deadline."),
            Self::RedirectDowngrade => ReasonMessage::Transport("It redirected from https to http, which is not allowed."),
            Self::RedirectInvalid => ReasonMessage::Transport("It redirected to an invalid location."),
            Self::DnsNotFound => ReasonMessage::Host,
            Self::DnsFailure => ReasonMessage::Transport("Its host could not be resolved at the moment."),
            Self::ConnectFailed => ReasonMessage::Transport("The server could not be reached."),
            Self::TlsError => ReasonMessage::Transport("The TLS or certificate check failed."),
            Self::ConnectionClosed => ReasonMessage::Transport("The server closed the connection without a response."),
            Self::MalformedResponse => ReasonMessage::Transport("The server sent an invalid HTTP response."),
            Self::HttpStatus(status) => ReasonMessage::Status(status),
            Self::UnexpectedPartial => ReasonMessage::Transport("The server sent only part of the file."),
            Self::Truncated => ReasonMessage::Transport("The transfer ended before the file was complete."),
            Self::UnsupportedEncoding => ReasonMessage::Transport("It uses a content encoding that is not supported."),
            Self::DecodeError => ReasonMessage::Transport("Its content could not be decompressed."),
            Self::SinkFailed => ReasonMessage::Transport("The file could not be stored; try again shortly."),
            Self::Internal => ReasonMessage::NotFetched,
        }
    }

    /// The next step for the agent; empty where the message already contains it, or where the caller adds its own.
    pub(super) const fn advice(self) -> &'static str {
        match self {
            // The file-resolver adds its own advice about DIAL to the policy sentences.
            Self::DisabledByAdmin
            | Self::DisabledByApp
            | Self::HostNotInAdminAllowlist
            | Self::HostNotInAppAllowlist
            | Self::PolicyInvalid
            | Self::PolicyDenied
            | Self::Overloaded
            | Self::SinkFailed
            | Self::UnsupportedScheme
            | Self::AmbiguousHost => "",
            Self::InvalidUrl => {
                "Write the whole URL, for example https://files.example.org/report.pdf."
            }
            Self::UrlCredentials => {
                "Use a URL without user name and password, for example a signed link."
            }
            Self::PortNotAllowed => {
                "Use a URL on a standard web port, or ask the operator to allow this one."
            }
            Self::BlockedHost | Self::SsrfBlocked => {
                "Use a URL on the public internet, or upload the file instead."
            }
            Self::RedirectLimit | Self::RedirectDowngrade | Self::RedirectInvalid => {
                "Use the URL of the file itself instead of one that redirects."
            }
            Self::ApprovalRequired => {
                "Try again after a person has answered; asking again does not repeat the question."
            }
            Self::MediaTypeNotAllowed => "Use a file of another type, or upload the file instead.",
            Self::QuotaExceeded => "Try again when the quota refills.",
            Self::TooLarge => "Use a smaller file, or ask the operator to raise the limit.",
            Self::Timeout => "Try again, or use a smaller file or a faster server.",
            Self::DeadlineExpired => "Try again.",
            Self::DnsNotFound => "Check the spelling of the host.",
            Self::TlsError => "Use a server with a valid certificate.",
            Self::DnsFailure | Self::ConnectFailed | Self::ConnectionClosed | Self::Truncated => {
                "Try again shortly."
            }
            Self::HttpStatus(404 | 410) => "Check the URL: the server does not have this file.",
            Self::HttpStatus(401 | 403 | 407 | 451) => {
                "Use a URL that needs no sign-in, or upload the file instead."
            }
            Self::HttpStatus(408 | 425 | 429 | 500 | 502..=504) => "Try again later.",
            Self::RobotsDenied(0) => "Try again later, or use another source for this file.",
            Self::MalformedResponse
            | Self::RobotsDenied(_)
            | Self::HttpStatus(_)
            | Self::UnexpectedPartial
            | Self::UnsupportedEncoding
            | Self::DecodeError => "Use another source for this file.",
            Self::Internal => {
                "Try again; if it happens again, report the trace id to the operator."
            }
        }
    }
}
