//! Notes when the last bytes arrived on a connection.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::dial::Io;
use crate::wire::pass_writes_on;

/// The time at which bytes last arrived. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct LastArrival(Arc<Mutex<Instant>>);

impl LastArrival {
    /// The time of a connection that was just made.
    pub(super) fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(super) fn get(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// A stream that sets this time whenever it reads bytes.
    pub(super) fn watch(&self, io: Box<dyn Io>) -> Box<dyn Io> {
        Box::new(ArrivalIo {
            io,
            last_arrival: self.clone(),
        })
    }
}

struct ArrivalIo {
    io: Box<dyn Io>,
    last_arrival: LastArrival,
}

impl AsyncRead for ArrivalIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.last_arrival.set(Instant::now());
        }
        Poll::Ready(Ok(()))
    }
}

pass_writes_on!(ArrivalIo);
