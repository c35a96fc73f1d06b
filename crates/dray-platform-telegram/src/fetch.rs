//! The bytes of what a user sent.

use std::path::Path;

use dray_http::MultipartForm;
use dray_platform::{ByteStream, ErrorKind, InboundAttachment, PlatformError, http};
use futures_util::StreamExt as _;
use serde::Deserialize;
use tokio_util::io::ReaderStream;

use crate::api::TelegramApi;
use crate::options::TelegramOptions;

/// The response of `getFile`.
#[derive(Debug, Deserialize)]
struct FileLocation {
    #[serde(default)]
    file_size: Option<u64>,
    #[serde(default)]
    file_path: String,
}

pub(crate) async fn fetch_file(
    options: &TelegramOptions,
    api: &TelegramApi,
    attachment: &InboundAttachment,
) -> Result<ByteStream, PlatformError> {
    let within = |size: u64| match options.download() {
        Some(limit) if size > limit => {
            let error = PlatformError::new(
                ErrorKind::TooLarge,
                "the file is larger than a bot may fetch",
            );
            Err(error.with_numbers(size, limit))
        }
        _ => Ok(()),
    };
    // The claimed size, before any request: `getFile` fails for such files anyway.
    within(attachment.size)?;
    let form = MultipartForm::new().text("file_id", &attachment.reference);
    let location = api.ask("getFile", form).await.map_err(|error| {
        // The refusal names no numbers, but the user should see them.
        match (error.kind(), options.download()) {
            (ErrorKind::TooLarge, Some(limit)) => error.with_numbers(attachment.size, limit),
            _ => error,
        }
    })?;
    let file: FileLocation = serde_json::from_value(location).map_err(|cause| {
        PlatformError::new(ErrorKind::Unknown, "the response is not a file").caused_by(cause)
    })?;
    // Again with the server's number: updates may claim none, which counts as 0.
    within(file.file_size.unwrap_or_default())?;
    if options.local_mode && file.file_path.starts_with('/') {
        return on_disk(options, &file).await;
    }
    let response = api.file(&file.file_path).await?;
    let length = response.length();
    if let (Some(file_size), Some(length)) = (file.file_size, length)
        // A proxy's error page with status 200 would otherwise become the file.
        && file_size != length
    {
        return Err(broken_stream("the file has another length than reported"));
    }
    Ok(exact_length_stream(
        file.file_size.or(length),
        http::response_stream(response),
    ))
}

/// Opens a file that a server in local mode named by its absolute path. Only files beneath `local_files` are read.
async fn on_disk(
    options: &TelegramOptions,
    file: &FileLocation,
) -> Result<ByteStream, PlatformError> {
    let refuse = |why: &str| PlatformError::new(ErrorKind::Forbidden, why);
    let Some(root) = &options.local_files else {
        return Err(refuse("local_files is not set"));
    };
    let missing = |cause: std::io::Error| {
        PlatformError::new(
            ErrorKind::Transient,
            "the file of the local server is missing",
        )
        .caused_by(cause)
    };
    // Both sides are resolved: `local_files` may itself be a symbolic link.
    let root = tokio::fs::canonicalize(root).await.map_err(missing)?;
    let path = tokio::fs::canonicalize(Path::new(&file.file_path)).await;
    let path = path.map_err(missing)?;
    if !path.starts_with(&root) {
        return Err(refuse("the path of the file leads out of local_files"));
    }
    let opened = tokio::fs::File::open(&path).await.map_err(missing)?;
    // From the open file, not from its path, which could lead elsewhere by now.
    let metadata = opened.metadata().await.map_err(missing)?;
    if !metadata.is_file() {
        return Err(refuse("the path does not lead to a regular file"));
    }
    let pieces = ReaderStream::with_capacity(opened, 256 * 1024);
    let body = pieces.map(|chunk| {
        chunk.map_err(|cause| {
            broken_stream("could not read the file of the local server").caused_by(cause)
        })
    });
    Ok(exact_length_stream(file.file_size, body.boxed()))
}

/// The same stream, which fails when it is shorter or longer than announced. Unchecked when no size is known.
fn exact_length_stream(size: Option<u64>, body: ByteStream) -> ByteStream {
    match size {
        Some(size) => http::exact_length_stream(size, body),
        None => body,
    }
}

fn broken_stream(context: &str) -> PlatformError {
    PlatformError::new(ErrorKind::Transient, context)
}
