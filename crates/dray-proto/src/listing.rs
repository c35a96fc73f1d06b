//! Parts of the listing of a directory, even from a service of an earlier version that lists from the first entry only.
//!
//! ```
//! use dray_proto::v1::{ListSandboxReply, ListSandboxRequest};
//!
//! let request = ListSandboxRequest { offset: 200, limit: 100, ..ListSandboxRequest::default() };
//! # async fn list(request: ListSandboxRequest, call: impl AsyncFn(ListSandboxRequest) -> Result<ListSandboxReply, ()>) {
//! // `call` sends the request. It runs a second time only for a service of an earlier version.
//! let reply = request.list_from_offset(|request| call(request)).await;
//! # }
//! ```

use crate::v1::{ListSandboxReply, ListSandboxRequest};

impl ListSandboxRequest {
    /// Sends this request, whose limit is not 0, by `call`. If the service did not know the offset, requests the
    /// entries before the offset too and leaves them out of the reply.
    ///
    /// # Errors
    ///
    /// The errors of `call`.
    pub async fn list_from_offset<F, E>(
        &self,
        mut call: impl FnMut(Self) -> F,
    ) -> Result<ListSandboxReply, E>
    where
        F: Future<Output = Result<ListSandboxReply, E>>,
    {
        let reply = call(self.clone()).await?;
        match reply.request_without_offset(self) {
            Some(whole) => Ok(call(whole).await?.without_entries_before(self.offset)),
            None => Ok(reply),
        }
    }
}

impl ListSandboxReply {
    /// The request to send when the service did not know the offset of `request`: it requests the entries before the
    /// offset too. `None` when this reply begins at the offset.
    fn request_without_offset(&self, request: &ListSandboxRequest) -> Option<ListSandboxRequest> {
        (self.offset != request.offset).then(|| ListSandboxRequest {
            offset: 0,
            limit: request.offset.saturating_add(request.limit),
            ..request.clone()
        })
    }

    /// Leaves out the entries before `offset` of a listing from the first entry. No entries are left when a limit of
    /// the service ended the listing before.
    fn without_entries_before(mut self, offset: u32) -> Self {
        let skipped = self.entries.len().min(offset as usize);
        self.entries.drain(..skipped);
        self.offset = offset;
        self
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

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

    /// The reply to `request` of a service without offsets, and the number of requests that it got.
    fn list_without_offsets(request: &ListSandboxRequest) -> (ListSandboxReply, u32) {
        let mut requests = 0;
        let reply = request.list_from_offset(|request| {
            requests += 1;
            std::future::ready(Ok::<_, ()>(listing(request.limit)))
        });
        let reply = pin!(reply).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(reply)) = reply else {
            panic!("the listing waits or fails")
        };
        (reply, requests)
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
            let (part, requests) = list_without_offsets(&request);
            assert_eq!(requests, if offset == 0 { 1 } else { 2 });
            assert_eq!((part.offset, part.truncated), (offset, offset < 4));
            sizes.extend(part.entries.iter().map(|entry| entry.size));
        }
        assert_eq!(sizes, [0, 1, 2, 3, 4]);
    }
}
