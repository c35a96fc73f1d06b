//! Files of `/v1/files`: uploaded by a client, or made by the agent in a response. Their content is in the store; a
//! record has their owner, their purpose and their expiry. Further records lead from a content to the files that have
//! it ([`holders`]).

pub(crate) mod holders;

use dray_agent::failure::RequestFailure;
use dray_store::ArtifactReader;
use dray_types::{Claim, Period};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::records::{CallerRecords, ContentRef, RecordError, RecordKind, random_id};

/// How ids of files begin, as in `OpenAI`'s API.
const FILE_ID_PREFIX: &str = "file-";
/// Most files of one caller that are read for a list.
const MAX_LISTED_FILES: usize = 10_000;
/// Purpose of files that the agent made.
pub(crate) const OUTPUT_PURPOSE: &str = "assistants_output";

/// A file of one caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    /// Name for people.
    pub(crate) name: String,
    /// Purpose, as the client stated it.
    pub(crate) purpose: String,
    /// Media type by content and name.
    pub(crate) media_type: String,
    /// Reference to the bytes of the file.
    pub(crate) content: ContentRef,
    /// Unix milliseconds at which it was stored.
    pub(crate) created_ms: u64,
    /// Unix milliseconds from which it no longer exists.
    pub(crate) expires_ms: u64,
}

impl FileRecord {
    /// The object of `OpenAI`'s API.
    pub(crate) fn object(&self, id: &str) -> Value {
        json!({
            "id": id,
            "object": "file",
            "bytes": self.content.size(),
            "created_at": self.created_ms / 1000,
            "expires_at": self.expires_ms / 1000,
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": null,
        })
    }
}

/// The files of all callers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ClientFiles {
    records: CallerRecords,
    lifetime: Period,
}

impl ClientFiles {
    /// Files that are kept for `lifetime` unless their client requests less.
    pub(crate) const fn new(records: CallerRecords, lifetime: Period) -> Self {
        Self { records, lifetime }
    }

    /// How long files are kept at most.
    pub(crate) const fn lifetime(&self) -> Period {
        self.lifetime
    }

    /// The records with the content of files.
    pub(crate) const fn records(&self) -> &CallerRecords {
        &self.records
    }

    /// Adds a file whose content is stored. Returns its id.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn add(
        &self,
        principal: &str,
        claim: &Claim,
        purpose: &str,
        lifetime: Period,
    ) -> Result<(String, FileRecord), RequestFailure> {
        let created_ms = self.records.now_ms();
        let record = FileRecord {
            name: claim.artifact.name.clone(),
            purpose: purpose.to_owned(),
            media_type: claim.artifact.media_type.clone(),
            content: ContentRef::of(claim),
            created_ms,
            expires_ms: created_ms.saturating_add(lifetime.as_millis()),
        };
        let id = random_id(FILE_ID_PREFIX);
        // This record is written before the file, because an operator would believe that a file without search results
        // is deleted.
        self.record_holder(principal, &id, &record).await?;
        let created = self
            .records
            .create(RecordKind::File, principal, &id, &record);
        created.await?;
        Ok((id, record))
    }

    /// Adds a file that the agent made.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn add_output(
        &self,
        principal: &str,
        claim: &Claim,
    ) -> Result<String, RequestFailure> {
        let added = self.add(principal, claim, OUTPUT_PURPOSE, self.lifetime);
        Ok(added.await?.0)
    }

    /// A file of this caller.
    ///
    /// # Errors
    ///
    /// 404 for a file that does not exist, has expired or belongs to another caller; 503 while the bus fails.
    pub(crate) async fn get(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<FileRecord, RequestFailure> {
        let found = self.records.get(RecordKind::File, principal, id).await?;
        let record = found.map(|found| found.value);
        let record = record.filter(|record: &FileRecord| self.is_alive(record));
        record.ok_or_else(|| missing_failure(id))
    }

    /// All files of this caller, oldest first.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn list(
        &self,
        principal: &str,
    ) -> Result<Vec<(String, FileRecord)>, RequestFailure> {
        let listed = self
            .records
            .list(RecordKind::File, principal, MAX_LISTED_FILES);
        let mut files: Vec<(String, FileRecord)> = listed.await?;
        files.retain(|(_, record)| self.is_alive(record));
        Ok(files)
    }

    /// Deletes a file: from then on no id leads to it. Its content stays for the lifetime of the store, because other
    /// files may have the same content.
    ///
    /// # Errors
    ///
    /// Those of [`ClientFiles::get`].
    pub(crate) async fn delete(&self, principal: &str, id: &str) -> Result<(), RequestFailure> {
        let found = self
            .records
            .get::<FileRecord>(RecordKind::File, principal, id)
            .await?;
        let found = found.ok_or_else(|| missing_failure(id))?;
        let deleted = self
            .records
            .delete(RecordKind::File, principal, id, found.revision);
        match deleted.await {
            Ok(()) => {
                self.forget_holder(id, &found.value).await;
                Ok(())
            }
            // Records of files never change, so another request deleted it meanwhile.
            Err(RecordError::Stale) => Err(missing_failure(id)),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the content of a file.
    ///
    /// # Errors
    ///
    /// 404 when the store has dropped it, 503 while the store fails.
    pub(crate) async fn open(
        &self,
        id: &str,
        record: &FileRecord,
    ) -> Result<ArtifactReader, RequestFailure> {
        let reader = self.records.open(&record.content).await?;
        reader.ok_or_else(|| missing_failure(id))
    }

    /// The claim of a file's content.
    pub(crate) fn claim(&self, record: &FileRecord) -> Option<Claim> {
        self.records
            .claim(&record.content, &record.media_type, &record.name)
    }

    fn is_alive(&self, record: &FileRecord) -> bool {
        self.records.now_ms() < record.expires_ms
    }
}

fn missing_failure(id: &str) -> RequestFailure {
    // The message keeps only characters that an id may have: the text of a request is not repeated in full.
    let id: String = id
        .chars()
        .filter(|character| !character.is_control())
        .take(64)
        .collect();
    let mut failure = RequestFailure::new(404, format!("No such File object: {id}"));
    failure.param = Some("id".into());
    failure
}
