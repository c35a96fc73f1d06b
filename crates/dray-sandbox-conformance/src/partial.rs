//! Cases of transfers that begin or end in the middle.

use std::future::pending;

use bytes::Bytes;
use dray_conformance::{CaseEnd, expect_bytes};
use dray_sandbox::backend::{Follow, Read, Write};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::stream::{self, StreamExt as _};
use tokio::sync::oneshot;

use super::CaseContext;
use super::context::{chunks, new_file, random};

pub(super) async fn a_read_begins_at_the_given_offset(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let bytes = random(300_000);
    let path = context.put("source", &bytes).await?;
    let file = context.sandbox.stat(&path, Follow::Yes).await?;
    let mut was_called = false;
    for transport in context.sandbox.transports(&file.real_path) {
        if !context.sandbox.resumes(transport) {
            continue;
        }
        was_called = true;
        // The last offset is the end of the file: a copy may be interrupted after its last byte.
        for offset in [0, 1, 65_536, 299_999, 300_000] {
            let read = Read {
                transport,
                file: &file,
                offset,
            };
            let found = context.sandbox.read(read).await?.read_all(1 << 20).await?;
            let expected = bytes
                .get(usize::try_from(offset).unwrap_or(usize::MAX)..)
                .unwrap_or_default();
            expect_bytes(
                &format!("from {offset} by {}", transport.as_str()),
                &found,
                expected,
            )?;
        }
    }
    if was_called {
        Ok(())
    } else {
        Err(CaseEnd::Skip("no transport resumes"))
    }
}

pub(super) async fn a_write_continues_where_it_was_cut(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let bytes = random(200_000);
    let (head, tail) = bytes.split_at(70_001);
    let first = context.path("resumed")?;
    let mut was_called = false;
    for transport in context.sandbox.transports(&first) {
        if !context.sandbox.resumes(transport) {
            continue;
        }
        was_called = true;
        let path = context.path(format!("resumed-{}", transport.as_str()))?;
        let begin = new_file(transport, &path, head.len() as u64);
        context.sandbox.write(begin, chunks(head)).await?;
        let rest = Write {
            offset: head.len() as u64,
            ..new_file(transport, &path, bytes.len() as u64)
        };
        context.sandbox.write(rest, chunks(tail)).await?;
        expect_bytes(transport.as_str(), &context.read(&path).await?, &bytes)?;
    }
    if was_called {
        Ok(())
    } else {
        Err(CaseEnd::Skip("no transport resumes"))
    }
}

/// Checks that a file can still be written, read and removed.
async fn expect_usable(context: &CaseContext<'_>, name: &str) -> Result<(), CaseEnd> {
    let path = context.put(name, b"still here").await?;
    expect_bytes(name, &context.read(&path).await?, b"still here")?;
    Ok(context.sandbox.remove(&path, false).await?)
}

pub(super) async fn a_dropped_read_leaves_the_sandbox_usable(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    // Larger than all buffers between the file and the reader. Written by a script if possible, which is faster.
    let path = context.path("large")?;
    match context.sh("head -c 4194304 /dev/urandom >large").await {
        Ok(_) => {}
        Err(CaseEnd::Skip(_)) => context.write(&path, &random(4 << 20)).await?,
        Err(failed) => return Err(failed),
    }
    let file = context.sandbox.stat(&path, Follow::Yes).await?;
    for transport in context.sandbox.transports(&file.real_path) {
        // Several rounds: a leaked connection or process shows only when a limit is reached.
        for round in 0..6 {
            let read = Read {
                transport,
                file: &file,
                offset: 0,
            };
            let mut body = context.sandbox.read(read).await?;
            body.next()
                .await
                .unwrap_or_else(|| Err(Error::new(ErrorKind::Truncated, "no bytes")))?;
            drop(body);
            expect_usable(context, &format!("after-{round}")).await?;
        }
    }
    Ok(())
}

pub(super) async fn a_dropped_write_leaves_the_sandbox_usable(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let first = context.path("dropped")?;
    for transport in context.sandbox.transports(&first) {
        for round in 0..3 {
            let path = context.path(format!("dropped-{}-{round}", transport.as_str()))?;
            let (reached, is_reached) = oneshot::channel();
            // The body never ends, so the write is always dropped before its end.
            let stuck = stream::once(async move {
                let _ = reached.send(());
                pending::<Result<Bytes, Error>>().await
            });
            let begin = stream::iter([Ok(Bytes::from(random(100_000)))]);
            let body = Body::new(begin.chain(stuck));
            let write = new_file(transport, &path, 200_000);
            tokio::select! {
                ended = context.sandbox.write(write, body) => {
                    return Err(CaseEnd::fail(format_args!("a body without an end was written: {ended:?}")));
                }
                _ = is_reached => {}
            }
            expect_usable(context, &format!("after-{round}")).await?;
            match context.sandbox.remove(&path, false).await {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
    }
    Ok(())
}
