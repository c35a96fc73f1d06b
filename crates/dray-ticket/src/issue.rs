//! The request for a new ticket, and the response to its maker.

use std::time::Duration;

use dray_types::{Sha256Digest, whole_millis};

use crate::destination::TicketDestination;
use crate::problem::TicketProblem;
use crate::record::{StoredContent, TicketDirection};
use crate::sandbox_source::PinnedFile;
use crate::service::{TicketLimits, ticket_id};

/// Time after which a ticket ends unless its maker says otherwise.
const DEFAULT_LIFETIME: Duration = Duration::from_hours(1);
/// Longest name in bytes.
const MAX_NAME_BYTES: usize = 255;

/// The request for a new ticket: direction, limits and destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketRequest {
    pub(crate) direction: TicketDirection,
    pub(crate) max_bytes: u64,
    pub(crate) size: Option<u64>,
    pub(crate) media_type: Option<String>,
    pub(crate) sha256: Option<Sha256Digest>,
    pub(crate) name: String,
    pub(crate) lifetime: Duration,
    pub(crate) content: Option<StoredContent>,
    pub(crate) destination: Option<TicketDestination>,
    pub(crate) pinned: Option<PinnedFile>,
}

impl TicketRequest {
    /// A ticket for an upload of at most `max_bytes`.
    pub fn upload(max_bytes: u64) -> Self {
        Self {
            direction: TicketDirection::Upload,
            max_bytes,
            size: None,
            media_type: None,
            sha256: None,
            name: String::new(),
            lifetime: DEFAULT_LIFETIME,
            content: None,
            destination: None,
            pinned: None,
        }
    }

    /// A ticket for a download of exactly this content.
    pub fn download(content: StoredContent) -> Self {
        let size = content.size;
        Self {
            direction: TicketDirection::Download,
            size: Some(size),
            content: Some(content),
            ..Self::upload(size)
        }
    }

    /// The exact size of the upload in bytes.
    #[must_use]
    pub const fn size(mut self, size: Option<u64>) -> Self {
        self.size = size;
        self
    }

    /// The media type of the upload, or a pattern such as `image/*`.
    #[must_use]
    pub fn media_type(mut self, media_type: Option<String>) -> Self {
        self.media_type = media_type;
        self
    }

    /// The digest that the upload must have.
    #[must_use]
    pub const fn sha256(mut self, sha256: Option<Sha256Digest>) -> Self {
        self.sha256 = sha256;
        self
    }

    /// File name for people.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Time after which the ticket ends.
    #[must_use]
    pub const fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Sets the destination of the upload after it is stored.
    #[must_use]
    pub fn destination(mut self, destination: Option<TicketDestination>) -> Self {
        self.destination = destination;
        self
    }

    /// The file of a sandbox that the content is a copy of.
    #[must_use]
    pub(crate) fn pinned(mut self, pinned: PinnedFile) -> Self {
        self.pinned = Some(pinned);
        self
    }

    /// Unix milliseconds at which a new ticket ends.
    pub(crate) fn expiry(&self, now_ms: u64) -> u64 {
        let lifetime_ms = whole_millis(self.lifetime);
        now_ms.saturating_add(lifetime_ms)
    }

    pub(crate) fn check(&self, limits: &TicketLimits) -> Result<(), TicketProblem> {
        if self.max_bytes > limits.max_bytes {
            return Err(TicketProblem::TooLarge {
                limit: limits.max_bytes,
            });
        }
        if self.size.is_some_and(|size| size > self.max_bytes) {
            return Err(TicketProblem::Invalid("the size is above the size limit"));
        }
        if self.lifetime.is_zero() || self.lifetime > limits.max_lifetime {
            return Err(TicketProblem::Invalid(
                "the lifetime is zero or above the limit of the service",
            ));
        }
        if self.name.len() > MAX_NAME_BYTES {
            return Err(TicketProblem::Invalid("the name is longer than 255 bytes"));
        }
        let media_type = self.media_type.as_deref().unwrap_or("a/b");
        let is_type = media_type.len() <= 127
            && media_type.split('/').count() == 2
            && media_type.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_type {
            return Err(TicketProblem::Invalid("the media type is not valid"));
        }
        match &self.destination {
            Some(destination) => destination.check(),
            None => Ok(()),
        }
    }
}

/// A new ticket. Its URL is a secret, so its debug form has none.
#[derive(Clone)]
pub struct IssuedTicket {
    pub(crate) secret: String,
    /// Key of its record.
    pub(crate) key: String,
    /// Direction of the transfer.
    pub direction: TicketDirection,
    /// Unix milliseconds at which it ends.
    pub expires_at_ms: u64,
    /// Most bytes of an upload; the size of a download.
    pub max_bytes: u64,
    /// Name of the file, cleaned; may be empty.
    pub name: String,
    /// The content of a download.
    pub content: Option<StoredContent>,
    /// Whether the client may send the parts of an upload directly to the store.
    pub(crate) offers_parts: bool,
}

impl IssuedTicket {
    /// Identifies the ticket for its maker, without giving access: 64 hexadecimal digits.
    pub fn id(&self) -> &str {
        ticket_id(&self.key)
    }

    /// The URL below the base of an endpoint, such as `http://127.0.0.1:7340`.
    pub fn url(&self, base_url: &str) -> String {
        format!("{}/t/{}", base_url.trim_end_matches('/'), self.secret)
    }

    /// The URL that begins an upload in parts to the store; `None` if clients cannot reach the store.
    pub fn parts_url(&self, base_url: &str) -> Option<String> {
        self.offers_parts
            .then(|| format!("{}/parts", self.url(base_url)))
    }

    /// The line for a shell that uses the ticket.
    pub fn curl_line(&self, base_url: &str) -> String {
        let url = self.url(base_url);
        match self.direction {
            TicketDirection::Upload => format!("curl -fT FILE '{url}'"),
            // `-OJ` writes the file under the name that the response gives it.
            TicketDirection::Download => format!("curl -fOJ '{url}'"),
        }
    }
}

impl std::fmt::Debug for IssuedTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedTicket")
            .field("direction", &self.direction)
            .field("expires_at_ms", &self.expires_at_ms)
            .finish_non_exhaustive()
    }
}
