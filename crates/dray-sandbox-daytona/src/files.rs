//! Bytes of files, by the toolbox's own calls.

use std::sync::Arc;

use dray_http::{ByteStream, Cause};
use dray_sandbox::{Body, Error, ErrorKind, Metadata, Write};
use futures_util::{StreamExt as _, TryStreamExt as _};

use crate::fault::unanswered;
use crate::link::Link;

/// The type of bytes that are just bytes.
const OCTET_STREAM: &str = "application/octet-stream";

/// Opens a regular file. The body is not the whole of it unless it ends without an error.
pub(crate) async fn download(link: &Arc<Link>, file: &Metadata) -> Result<Body, Error> {
    let path = file.real_path.to_text()?;
    let request = link.get("/files/download").query(&[("path", path)]);
    let answer = link.send(request).await?;
    if answer.status() != 200 || answer.header("content-encoding").is_some() {
        let context = format!("status {} for a whole file", answer.status());
        return Err(Error::new(ErrorKind::Protocol, context));
    }
    if let Some(length) = answer.length().filter(|length| *length != file.size) {
        let context = format!("the file has {length} bytes now, it had {}", file.size);
        return Err(Error::new(ErrorKind::ChangedDuringTransfer, context));
    }
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
    Ok(Body::new(pieces).exactly(file.size))
}

fn broken(cause: Cause) -> Error {
    match cause.downcast::<dray_http::HttpError>() {
        Ok(error) => unanswered(*error),
        Err(cause) => Error::new(ErrorKind::Unavailable, "the stream broke").caused_by(cause),
    }
}

/// Fills a file that is there already: the toolbox overwrites what it finds and follows links.
pub(crate) async fn upload(link: &Link, write: Write<'_>, body: Body) -> Result<(), Error> {
    let path = write.path.to_text()?;
    let body: ByteStream = body.exactly(write.size).map_err(Cause::from).boxed();
    let request = link
        .post("/files/upload-v2")
        .query(&[("path", path)])
        .stream(OCTET_STREAM, write.size, body);
    link.send(request).await.map(drop)
}
