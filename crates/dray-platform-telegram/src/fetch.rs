//! The bytes of what a user sent.

use std::path::Path;

use dray_http::MultipartForm;
use dray_platform::{ByteStream, ErrorKind, InboundAttachment, PlatformError, http};
use futures_util::StreamExt as _;
use serde::Deserialize;
use tokio_util::io::ReaderStream;

use crate::api::TelegramApi;
use crate::options::TelegramOptions;

/// Where a file is.
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
            let error = PlatformError::new(ErrorKind::TooLarge, "over what a bot may fetch");
            Err(error.with_numbers(size, limit))
        }
        _ => Ok(()),
    };
    within(attachment.size)?;
    let form = MultipartForm::new().text("file_id", &attachment.reference);
    let told = api.ask("getFile", form).await.map_err(|error| {
        // The refusal says no numbers; these are known.
        match (error.kind(), options.download()) {
            (ErrorKind::TooLarge, Some(limit)) => error.with_numbers(attachment.size, limit),
            _ => error,
        }
    })?;
    let file: FileLocation = serde_json::from_value(told).map_err(|cause| {
        PlatformError::new(ErrorKind::Unknown, "the answer is no file").caused_by(cause)
    })?;
    within(file.file_size.unwrap_or_default())?;
    if options.local_mode && file.file_path.starts_with('/') {
        return on_disk(options, &file).await;
    }
    let answer = api.file(&file.file_path).await?;
    let length = answer.length();
    if let (Some(told), Some(length)) = (file.file_size, length)
        && told != length
    {
        return Err(broken_stream("the file has another length than was told"));
    }
    Ok(exact_length_stream(
        file.file_size.or(length),
        http::response_stream(answer),
    ))
}

/// A server in local mode names a path of its own disk.
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
    let root = tokio::fs::canonicalize(root).await.map_err(missing)?;
    let path = tokio::fs::canonicalize(Path::new(&file.file_path)).await;
    let path = path.map_err(missing)?;
    if !path.starts_with(&root) {
        return Err(refuse("the path of the file leads out of local_files"));
    }
    let opened = tokio::fs::File::open(&path).await.map_err(missing)?;
    let metadata = opened.metadata().await.map_err(missing)?;
    if !metadata.is_file() {
        return Err(refuse("the path of the file leads to no file"));
    }
    let pieces = ReaderStream::with_capacity(opened, 256 * 1024);
    let body = pieces.map(|piece| {
        piece.map_err(|cause| broken_stream("the file of the local server broke").caused_by(cause))
    });
    Ok(exact_length_stream(file.file_size, body.boxed()))
}

/// The same stream, which fails when it is shorter or longer than announced.
fn exact_length_stream(size: Option<u64>, body: ByteStream) -> ByteStream {
    match size {
        Some(size) => http::exact_length_stream(size, body),
        None => body,
    }
}

fn broken_stream(context: &str) -> PlatformError {
    PlatformError::new(ErrorKind::Transient, context)
}
