//! Bytes of files, by the daemon's own calls (sandbox-transfer 8.2, 8.3).

use std::sync::Arc;

use dray_http::{ByteStream, Cause, HttpResponse, MultipartForm};
use dray_sandbox::{Body, Error, ErrorKind, Read, SandboxPath, Write};
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;

use crate::fault::unanswered;
use crate::link::Link;

/// The type of bytes that are just bytes.
const OCTET_STREAM: &str = "application/octet-stream";

/// One file of the answer to an upload.
#[derive(Debug, Deserialize)]
struct Uploaded {
    path: String,
}

/// Opens a regular file from `offset`. The body is not the whole of it unless it ends without an error.
pub(crate) async fn download(link: &Arc<Link>, read: Read<'_>) -> Result<Body, Error> {
    let path = read.file.real_path.to_text()?;
    let left = read.file.size.saturating_sub(read.offset);
    let mut request = link
        .request("GET", "/files")
        .query(&[("path", path), ("username", link.user())]);
    if read.offset > 0 {
        request = request.header("range", &format!("bytes={}-", read.offset));
    }
    let answer = link.send(request).await?;
    expected(&answer, read.offset, read.file.size)?;
    let link = Arc::clone(link);
    let pieces = answer.into_stream().then(move |piece| {
        let link = Arc::clone(&link);
        async move {
            match piece {
                Ok(piece) => Ok(piece),
                Err(cause) => Err(link.explained(broken(cause)).await),
            }
        }
    });
    Ok(Body::new(pieces).exactly(left))
}

/// Whether an answer is the part that was asked for, of the file that was looked at.
fn expected(answer: &HttpResponse, offset: u64, size: u64) -> Result<(), Error> {
    if answer.header("content-encoding").is_some() {
        return Err(Error::new(
            ErrorKind::Protocol,
            "an encoding nobody asked for",
        ));
    }
    let (begins, whole) = match (offset, answer.status()) {
        (0, 200) => (0, answer.length()),
        (_, 206) => answer
            .header("content-range")
            .and_then(range)
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "no range in the answer"))?,
        (_, status) => {
            let context = format!("status {status} for a file from {offset}");
            return Err(Error::new(ErrorKind::Protocol, context));
        }
    };
    if begins != offset {
        return Err(Error::new(ErrorKind::Protocol, "another range than asked"));
    }
    match whole {
        Some(whole) if whole != size => Err(Error::new(
            ErrorKind::ChangedDuringTransfer,
            format!("the file has {whole} bytes now, it had {size}"),
        )),
        _ => Ok(()),
    }
}

/// Where a range begins, and the size of the whole: `bytes 5-9/10`.
fn range(header: &str) -> Option<(u64, Option<u64>)> {
    let (part, whole) = header.strip_prefix("bytes ")?.split_once('/')?;
    let (begin, _) = part.split_once('-')?;
    Some((begin.parse().ok()?, whole.parse().ok()))
}

fn broken(cause: Cause) -> Error {
    match cause.downcast::<dray_http::HttpError>() {
        Ok(error) => unanswered(*error),
        Err(cause) => Error::new(ErrorKind::Unavailable, "the stream broke").caused_by(cause),
    }
}

/// Fills a file that is there already: the daemon truncates what it finds and follows links.
pub(crate) async fn upload(link: &Link, write: Write<'_>, body: Body) -> Result<(), Error> {
    let path = write.path.to_text()?;
    let body: ByteStream = body.exactly(write.size).map_err(Cause::from).boxed();
    let request = link
        .request("POST", "/files")
        .query(&[("path", path), ("username", link.user())]);
    let request = if link.plain_uploads {
        request.stream(OCTET_STREAM, write.size, body)
    } else {
        let form = MultipartForm::new().file("file", path, OCTET_STREAM, write.size, body);
        request.multipart(form)
    };
    let answer = link.send(request).await?;
    let files: Vec<Uploaded> = answer.json().await.map_err(unanswered)?;
    match files.as_slice() {
        [file] if SandboxPath::new(&file.path)? == *write.path => Ok(()),
        _ => Err(Error::new(ErrorKind::Protocol, "another file was written")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(range("bytes 0-0/*"), Some((0, None)));
        for wrong in ["", "bytes */10", "items 0-1/2", "bytes 1/2", "bytes a-b/c"] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
    }
}
