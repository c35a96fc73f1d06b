//! Files out of a sandbox and into it, through the store, as streams.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use dray_proto::v1::{self, ConsoleAction};
use dray_store::{ArtifactLabel, ArtifactReader, ReadError, Store};
use dray_types::{Claim, Deadline, Fault, FaultCode};
use futures_util::stream;
use http::{StatusCode, header};
use maud::html;
use multer::{Field, Multipart};

use crate::audit::ActionRequest;
use crate::calls::fault_notice;
use crate::form::{self, FormFields, TOKEN_FIELD};
use crate::respond::{set_header, with_type};
use crate::sandboxes::{SandboxPlace, frame};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::{self, shown};

/// Longest time for one file.
const FILE_TIMEOUT: Duration = Duration::from_mins(10);
/// Longest time without a byte of a file from the browser.
const UPLOAD_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest field of a form before the file, in bytes.
const MAX_FIELD_BYTES: usize = 8 * 1024;
/// Most fields before the file.
const MAX_FIELDS: usize = 8;

/// `POST /sandboxes/file`: a file of a sandbox, always as a download.
pub(crate) async fn get_file(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    body: Body,
) -> Response {
    let fields = match FormFields::of_action(body, &session).await {
        Ok(fields) => fields,
        Err(refused) => return refused,
    };
    let Some(place) = SandboxPlace::of_fields(&fields) else {
        return failed_page(&state, &session, &invalid_fault("The form names no file."));
    };
    match copy_out(&state, &session, &place).await {
        Ok((claim, reader)) => download(&claim, reader),
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

async fn copy_out(
    state: &ConsoleState,
    session: &ConsoleSession,
    place: &SandboxPlace,
) -> Result<(Claim, ArtifactReader), Fault> {
    let store = store_of(state)?;
    let action = file_action(ConsoleAction::SandboxGet, place.sentence());
    let action = state.begin_action(session, action).await?;
    let request = v1::GetSandboxFileRequest {
        sandbox: Some(place.reference()),
        path: place.path.clone().into_bytes(),
        max_bytes: 0,
    };
    let copied = state.act(&action.meta, &request).await;
    let claim = action.finish(copied).await?.claim;
    let claim = claim.ok_or_else(Fault::internal)?;
    let claim = Claim::try_from(claim).map_err(|_| Fault::internal())?;
    let deadline = Deadline::after(state.now_ms(), FILE_TIMEOUT);
    let reader = store.read(&state.tenant, &claim, deadline).await?;
    Ok((claim, reader))
}

/// The file as a stream. When its content turns out damaged the connection breaks before its last bytes.
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
    // Bytes of others: never rendered under the origin of the console.
    let mut response = with_type(
        StatusCode::OK,
        "application/octet-stream",
        Body::from_stream(bytes),
    );
    let name = text::url_part(&claim.artifact.name);
    for (header, value) in [
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename*=UTF-8''{name}"),
        ),
        (header::CONTENT_LENGTH, size.to_string()),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; sandbox".to_owned(),
        ),
    ] {
        set_header(&mut response, header, &value);
    }
    response
}

/// `POST /sandboxes/put`: a form with the token, the place and then the file.
pub(crate) async fn put_file(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    request: Request,
) -> Response {
    if !session.can_act() {
        return form::acting_refused();
    }
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let Some(boundary) = content_type.and_then(|value| multer::parse_boundary(value).ok()) else {
        return failed_page(
            &state,
            &session,
            &invalid_fault("The form is not one with a file."),
        );
    };
    let form = Multipart::new(request.into_body().into_data_stream(), boundary);
    let upload = match FileUpload::open(form, &session).await {
        Ok(upload) => upload,
        Err(UploadRefusal::Forged) => return form::forged_form(),
        Err(UploadRefusal::Failed(fault)) => return failed_page(&state, &session, &fault),
    };
    match upload.place_file(&state, &session).await {
        Ok((place, placed)) => frame(&state, &session).render(&html! {
            p #placed.notice role="status" {
                strong { (shown(&placed.path)) } " is in the sandbox: " (placed.size) " bytes, "
                code { "sha256:" (text::hex_digits(&placed.sha256)) }
                @if placed.renamed { ", under another name because that one was taken" }
                @if placed.existed { "; the same file was there already" } "."
            }
            p { a href=(place.page_path()) { "Back to the directory" } }
        }),
        Err(fault) => failed_page(&state, &session, &fault),
    }
}

/// A form whose file begins.
struct FileUpload {
    place: SandboxPlace,
    name: String,
    file: Field<'static>,
}

/// Why a form is not taken.
enum UploadRefusal {
    Forged,
    Failed(Fault),
}

