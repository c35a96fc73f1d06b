//! Parts of the listing of a directory, also from a service of an earlier version that lists from the first entry only.
//!
//! ```
//! use dray_proto::v1::{ListSandboxReply, ListSandboxRequest};
//!
//! let request = ListSandboxRequest { offset: 200, limit: 100, ..ListSandboxRequest::default() };
//! let from_earlier_service = ListSandboxReply::default();
//! let again = from_earlier_service.request_without_offset(&request).unwrap();
//! assert_eq!((again.offset, again.limit), (0, 300));
//! ```

use crate::v1::{ListSandboxReply, ListSandboxRequest};

impl ListSandboxReply {
    /// The request to send when the service did not know the offset of `request`, whose limit is not 0: it requests the
    /// entries before the offset too. `None` when this reply begins at the offset.
    #[must_use]
    pub fn request_without_offset(
        &self,
        request: &ListSandboxRequest,
    ) -> Option<ListSandboxRequest> {
        (self.offset != request.offset).then(|| ListSandboxRequest {
            offset: 0,
            limit: request.offset.saturating_add(request.limit),
            ..request.clone()
        })
    }

    /// Leaves out the entries before `offset` of a listing from the first entry. No entries are left when a limit of the
    /// service ended the listing before.
    #[must_use]
    pub fn from_offset(mut self, offset: u32) -> Self {
        let skipped = self.entries.len().min(offset as usize);
        self.entries.drain(..skipped);
        self.offset = offset;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::SandboxEntry;

    /// The first entries of a directory with five, as a service without offsets lists them.
    fn listing(limit: u32) -> ListSandboxReply {
        let entries = (0..limit.min(5)).map(|size| SandboxEntry {
            size: size.into(),
            ..SandboxEntry::default()
        });
        ListSandboxReply {
            entries: entries.collect(),
            truncated: limit < 5,
            ..ListSandboxReply::default()
        }
    }

    #[test]
    fn parts_of_a_service_without_offsets_meet_without_a_gap() {
        let mut sizes = Vec::new();
        for offset in [0, 2, 4, 6] {
            let request = ListSandboxRequest {
                offset,
                limit: 2,
                ..ListSandboxRequest::default()
            };
            let mut part = listing(request.limit);
            if let Some(again) = part.request_without_offset(&request) {
                part = listing(again.limit).from_offset(offset);
            }
            assert_eq!(part.truncated, offset < 4);
            assert!(part.request_without_offset(&request).is_none());
            sizes.extend(part.entries.iter().map(|entry| entry.size));
        }
        assert_eq!(sizes, [0, 1, 2, 3, 4]);
    }
}
