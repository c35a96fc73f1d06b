//! The archive calls of the engine: stat, download, upload (sandbox-transfer 4.2 to 4.4).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use dray_sandbox::{Body, Error, ErrorKind, FileKind};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::{HeaderMap, Method, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;

use crate::client::Client;
use crate::wire::{Connection, EngineResponse, RequestBody, empty, outgoing};

/// Header in which the engine describes a path.
const PATH_STAT: &str = "x-docker-container-path-stat";
/// Media type of an upload. A form's type would make the engine drop the body and answer 200 (sandbox-transfer 4.4).
const TAR_MEDIA_TYPE: &str = "application/x-tar";
/// Bytes of a path that are escaped: all that could have a meaning in a query.
const PATH_BYTE_SET: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Description of a path by the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathStat {
    /// Kind of the entry; the last link is not followed.
    pub(crate) kind: FileKind,
    /// Size in bytes; for a link the length of its text.
    pub(crate) size: u64,
    /// The 12 low mode bits: permissions, set-id and sticky.
    pub(crate) mode: u32,
    /// Time of the last write in nanoseconds since the epoch.
    pub(crate) mtime_ns: Option<i128>,
}

#[derive(Deserialize)]
struct PathStatHeader {
    size: i64,
    mode: u32,
    #[serde(default)]
    mtime: String,
}

impl PathStat {
    /// Reads the header of a response to HEAD or GET.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Error> {
        let invalid = || Error::new(ErrorKind::Protocol, "the engine does not describe the path");
        let value = headers.get(PATH_STAT).ok_or_else(invalid)?;
        // Docker writes the standard alphabet, Podman the one for URLs.
        let json = STANDARD
            .decode(value.as_bytes())
            .or_else(|_| URL_SAFE.decode(value.as_bytes()))
            .map_err(|error| invalid().caused_by(error))?;
        let wire: PathStatHeader =
            serde_json::from_slice(&json).map_err(|error| invalid().caused_by(error))?;
        let mtime = wire.mtime.parse::<jiff::Timestamp>().ok();
        Ok(Self {
            kind: kind(wire.mode),
            // Only an engine that breaks its own contract reports a negative size.
            size: u64::try_from(wire.size).unwrap_or(0),
            mode: low_bits(wire.mode),
            mtime_ns: mtime.map(jiff::Timestamp::as_nanosecond),
        })
    }
}

/// Kind of a file in Go's `os.FileMode`, whose bits differ from those of `st_mode`.
fn kind(mode: u32) -> FileKind {
    let has = |bit: u32| mode & (1 << bit) != 0;
    match () {
        () if has(31) => FileKind::Directory,
        () if has(27) => FileKind::Symlink,
        () if has(25) => FileKind::Fifo,
        () if has(24) => FileKind::Socket,
        () if has(26) && has(21) => FileKind::CharDevice,
        () if has(26) => FileKind::BlockDevice,
        () if has(19) => FileKind::Other,
        () => FileKind::File,
    }
}

/// Permissions, set-id and sticky bits of Go's `os.FileMode`.
fn low_bits(mode: u32) -> u32 {
    let bit = |from: u32, to: u32| ((mode >> from) & 1) << to;
    (mode & 0o777) | bit(23, 11) | bit(22, 10) | bit(20, 9)
}

impl Client {
    /// Describes a path; a link at its end is not followed. `connection` is kept for the next call.
    pub(crate) async fn stat_path(
        &self,
        connection: &mut Option<Connection>,
        container: &str,
        path: &[u8],
    ) -> Result<PathStat, Error> {
        let request = self.archive(Method::HEAD, container, path).await?;
        let mut open = match connection.take().filter(Connection::is_open) {
            Some(open) => open,
            None => self.connect().await?,
        };
        let response = self.head(open.send(request)).await?;
        let reply = EngineResponse::new(open, response);
        let status = reply.status;
        if status.is_success() {
            let stat = PathStat::of(&reply.headers)?;
            let (_, open) = reply.text().await?;
            *connection = Some(open);
            return Ok(stat);
        }
        // A response to HEAD has no body and so no reason; nearly always the path is missing. The connection is closed
        // first, because the next request opens its own.
        drop(reply);
        if status.as_u16() == 404 {
            // The container may be missing instead, which is another kind of failure.
            self.inspect(container).await?;
            return Err(Error::new(ErrorKind::NotFound, "the path does not exist"));
        }
        // The same request as GET has a body with the reason.
        match self.download(container, path).await {
            Ok((stat, _)) => Ok(stat),
            Err(error) => Err(error),
        }
    }