impl FileUpload {
    /// Reads the fields before the file. The token comes first, so nothing of a forged form is stored.
    async fn open(
        mut form: Multipart<'static>,
        session: &ConsoleSession,
    ) -> Result<Self, UploadRefusal> {
        let mut before = Vec::new();
        let mut is_own = false;
        for _ in 0..MAX_FIELDS {
            let field = next_part(form.next_field()).await?;
            let Some(mut field) = field else { break };
            let name = field.name().unwrap_or_default().to_owned();
            if field.file_name().is_none() {
                let value = field_text(&mut field).await?;
                is_own |= name == TOKEN_FIELD && session.has_token(&value);
                before.push((name, value));
                continue;
            }
            if !is_own {
                return Err(UploadRefusal::Forged);
            }
            let file_name = field.file_name().unwrap_or_default().to_owned();
            let place = SandboxPlace::of_fields(&FormFields::of_pairs(before));
            return match place {
                Some(place) if !file_name.is_empty() => Ok(Self {
                    place,
                    name: file_name,
                    file: field,
                }),
                _ => Err(UploadRefusal::Failed(invalid_fault(
                    "No file was chosen, or the form names no sandbox.",
                ))),
            };
        }
        Err(if is_own {
            UploadRefusal::Failed(invalid_fault("The form has no file."))
        } else {
            UploadRefusal::Forged
        })
    }

    /// Stores the file and has it placed.
    async fn place_file(
        self,
        state: &ConsoleState,
        session: &ConsoleSession,
    ) -> Result<(SandboxPlace, v1::PlacedFile), Fault> {
        let store = store_of(state)?;
        let Self { place, name, file } = self;
        let target = SandboxPlace {
            path: format!("{}/{name}", place.path.trim_end_matches('/')),
            ..place.clone()
        };
        let action = file_action(ConsoleAction::SandboxPut, target.sentence());
        let action = state.begin_action(session, action).await?;
        let placed = async {
            let mut writer = store.writer(&state.tenant, &action.meta.operation, 1);
            copy_in(&mut writer, file, state.settings.max_upload_bytes).await?;
            // The type that the browser names is a guess from the extension; sandbox-transfer looks at the bytes.
            let label = ArtifactLabel::new("application/octet-stream", &name);
            let claim = writer.finish(label).await?;
            let request = v1::PutSandboxFileRequest {
                sandbox: Some(place.reference()),
                claim: Some(claim.into()),
                directory: place.path.clone().into_bytes(),
                name: name.clone().into_bytes(),
                // A drop by mistake must not cost the agent its file.
                collision: "rename".to_owned(),
                mode: 0,
            };
            state.act(&action.meta, &request).await
        };
        let placed = placed.await;
        Ok((place, action.finish(placed).await?))
    }
}

async fn copy_in(
    writer: &mut dray_store::ArtifactWriter,
    mut file: Field<'static>,
    max_bytes: u64,
) -> Result<(), Fault> {
    while let Some(bytes) = next_part(file.chunk())
        .await
        .map_err(|refusal| match refusal {
            UploadRefusal::Failed(fault) => fault,
            UploadRefusal::Forged => Fault::internal(),
        })?
    {
        // Counted as it comes: what a browser says about the length is not trusted.
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

/// The next part of a form, unless the browser stalls or the form is broken.
async fn next_part<T>(
    part: impl Future<Output = Result<T, multer::Error>>,
) -> Result<T, UploadRefusal> {
    let failed = |text| UploadRefusal::Failed(invalid_fault(text));
    tokio::time::timeout(UPLOAD_IDLE_TIMEOUT, part)
        .await
        .map_err(|_| failed("The upload stalled for 30 seconds."))?
        .map_err(|_| failed("The upload was cut off, or is not a valid form."))
}

async fn field_text(field: &mut Field<'static>) -> Result<String, UploadRefusal> {
    let mut text = Vec::new();
    while let Some(bytes) = next_part(field.chunk()).await? {
        if text.len() + bytes.len() > MAX_FIELD_BYTES {
            return Err(UploadRefusal::Failed(invalid_fault(
                "A field of the form is too long.",
            )));
        }
        text.extend_from_slice(&bytes);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
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

fn invalid_fault(text: &str) -> Fault {
    Fault::new(FaultCode::InvalidArgument, text)
}

fn failed_page(state: &ConsoleState, session: &ConsoleSession, fault: &Fault) -> Response {
    frame(state, session).render(&html! {
        (fault_notice("The file was not copied.", fault))
        p { a href="/sandboxes" { "Back to the sandboxes" } }
    })
}
