//! Files out of a sandbox and into it, through the store, as streams.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use dray_proto::v1::{self, ConsoleAction};
use dray_store::{ArtifactLabel, ArtifactReader, ReadError, Store};
use dray_types::hex::hex_digits;
use dray_types::{Claim, Deadline, Fault, FaultCode};
use futures_util::stream;
use http::{StatusCode, header};
use maud::html;
use multer::Field;

use crate::audit::ActionRequest;
use crate::form::ActionForm;
use crate::respond::{as_download, set_header, with_type};
use crate::sandboxes::{SandboxLocation, frame};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::shown;
use crate::upload::{ActionUpload, UploadForm, invalid_fault, next_part};

/// Longest time for one file.
const FILE_TIMEOUT: Duration = Duration::from_mins(10);
/// Largest field of a form before the file, in bytes.
const MAX_FIELD_BYTES: usize = 16 * 1024;

/// `POST /sandboxes/file`: a file of a sandbox, always as a download.
pub(crate) async fn get_file(
    State(state): State<ConsoleState>,
    ActionForm { session, fields }: ActionForm,
) -> Response {
    let Some(location) = SandboxLocation::of_fields(&fields) else {
        return failed_page(&state, &session, &invalid_fault("The form names no file."));
    };
    match copy_out(&state, &session, &location).await {
        Ok((claim, reader)) => download(&claim, reader),
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

async fn copy_out(
    state: &ConsoleState,
    session: &ConsoleSession,
    location: &SandboxLocation,
) -> Result<(Claim, ArtifactReader), Fault> {
    let store = store_of(state)?;
    let action = file_action(ConsoleAction::SandboxGet, location.sentence());
    let action = state.begin_action(session, action).await?;
    let request = v1::GetSandboxFileRequest {
        sandbox: Some(location.reference()),
        path: location.path.clone().into_bytes(),
        ..v1::GetSandboxFileRequest::default()
    };
    let copied = state.call_once(&action.meta, &request).await;
    let claim = action.finish(copied).await?.claim;
    let claim = claim.ok_or_else(Fault::internal)?;
    let claim = Claim::try_from(claim).map_err(|_| Fault::internal())?;
    let deadline = Deadline::after(state.now_ms(), FILE_TIMEOUT);
    let reader = store.read(&state.tenant, &claim, deadline).await?;
    Ok((claim, reader))
}

/// The file as a stream. If the stored content is damaged, the connection breaks before the last bytes.
pub(crate) fn download(claim: &Claim, reader: ArtifactReader) -> Response {
    let size = reader.size();
    let bytes = stream::unfold(Some(reader), async |reader| {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(bytes)) => Some((Ok(bytes), Some(reader))),
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(%error, "a download from the console was cut");
                Some((Err::<Bytes, ReadError>(error), None))
            }
        }
    });
    // The content comes from outside, so browsers must never render it under the origin of the console.
    let mut response = with_type(
        StatusCode::OK,
        "application/octet-stream",
        Body::from_stream(bytes),
    );
    as_download(&mut response, &claim.artifact.name);
    set_header(&mut response, header::CONTENT_LENGTH, &size.to_string());
    response
}

/// `POST /sandboxes/put`: a form with the token, the location and then the file.
pub(crate) async fn put_file(
    State(state): State<ConsoleState>,
    ActionUpload { session, form }: ActionUpload<MAX_FIELD_BYTES>,
) -> Response {
    let placed = match form.and_then(FileUpload::of_form) {
        Ok(upload) => upload.place_file(&state, &session).await,
        Err(fault) => Err(fault),
    };
    match placed {
        Ok((location, placed)) => frame(&state, &session).render(&html! {
            p #placed.notice role="status" {
                strong { (shown(&placed.path)) } " is in the sandbox: " (placed.size) " bytes, "
                code { "sha256:" (hex_digits(&placed.sha256)) }
                @if placed.renamed { ", under another name because that one was taken" }
                @if placed.existed { "; the same file was there already" } "."
            }
            p { a href=(location.page_path()) { "Back to the directory" } }
        }),
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

/// A form that was read up to the bytes of its file.
struct FileUpload {
    /// The directory that gets the file.
    location: SandboxLocation,
    name: String,
    file: Field<'static>,
}

impl FileUpload {
    fn of_form(form: UploadForm) -> Result<Self, Fault> {
        let file = form
            .file
            .ok_or_else(|| invalid_fault("The form has no file."))?;
        let name = file.file_name().unwrap_or_default().to_owned();
        match SandboxLocation::of_fields(&form.fields) {
            Some(location) if !name.is_empty() => Ok(Self {
                location,
                name,
                file,
            }),
            _ => Err(invalid_fault(
                "No file was chosen, or the form names no sandbox.",
            )),
        }
    }

    /// Stores the file, and has sandbox-transfer place it in the sandbox.
    async fn place_file(
        self,
        state: &ConsoleState,
        session: &ConsoleSession,
    ) -> Result<(SandboxLocation, v1::PlacedFile), Fault> {
        let store = store_of(state)?;
        let Self {
            location,
            name,
            file,
        } = self;
        let target = SandboxLocation {
            path: format!("{}/{name}", location.path.trim_end_matches('/')),
            ..location.clone()
        };
        let action = file_action(ConsoleAction::SandboxPut, target.sentence());
        let action = state.begin_action(session, action).await?;
        let placed = async {
            let mut writer = store.writer(&state.tenant, &action.meta.operation, 1);
            copy_in(&mut writer, file, state.settings.max_upload_bytes).await?;
            // The media type of the browser is a guess from the extension; sandbox-transfer detects it from the bytes.
            let label = ArtifactLabel::new("application/octet-stream", &name);
            let claim = writer.finish(label).await?;
            let request = v1::PutSandboxFileRequest {
                sandbox: Some(location.reference()),
                claim: Some(claim.into()),
                directory: location.path.clone().into_bytes(),
                name: name.clone().into_bytes(),
                // A file that was dropped by mistake must not replace a file of the agent.
                collision: "rename".to_owned(),
                mode: 0,
            };
            state.call_once(&action.meta, &request).await
        };
        let placed = placed.await;
        Ok((location, action.finish(placed).await?))
    }
}

async fn copy_in(
    writer: &mut dray_store::ArtifactWriter,
    mut file: Field<'static>,
    max_bytes: u64,
) -> Result<(), Fault> {
    while let Some(bytes) = next_part(file.chunk()).await? {
        // The size is counted while it arrives: the length that a browser announces is not trusted.
        if writer.size() + bytes.len() as u64 > max_bytes {
            return Err(Fault::new(
                FaultCode::TooLarge,
                format!("The file has more than the {max_bytes} bytes that the console takes."),
            )
            .detail("upload_too_large"));
        }
        writer.write(bytes).await?;
    }
    Ok(())
}

fn file_action(action: ConsoleAction, target: String) -> ActionRequest {
    ActionRequest {
        action,
        target,
        time: FILE_TIMEOUT,
        operation: None,
    }
}

fn store_of(state: &ConsoleState) -> Result<&Store, Fault> {
    state.store.as_ref().ok_or_else(|| {
        Fault::new(
            FaultCode::Unsupported,
            "This console has no store, so it copies no files.",
        )
        .detail("no_store")
        .advice("Start it with --s3 URL.")
    })
}

fn failed_page(state: &ConsoleState, session: &ConsoleSession, fault: &Fault) -> Response {
    let back = ("/sandboxes", "the sandboxes");
    frame(state, session).render_failure("The file was not copied.", fault, back)
}
