//! Downloads of files that users sent.

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
    let check_limit = |size: u64| match options.download() {
        Some(limit) if size > limit => {
            let error = PlatformError::new(
                ErrorKind::TooLarge,
                "the file is larger than a bot may fetch",
            );
            Err(error.with_numbers(size, limit))
        }
        _ => Ok(()),
    };
    // The size in the update is checked before any request, because `getFile` fails for files above the limit anyway.
    check_limit(attachment.size)?;
    let form = MultipartForm::new().text("file_id", &attachment.reference);
    let location = api.ask("getFile", form).await.map_err(|error| {
        // The refusal has no sizes, but the user should see them.
        match (error.kind(), options.download()) {
            (ErrorKind::TooLarge, Some(limit)) => error.with_numbers(attachment.size, limit),
            _ => error,
        }
    })?;
    let file: FileLocation = serde_json::from_value(location).map_err(|cause| {
        PlatformError::new(ErrorKind::Unknown, "the response is not a file").caused_by(cause)
    })?;
    // The limit is checked again with the size from the server, because an update may have none, which counts as 0.
    check_limit(file.file_size.unwrap_or_default())?;
    if options.local_mode && file.file_path.starts_with('/') {
        return open_local_file(options, &file).await;
    }
    let response = api.file(&file.file_path).await?;
    let length = response.length();
    if let (Some(file_size), Some(length)) = (file.file_size, length)
        // Otherwise the error page of a proxy with status 200 would become the file.
        && file_size != length
    {
        return Err(broken_stream(
            "the length of the file is not the announced size",
        ));
    }
    Ok(exact_length_stream(
        file.file_size.or(length),
        http::response_stream(response),
    ))
}

/// Opens a file by its absolute path from a server in local mode. Only files in `local_files` are read.
async fn open_local_file(
    options: &TelegramOptions,
    file: &FileLocation,
) -> Result<ByteStream, PlatformError> {
    let refuse = |reason: &str| PlatformError::new(ErrorKind::Forbidden, reason);
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
    // Both paths are resolved, because `local_files` may be a symbolic link too.
    let root = tokio::fs::canonicalize(root).await.map_err(missing)?;
    let path = tokio::fs::canonicalize(Path::new(&file.file_path)).await;
    let path = path.map_err(missing)?;
    if !path.starts_with(&root) {
        return Err(refuse("the file is not in local_files"));
    }
    let opened = tokio::fs::File::open(&path).await.map_err(missing)?;
    // The metadata is that of the open file, because the path may refer to another file by now.
    let metadata = opened.metadata().await.map_err(missing)?;
    if !metadata.is_file() {
        return Err(refuse("the file is not a regular file"));
    }
    let chunks = ReaderStream::with_capacity(opened, 256 * 1024);
    let body = chunks.map(|chunk| {
        chunk.map_err(|cause| {
            broken_stream("could not read the file of the local server").caused_by(cause)
        })
    });
    Ok(exact_length_stream(file.file_size, body.boxed()))
}

/// Makes the stream fail if it is shorter or longer than announced. Without a known size, it is not checked.
fn exact_length_stream(size: Option<u64>, body: ByteStream) -> ByteStream {
    match size {
        Some(size) => http::exact_length_stream(size, body),
        None => body,
    }
}

fn broken_stream(context: &str) -> PlatformError {
    PlatformError::new(ErrorKind::Transient, context)
}
