//! Reads and writes files by the provider's own calls.

use std::sync::Arc;

use dray_http::{ByteStream, Cause, HttpResponse};
use dray_sandbox::{Body, Error, ErrorKind, Read, Write};
use futures_util::{StreamExt as _, TryStreamExt as _};

use crate::fault::unanswered;
use crate::provider::Provider;

/// Media type of arbitrary bytes (RFC 2046, section 4.5.1).
pub const OCTET_STREAM: &str = "application/octet-stream";

/// Opens a regular file from an offset. Only a body that ends without an error is complete.
pub(crate) async fn download<P: Provider>(
    provider: &Arc<P>,
    read: Read<'_>,
) -> Result<Body, Error> {
    let path = read.file.real_path.to_text()?;
    let remaining = read.file.size.saturating_sub(read.offset);
    let mut request = provider.download(path);
    // A whole file is requested without a range: with a range the response has status 206, and its size is in another
    // header.
    if read.offset > 0 {
        request = request.header("range", &format!("bytes={}-", read.offset));
    }
    let response = provider.send(request).await?;
    check_range(&response, read.offset, read.file.size)?;
    let provider = Arc::clone(provider);
    let chunks = response.into_stream().then(move |chunk| {
        let provider = Arc::clone(&provider);
        async move {
            match chunk {
                Ok(chunk) => Ok(chunk),
                // A stream that breaks may mean that the sandbox has ended.
                Err(cause) => Err(provider.explained(stream_error(cause)).await),
            }
        }
    });
    Ok(Body::new(chunks).exactly(remaining))
}

/// Fails unless the response is the requested part of the file that `stat` described.
fn check_range(response: &HttpResponse, offset: u64, size: u64) -> Result<(), Error> {
    // The client asks for no encoding; bytes that a proxy compressed would only fail at the digest.
    if response.header("content-encoding").is_some() {
        return Err(Error::new(
            ErrorKind::Protocol,
            "the response has an encoding that was not requested",
        ));
    }
    let (start, total) = match (offset, response.status()) {
        (0, 200) => (0, response.length()),
        (_, 206) => response
            .header("content-range")
            .and_then(parse_content_range)
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "the response has no range"))?,
        (_, status) => {
            let context = format!("status {status} for a request from byte {offset}");
            return Err(Error::new(ErrorKind::Protocol, context));
        }
    };
    if start != offset {
        return Err(Error::new(
            ErrorKind::Protocol,
            "the response has another range than requested",
        ));
    }
    match total {
        Some(total) if total != size => Err(Error::new(
            ErrorKind::ChangedDuringTransfer,
            format!("the file has {total} bytes now, it had {size}"),
        )),
        _ => Ok(()),
    }
}

/// Parses a `Content-Range` such as `bytes 5-9/10`: the start, and the total size if it is known.
fn parse_content_range(header: &str) -> Option<(u64, Option<u64>)> {
    let (part, total) = header.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = part.split_once('-')?;
    // `*` for an unknown size is allowed (RFC 9110, 14.4).
    Some((start.parse().ok()?, total.parse().ok()))
}

fn stream_error(cause: Cause) -> Error {
    match cause.downcast::<dray_http::HttpError>() {
        Ok(error) => unanswered(*error),
        Err(cause) => Error::new(ErrorKind::Unavailable, "the stream broke").caused_by(cause),
    }
}

/// Writes the content of an existing file.
pub(crate) async fn upload<P: Provider>(
    provider: &P,
    write: Write<'_>,
    body: Body,
) -> Result<(), Error> {
    let path = write.path.to_text()?;
    let body: ByteStream = body.exactly(write.size).map_err(Cause::from).boxed();
    let request = provider.upload(path, write.size, body);
    let response = provider.send(request).await?;
    provider.check_upload(write.path, response).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_gives_its_start_and_the_total_size() {
        assert_eq!(parse_content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(parse_content_range("bytes 0-0/*"), Some((0, None)));
        for wrong in ["", "bytes */10", "items 0-1/2", "bytes 1/2", "bytes a-b/c"] {
            assert_eq!(parse_content_range(wrong), None, "{wrong}");
        }
    }
}
