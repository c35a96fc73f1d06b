//! Uploads of `/v1/uploads`: files that come in parts. Each part is content in the store, and one record of the upload
//! names its parts; a completed upload is a file of [`crate::client_files`].
//!
//! A record is changed by compare-and-set, so parts may come concurrently and at any replica. An upload is completed
//! once: the same request again finds the same file.

use dray_agent::failure::RequestFailure;
use dray_media_type::kind;
use dray_store::{ArtifactLabel, ReadError};
use dray_types::hex::hex_digits;
use dray_types::{ByteSize, Claim, OperationId, Period};
use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client_files::{ClientFiles, FileRecord};
use crate::records::{
    ContentRef, RecordError, RecordKind, RevisedRecord, random_id, store_failure,
    unavailable_failure,
};

/// How ids of uploads begin, as in `OpenAI`'s API.
const UPLOAD_ID_PREFIX: &str = "upload_";
/// Prefix of the ids of parts.
const PART_ID_PREFIX: &str = "part_";
/// Time for which parts are accepted, as in `OpenAI`'s API.
const UPLOAD_LIFETIME: Period = Period::secs(3600);
/// Most bytes of one part, as in `OpenAI`'s API.
pub(crate) const MAX_PART_BYTES: ByteSize = ByteSize::mib(64);
/// Most parts of one upload, including parts that the completed file does not use; one record contains them all.
const MAX_PARTS: usize = 1000;
/// All parts together may have this multiple of the size of the file: a client sends a part again when it did not get
/// the response to the first attempt.
const REPEAT_FACTOR: u64 = 2;
/// Attempts to write a record to which several parts are added concurrently.
const MAX_ATTEMPTS: usize = 20;
/// Code of failures of uploads that are not open.
const STATUS_CODE: &str = "invalid_upload_status";

/// A file as the client announces it before it sends parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnnouncedFile {
    /// Name for people, cleaned.
    pub(crate) name: String,
    /// Purpose, as in [`FileRecord`].
    pub(crate) purpose: String,
    /// Size in bytes, which all parts must have together.
    pub(crate) bytes: u64,
    /// How long the file is kept, in milliseconds.
    pub(crate) lifetime_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum UploadStatus {
    Pending,
    Completed,
    Cancelled,
}

/// A part whose bytes are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UploadPart {
    id: String,
    content: ContentRef,
}

/// An upload of one caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UploadRecord {
    announced: AnnouncedFile,
    status: UploadStatus,
    created_ms: u64,
    /// Unix milliseconds from which no part is taken.
    expires_ms: u64,
    parts: Vec<UploadPart>,
    /// The file of a completed upload.
    file: Option<(String, FileRecord)>,
    /// The parts of that file, in their order.
    used_parts: Vec<String>,
}

impl UploadRecord {
    /// The object of `OpenAI`'s API.
    pub(crate) fn object(&self, id: &str, now_ms: u64) -> Value {
        let status = match self.status {
            UploadStatus::Completed => "completed",
            UploadStatus::Cancelled => "cancelled",
            UploadStatus::Pending if self.expires_ms <= now_ms => "expired",
            UploadStatus::Pending => "pending",
        };
        json!({
            "id": id,
            "object": "upload",
            "bytes": self.announced.bytes,
            "created_at": self.created_ms / 1000,
            "expires_at": self.expires_ms / 1000,
            "filename": self.announced.name,
            "purpose": self.announced.purpose,
            "status": status,
            "file": self.file.as_ref().map(|(id, file)| file.object(id)),
        })
    }

    /// Whether it is completed, and its file consists of these parts.
    fn is_completed_with(&self, part_ids: &[String]) -> bool {
        self.status == UploadStatus::Completed && self.used_parts == part_ids
    }

    fn part(&self, id: &str) -> Option<&UploadPart> {
        self.parts.iter().find(|part| part.id == id)
    }

