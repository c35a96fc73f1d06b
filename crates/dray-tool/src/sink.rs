//! The channel that carries a response's events to the client.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dray_agent::event::{Event, StageStatus};
use dray_agent::message::Attachment;
use thiserror::Error;
use tokio::sync::mpsc;

/// Events that may wait for a slow client before their producer has to wait (back-pressure).
const MAX_WAITING_EVENTS: usize = 64;

/// The client has disconnected, and the work should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the client is gone")]
pub struct ClientGone;

/// The channel to the client, shared by everything that works on one response. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EventSink {
    events: mpsc::Sender<Event>,
    stages: Arc<AtomicU32>,
    /// Stages that stay open until the end of the response, and how they end.
    deferred: Arc<Mutex<Vec<(u32, StageStatus)>>>,
}

impl EventSink {
    /// Creates a channel to the client and its receiving end. When that end is dropped, every send fails with
    /// [`ClientGone`].
    pub fn new() -> (Self, mpsc::Receiver<Event>) {
        let (events, end) = mpsc::channel(MAX_WAITING_EVENTS);
        let sink = Self {
            events,
            stages: Arc::default(),
            deferred: Arc::default(),
        };
        (sink, end)
    }

    /// Sends one event; waits while the client is slow.
    ///
    /// # Errors
    ///
    /// [`ClientGone`].
    pub async fn send(&self, event: Event) -> Result<(), ClientGone> {
        self.events.send(event).await.map_err(|_| ClientGone)
    }

    /// Waits until the client has disconnected.
    pub async fn gone(&self) {
        self.events.closed().await;
    }

    /// Whether the client has disconnected.
    pub fn is_gone(&self) -> bool {
        self.events.is_closed()
    }

    /// Closes the stages that stayed open until now.
    ///
    /// # Errors
    ///
    /// [`ClientGone`].
    pub async fn close_deferred(&self) -> Result<(), ClientGone> {
        // The values are moved out of the mutex, because the lock must not be held across an `await`.
        let deferred = {
            // Each push adds a complete entry, so the list is usable after a panic under the lock.
            let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *deferred)
        };
        for (stage, status) in deferred {
            self.send(Event::StageClosed { stage, status }).await?;
        }
        Ok(())
    }

    /// Opens a stage with the next number.
    ///
    /// # Errors
    ///
    /// [`ClientGone`].
    pub async fn open(&self, name: Option<String>) -> Result<StageWriter, ClientGone> {
        // Only the number has to be unique; no other data depends on it.
        let number = self.stages.fetch_add(1, Ordering::Relaxed);
        let stage = number;
        self.send(Event::StageOpened { stage, name }).await?;
        Ok(StageWriter {
            open_stage: Some((self.clone(), number)),
        })
    }
}

/// A stage of a response, or a hidden stage, for which writing does nothing. Cheap to clone. The code that opened the
/// stage closes it.
#[derive(Clone, Debug)]
pub struct StageWriter {
    open_stage: Option<(EventSink, u32)>,
}

impl StageWriter {
    /// A stage that is not shown.
    pub const fn hidden() -> Self {
        Self { open_stage: None }
    }

    /// Whether the client can see the stage.
    pub const fn is_shown(&self) -> bool {
        self.open_stage.is_some()
    }

    /// Adds to the name.
    ///
    /// # Errors
    ///
    /// [`ClientGone`].
    pub async fn name(&self, name: impl Into<String>) -> Result<(), ClientGone> {
        let name = name.into();
        self.send(|stage| Event::StageName { stage, name }).await
    }

    /// Adds text.
    ///
    /// # Errors
    ///
    /// [`ClientGone`].
    pub async fn content(&self, content: impl Into<String>) -> Result<(), ClientGone> {
        let content = content.into();
        self.send(|stage| Event::StageContent { stage, content })
            .await
    }

    /// Adds a file.
    ///
    /// # Errors
    ///
    /// [`ClientGone`].
    pub async fn attachment(&self, attachment: Attachment) -> Result<(), ClientGone> {
        self.send(|stage| Event::StageAttachment { stage, attachment })
            .await
    }

    /// Ends the stage; once.
    ///
    /// # Errors
    ///
    /// [`ClientGone`].
    pub async fn close(&self, status: StageStatus) -> Result<(), ClientGone> {
        self.send(|stage| Event::StageClosed { stage, status })
            .await
    }

    /// Ends the stage with the response, in [`EventSink::close_deferred`].
    pub fn defer_close(&self, status: StageStatus) {
        if let Some((sink, number)) = &self.open_stage {
            let mut deferred = sink.deferred.lock().unwrap_or_else(PoisonError::into_inner);
            deferred.push((*number, status));
        }
    }

    async fn send(&self, event: impl FnOnce(u32) -> Event) -> Result<(), ClientGone> {
        match &self.open_stage {
            Some((sink, number)) => sink.send(event(*number)).await,
            // `ClientGone` is not reported either: a hidden stage has no connection on which to notice it.
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stages_are_numbered_in_order_of_opening() {
        let (sink, mut events) = EventSink::new();
        let first = sink.open(Some("a".to_owned())).await.unwrap();
        let second = sink.clone().open(None).await.unwrap();
        second.content("x").await.unwrap();
        first.close(StageStatus::Failed).await.unwrap();
        drop((sink, first, second));
        let mut received = Vec::new();
        while let Some(event) = events.recv().await {
            received.push(event);
        }
        assert_eq!(
            received,
            [
                Event::StageOpened {
                    stage: 0,
                    name: Some("a".to_owned())
                },
                Event::StageOpened {
                    stage: 1,
                    name: None
                },
                Event::StageContent {
                    stage: 1,
                    content: "x".to_owned()
                },
                Event::StageClosed {
                    stage: 0,
                    status: StageStatus::Failed
                },
            ]
        );
    }

    #[tokio::test]
    async fn a_disconnected_client_is_detected_by_the_next_event() {
        let (sink, events) = EventSink::new();
        let stage = sink.open(None).await.unwrap();
        drop(events);
        assert_eq!(stage.content("x").await, Err(ClientGone));
        assert_eq!(
            sink.send(Event::Content("y".to_owned())).await,
            Err(ClientGone)
        );
        assert_eq!(StageWriter::hidden().content("z").await, Ok(()));
    }
}