    /// Downloads a path as a tar, with the description of the path.
    pub(crate) async fn download(
        &self,
        container: &str,
        path: &[u8],
    ) -> Result<(PathStat, Body), Error> {
        let request = self.archive(Method::GET, container, path).await?;
        let mut connection = self.connect().await?;
        let response = self.head(connection.send(request)).await?;
        let reply = EngineResponse::new(connection, response);
        let reply = reply
            .require_success("downloading from a container")
            .await?;
        let encoding = reply.headers.get(CONTENT_ENCODING);
        // The engine may compress the tar itself, and so may a proxy in between.
        if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the response has an encoding that was not requested",
            ));
        }
        let stat = PathStat::of(&reply.headers)?;
        Ok((stat, reply.into_body()))
    }

    /// Uploads a plain tar, which the engine unpacks into a directory.
    pub(crate) async fn upload(
        &self,
        container: &str,
        directory: &[u8],
        tar: Body,
    ) -> Result<(), Error> {
        let mut request = self.archive(Method::PUT, container, directory).await?;
        *request.body_mut() = outgoing(tar);
        let mut connection = self.connect().await?;
        // The request has no time limit: the response comes after the last byte, and the owner of the body checks its
        // rate.
        let response = connection.send(request).await?;
        let reply = EngineResponse::new(connection, response);
        reply.require_success("uploading to a container").await?;
        Ok(())
    }

    async fn archive(
        &self,
        method: Method,
        container: &str,
        path: &[u8],
    ) -> Result<Request<RequestBody>, Error> {
        let version = self.version().await?;
        // The query is written by hand, because the client library takes text, and a path may hold any bytes.
        let path = percent_encode(path, PATH_BYTE_SET);
        Request::builder()
            .method(method)
            .uri(format!(
                "/v{version}/containers/{container}/archive?path={path}"
            ))
            .header(HOST, "docker")
            // The engine compresses a download when the client seems to accept that (sandbox-transfer 4.3).
            .header(ACCEPT_ENCODING, "identity")
            .header(CONTENT_TYPE, TAR_MEDIA_TYPE)
            .body(empty())
            .map_err(|error| Error::new(ErrorKind::InvalidName, "a request").caused_by(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat_from_json(json: &str) -> Result<PathStat, Error> {
        let mut headers = HeaderMap::new();
        let value = STANDARD.encode(json).parse().unwrap();
        headers.insert(PATH_STAT, value);
        PathStat::of(&headers)
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        let mut headers = HeaderMap::new();
        let value = "eyJuYW1lIjoicmVwb3J0LnBkZiIsInNpemUiOjUsIm1vZGUiOjQyMCwibXRpbWUiOiIyMDI2LTAxLTAyVDAzOjA0OjA1WiIsImxpbmtUYXJnZXQiOiIifQ==";
        headers.insert(PATH_STAT, value.parse().unwrap());
        let stat = PathStat::of(&headers).unwrap();
        assert_eq!(
            stat,
            PathStat {
                kind: FileKind::File,
                size: 5,
                mode: 0o644,
                mtime_ns: Some(1_767_323_045_000_000_000),
            }
        );
    }

    #[test]
    fn the_alphabet_for_urls_is_read_too() {
        let json = r#"{"name":"?>~?>~","size":7,"mode":420,"mtime":"2026-01-02T03:04:05Z"}"#;
        let value = URL_SAFE.encode(json);
        assert!(value.contains(['-', '_']), "{value}");
        let mut headers = HeaderMap::new();
        headers.insert(PATH_STAT, value.parse().unwrap());
        assert_eq!(PathStat::of(&headers).unwrap().size, 7);
    }

    #[test]
    fn modes_of_go_are_distinguished() {
        let go = |bits: &[u32]| bits.iter().fold(0, |mode, bit| mode | 1 << bit);
        for (bits, expected) in [
            (&[31_u32][..], FileKind::Directory),
            (&[27], FileKind::Symlink),
            (&[25], FileKind::Fifo),
            (&[24], FileKind::Socket),
            (&[26, 21], FileKind::CharDevice),
            (&[26], FileKind::BlockDevice),
            (&[19], FileKind::Other),
            (&[], FileKind::File),
        ] {
            assert_eq!(kind(go(bits) | 0o640), expected);
        }
        assert_eq!(low_bits(go(&[23, 22, 20, 31]) | 0o751), 0o7751);
    }

    #[test]
    fn times_keep_their_nanoseconds() {
        let stat = stat_from_json(
            r#"{"name":"x","size":0,"mode":420,"mtime":"2026-01-02T03:04:05.123456789+01:00"}"#,
        );
        assert_eq!(stat.unwrap().mtime_ns, Some(1_767_319_445_123_456_789));
    }

    #[test]
    fn an_answer_that_describes_nothing_makes_no_sense() {
        assert_eq!(
            PathStat::of(&HeaderMap::new()).unwrap_err().kind(),
            ErrorKind::Protocol
        );
        for json in ["", "{}", "[1]", r#"{"size":"5","mode":1}"#] {
            assert_eq!(
                stat_from_json(json).unwrap_err().kind(),
                ErrorKind::Protocol
            );
        }
    }

    #[test]
    fn paths_of_any_bytes_fit_into_a_query() {
        let path = b"/a b&c=d?#%+\n\xff/\xc3\xa4";
        assert_eq!(
            percent_encode(path, PATH_BYTE_SET).to_string(),
            "/a%20b%26c%3Dd%3F%23%25%2B%0A%FF/%C3%A4"
        );
    }
}