    fn received(&self) -> u64 {
        let sizes = self.parts.iter().map(|part| part.content.size());
        sizes.fold(0, u64::saturating_add)
    }
}

/// The uploads of all callers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ClientUploads {
    files: ClientFiles,
}

impl ClientUploads {
    /// Uploads that are completed into `files`.
    pub(crate) const fn new(files: ClientFiles) -> Self {
        Self { files }
    }

    /// Now, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.files.records().now_ms()
    }

    /// Begins an upload. Returns its id.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn create(
        &self,
        principal: &str,
        announced: AnnouncedFile,
    ) -> Result<(String, UploadRecord), RequestFailure> {
        let created_ms = self.now_ms();
        let record = UploadRecord {
            announced,
            status: UploadStatus::Pending,
            created_ms,
            expires_ms: created_ms.saturating_add(UPLOAD_LIFETIME.as_millis()),
            parts: Vec::new(),
            file: None,
            used_parts: Vec::new(),
        };
        let id = random_id(UPLOAD_ID_PREFIX);
        let records = self.files.records();
        let created = records.create(RecordKind::Upload, principal, &id, &record);
        created.await?;
        Ok((id, record))
    }

    /// The most bytes that a next part may have.
    ///
    /// # Errors
    ///
    /// 404 for an upload that does not exist or belongs to another caller, 400 for one that takes no more parts, 503
    /// while the bus fails.
    pub(crate) async fn part_limit(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<ByteSize, RequestFailure> {
        let record = self.open(principal, id).await?.value;
        part_limit_of(&record)
    }

    /// Adds a part whose bytes are stored. Returns the object of the API.
    ///
    /// # Errors
    ///
    /// Those of [`Self::part_limit`]; the limit applies to all concurrent parts together.
    pub(crate) async fn add_part(
        &self,
        principal: &str,
        id: &str,
        claim: &Claim,
    ) -> Result<Value, RequestFailure> {
        let part = UploadPart {
            id: random_id(PART_ID_PREFIX),
            content: ContentRef::of(claim),
        };
        for _ in 0..MAX_ATTEMPTS {
            let mut record = self.open(principal, id).await?;
            let limit = part_limit_of(&record.value)?;
            if part.content.size() > limit.as_u64() {
                return Err(invalid_value(
                    "data",
                    format!("The part is larger than {limit}."),
                ));
            }
            // The id is the same in all attempts, so the record gets the part once.
            record.value.parts.push(part.clone());
            match self.update(principal, id, &record).await {
                Err(RecordError::Stale) => {}
                written => {
                    written?;
                    return Ok(json!({
                        "id": part.id,
                        "object": "upload.part",
                        "created_at": self.now_ms() / 1000,
                        "upload_id": id,
                    }));
                }
            }
        }
        Err(unavailable_failure())
    }

    /// Makes a file of these parts, in this order.
    ///
    /// # Errors
    ///
    /// 404 and 503 as elsewhere; 400 for an upload that is not pending, for parts that are unknown or named twice, and
    /// for parts that together have another size than announced or another MD5 digest. After an error the upload is
    /// still pending.
    pub(crate) async fn complete(
        &self,
        principal: &str,
        id: &str,
        part_ids: &[String],
        md5: Option<&str>,
    ) -> Result<Value, RequestFailure> {
        let mut record = self.find(principal, id).await?;
        if record.value.is_completed_with(part_ids) {
            // The response to the first request was lost.
            return Ok(record.value.object(id, self.now_ms()));
        }
        self.check_open(&record.value)?;
        let parts = named_parts(&record.value, part_ids)?;
        let claim = self.join(&record.value.announced, &parts, md5).await?;
        let announced = &record.value.announced;
        let lifetime = Period::millis(announced.lifetime_ms);
        let purpose = announced.purpose.clone();
        let added = self
            .files
            .add(principal, &claim, &purpose, lifetime)
            .await?;
        record.value.status = UploadStatus::Completed;
        record.value.file = Some(added);
        record.value.used_parts = part_ids.to_vec();
        // The file has the content; the record is kept for repeated requests.
        record.value.parts.clear();
        match self.update(principal, id, &record).await {
            Ok(()) => Ok(record.value.object(id, self.now_ms())),
            Err(error) => self.completed(principal, id, &record.value, error).await,
        }
    }

    /// The upload after an update that completed it and failed: another request may have been first, or only the
    /// response was lost. A file that no upload names is deleted.
    async fn completed(
        &self,
        principal: &str,
        id: &str,
        own: &UploadRecord,
        error: RecordError,
    ) -> Result<Value, RequestFailure> {
        let own_file = own.file.as_ref().map(|(id, _)| id.as_str());
        for _ in 0..MAX_ATTEMPTS {
            // While the record cannot be read, it may name the file, which stays.
            let found = self.find(principal, id).await?;
            let file = found.value.file.as_ref().map(|(id, _)| id.as_str());
            if file == own_file {
                return Ok(found.value.object(id, self.now_ms()));
            }
            if found.value.status == UploadStatus::Pending {
                // A request that was not lost but late must not name the file after it is deleted.
                match self.update(principal, id, &found).await {
                    Ok(()) => {}
                    Err(RecordError::Stale) => continue,
                    Err(RecordError::Failed(failure)) => return Err(failure),
                }
            }
            if let Some(file) = own_file {
                self.files.delete(principal, file).await?;
            }
            if found.value.is_completed_with(&own.used_parts) {
                return Ok(found.value.object(id, self.now_ms()));
            }
            return Err(match error {
                RecordError::Stale => status_failure("was changed by another request"),
                error @ RecordError::Failed(_) => error.into(),
            });
        }
        Err(unavailable_failure())
    }

    /// The content of all parts as one, with its digests checked.
    async fn join(
        &self,
        announced: &AnnouncedFile,
        parts: &[UploadPart],
        md5: Option<&str>,
    ) -> Result<Claim, RequestFailure> {
        let records = self.files.records();
        let operation = OperationId::mint();
        let mut writer = records.store().writer(records.tenant(), &operation, 0);
        let (mut digest, mut head) = (Md5::new(), Vec::new());
        for part in parts {
            let reader = records.open(&part.content).await?;
            let mut reader = reader.ok_or_else(|| lost_part(&part.id))?;
            loop {
                let read = reader.next().await.map_err(|error| match error {
                    ReadError::Missing => lost_part(&part.id),
                    error => store_failure(&error),
                });
                let Some(bytes) = read? else { break };
                let missing = kind::HEAD_BYTES.saturating_sub(head.len()).min(bytes.len());
                head.extend_from_slice(bytes.get(..missing).unwrap_or_default());
                digest.update(&bytes);
                let written = writer.write(bytes).await;
                written.map_err(|error| store_failure(&error))?;
            }
        }
        let actual = hex_digits(&digest.finalize());
        if md5.is_some_and(|expected| !expected.eq_ignore_ascii_case(&actual)) {
            writer.abort().await;
            return Err(invalid_value(
                "md5",
                "The parts have another MD5 digest together.",
            ));
        }
        let media_type = kind::detect_kind(&head, &announced.name, writer.size()).media_type;
        let label = ArtifactLabel::new(media_type, announced.name.clone());
        let claim = writer.finish(label).await;
        claim.map_err(|error| store_failure(&error))
    }

    /// Ends an upload without a file. A second call returns the same object.
    ///
    /// # Errors
    ///
    /// 404 and 503 as elsewhere, 400 for one that is completed or expired.
    pub(crate) async fn cancel(&self, principal: &str, id: &str) -> Result<Value, RequestFailure> {
        let found = self.find(principal, id).await?.value;
        if found.status == UploadStatus::Cancelled {
            return Ok(found.object(id, self.now_ms()));
        }
        for _ in 0..MAX_ATTEMPTS {
            let mut record = self.open(principal, id).await?;
            record.value.status = UploadStatus::Cancelled;
            record.value.parts.clear();
            match self.update(principal, id, &record).await {
                Err(RecordError::Stale) => {}
                written => {
                    written?;
                    return Ok(record.value.object(id, self.now_ms()));
                }
            }
        }
        Err(unavailable_failure())
    }

    async fn find(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<RevisedRecord<UploadRecord>, RequestFailure> {
        let records = self.files.records();
        let found = records.get(RecordKind::Upload, principal, id).await?;
        found.ok_or_else(|| {
            let mut failure = RequestFailure::new(404, "No such Upload object.");
            failure.param = Some("upload_id".into());
            failure
        })
    }

    /// An upload that is pending.
    async fn open(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<RevisedRecord<UploadRecord>, RequestFailure> {
        let record = self.find(principal, id).await?;
        self.check_open(&record.value)?;
        Ok(record)
    }

    fn check_open(&self, record: &UploadRecord) -> Result<(), RequestFailure> {
        match record.status {
            UploadStatus::Completed => Err(status_failure("is completed")),
            UploadStatus::Cancelled => Err(status_failure("is cancelled")),
            UploadStatus::Pending if record.expires_ms <= self.now_ms() => {
                Err(status_failure("has expired"))
            }
            UploadStatus::Pending => Ok(()),
        }
    }

    async fn update(
        &self,
        principal: &str,
        id: &str,
        record: &RevisedRecord<UploadRecord>,
    ) -> Result<(), RecordError> {
        let records = self.files.records();
        let updated = records.update(RecordKind::Upload, principal, id, record);
        updated.await.map(|_| ())
    }
}

/// The most bytes that a next part of this upload may have.
fn part_limit_of(record: &UploadRecord) -> Result<ByteSize, RequestFailure> {
    let total = record.announced.bytes.saturating_mul(REPEAT_FACTOR);
    let remaining = total.saturating_sub(record.received());
    if record.parts.len() >= MAX_PARTS || remaining == 0 {
        return Err(invalid_value(
            "data",
            format!(
                "The upload takes no more parts: it may have {MAX_PARTS} parts, and together {REPEAT_FACTOR} times the \
                 bytes of its file."
            ),
        ));
    }
    let limit = remaining.min(record.announced.bytes);
    Ok(ByteSize::bytes(limit.min(MAX_PART_BYTES.as_u64())))
}

/// The parts of a file, checked against what was announced.
fn named_parts(
    record: &UploadRecord,
    part_ids: &[String],
) -> Result<Vec<UploadPart>, RequestFailure> {
    let mut parts: Vec<UploadPart> = Vec::with_capacity(part_ids.len());
    for (number, id) in part_ids.iter().enumerate() {
        let field = format!("part_ids[{number}]");
        let part = record.part(id);
        let part =
            part.ok_or_else(|| invalid_value(&field, "The upload has no part with this id."))?;
        if parts.iter().any(|other| other.id == part.id) {
            return Err(invalid_value(&field, "The part is named twice."));
        }
        parts.push(part.clone());
    }
    let sizes = parts.iter().map(|part| part.content.size());
    let total = sizes.fold(0, u64::saturating_add);
    // The size is checked after the ids, so that a part that is named twice is reported as such.
    if total != record.announced.bytes {
        return Err(invalid_value(
            "part_ids",
            format!(
                "The parts have {total} bytes together, and the upload was created for {}.",
                record.announced.bytes
            ),
        ));
    }
    Ok(parts)
}

fn lost_part(id: &str) -> RequestFailure {
    invalid_value(
        "part_ids",
        format!("The part {id} is not stored any more. Add it again."),
    )
}

fn invalid_value(param: &str, message: impl Into<String>) -> RequestFailure {
    RequestFailure::of_parameter(param, "invalid_value", message)
}

fn status_failure(description: &str) -> RequestFailure {
    let message = format!("The upload {description}. Create another one.");
    RequestFailure::of_parameter("upload_id", STATUS_CODE, message)
}
