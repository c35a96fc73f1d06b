//! The implementation of the tools for the files of DIAL.

use bytes::BytesMut;
use dray_dial::files::{FileMetadata, UploadCondition};
use dray_presentation::size;
use dray_tool::{HandledFailure, ToolCall, ToolFailure};
use futures_util::StreamExt as _;

use super::super::drive::{Drive, DriveError, UploadBody};
use super::super::storage::{drive_failure, storage_failure};
use super::super::tools::{is_on, required_argument};
use super::super::turn::{TurnFiles, text_argument};
use super::lines::{LineRange, numbered_lines};
use super::search::{SkippedFiles, search_result, text_of_bytes};
use super::{number_argument, path};

/// Largest file that is read as text.
const MAX_TEXT_BYTES: u64 = 4 << 20;
/// Lines that are read when the model gives no number.
const DEFAULT_LINES: usize = 200;
/// Most folders of DIAL that one search examines.
const MAX_SEARCHED_FOLDERS: usize = 200;
/// Most files that one search examines.
const MAX_SEARCHED_FILES: usize = 500;
/// Most matches that one search returns.
const MAX_HITS: usize = 100;

/// One call of a tool, with the app's own folder of the caller.
pub(super) struct DialFileCall<'a> {
    files: &'a TurnFiles,
    drive: &'a Drive,
    home: &'a str,
    call: &'a ToolCall,
}

impl<'a> DialFileCall<'a> {
    pub(super) async fn of(files: &'a TurnFiles, call: &'a ToolCall) -> Result<Self, ToolFailure> {
        let Some(drive) = files.scope.services.drive.as_ref() else {
            return Err(HandledFailure::new("This system has no file storage of DIAL.").into());
        };
        let home = files
            .storage
            .home_url(drive)
            .await
            .map_err(storage_failure)?;
        Ok(Self {
            files,
            drive,
            home,
            call,
        })
    }

    fn file(&self, name: &str) -> Result<String, ToolFailure> {
        let argument = required_argument(self.call, name)?;
        let url = path::relative_path(argument, false).ok_or_else(|| refused_parameter(name))?;
        Ok(format!("{}{url}", self.home))
    }

    fn folder(&self) -> Result<String, ToolFailure> {
        let argument = text_argument(&self.call.arguments, "path").unwrap_or_default();
        let url = path::relative_path(argument, true).ok_or_else(|| refused_parameter("path"))?;
        Ok(format!("{}{url}", self.home))
    }

    /// A path as the model writes it.
    fn path_for_model(&self, url: &str) -> String {
        path::shown_path(url.strip_prefix(self.home).unwrap_or(url))
    }

    pub(super) async fn list(&self) -> Result<String, ToolFailure> {
        let folder = self.folder()?;
        let listing = match self.drive.list(&self.files.scope.caller, &folder).await {
            // No file was ever written there.
            Err(DriveError::NotFound) if folder == self.home => {
                return Ok(EMPTY_FOLDER_MESSAGE.to_owned());
            }
            listing => listing.map_err(|error| drive_failure("path", error))?,
        };
        let mut lines: Vec<_> = listing.items.iter().map(|item| self.line(item)).collect();
        if lines.is_empty() {
            lines.push(EMPTY_FOLDER_MESSAGE.to_owned());
        }
        if listing.is_truncated {
            lines.push("The list is cut off here; more entries exist.".to_owned());
        }
        Ok(lines.join("\n"))
    }

    fn line(&self, item: &FileMetadata) -> String {
        let path = self.path_for_model(&item.url);
        match item.content_length {
            _ if item.is_folder() => path,
            Some(bytes) => format!("{path} ({})", size::human_size(bytes)),
            None => path,
        }
    }

    pub(super) async fn read_lines(&self) -> Result<String, ToolFailure> {
        let url = self.file("path")?;
        let range = LineRange {
            start: number_argument(self.call, "start", 1)?,
            start_byte: number_argument(self.call, "start_byte", 1)?,
            count: number_argument(self.call, "count", DEFAULT_LINES)?,
        };
        let (content, _) = self.text_of("path", &url).await?;
        Ok(numbered_lines(&content, range))
    }

    pub(super) async fn search(&self) -> Result<String, ToolFailure> {
        let query = required_argument(self.call, "query")?.to_lowercase();
        let (found, is_complete) = self.walk().await?;
        let mut hits = Vec::new();
        let mut skipped = SkippedFiles::default();
        for item in &found {
            let Some(content) = self.searched_text(item, &mut skipped).await? else {
                continue;
            };
            let path = self.path_for_model(&item.url);
            for (index, line) in content.lines().enumerate() {
                // The pattern is not a regular expression: one that a model writes could take exponential time.
                if line.to_lowercase().contains(&query) {
                    hits.push(format!(
                        "{path}:{}: {}",
                        index + 1,
                        dray_presentation::name::shown_text(line, 300)
                    ));
                }
                if hits.len() >= MAX_HITS {
                    hits.push(
                        "More lines match; search in a folder or for a longer text.".to_owned(),
                    );
                    return Ok(hits.join("\n"));
                }
            }
        }
        let result = search_result(hits, is_complete);
        Ok(match skipped.sentence() {
            Some(sentence) => format!("{result}\n{sentence}"),
            None => result,
        })
    }

    /// The text of a file that a search examines. `None` for a file that is skipped, and for one that was deleted
    /// meanwhile.
    async fn searched_text(
        &self,
        item: &FileMetadata,
        skipped: &mut SkippedFiles,
    ) -> Result<Option<String>, ToolFailure> {
        let size = item.content_length.unwrap_or_default();
        let content = if size > MAX_TEXT_BYTES {
            let limit = MAX_TEXT_BYTES;
            Err(DriveError::TooLarge { size, limit })
        } else {
            self.bytes_of(&item.url, MAX_TEXT_BYTES).await
        };
        match content.map(text_of_bytes) {
            Ok(Some(content)) => return Ok(Some(content)),
            Ok(None) => skipped.not_text += 1,
            Err(DriveError::NotFound) => {}
            Err(DriveError::TooLarge { .. }) => skipped.too_large += 1,
            Err(DriveError::Denied | DriveError::Invalid) => skipped.refused += 1,
            Err(error @ (DriveError::Conflict | DriveError::Unreachable(_))) => {
                return Err(drive_failure("path", error));
            }
        }
        Ok(None)
    }

    pub(super) async fn find(&self) -> Result<String, ToolFailure> {
        let pattern = required_argument(self.call, "pattern")?;
        let (found, is_complete) = self.walk().await?;
        let hits = found
            .iter()
            .filter(|item| path::matches_pattern(pattern, &item.name))
            .map(|item| self.line(item))
            .collect();
        Ok(search_result(hits, is_complete))
    }

    /// All files below a folder, and whether the list is complete.
    async fn walk(&self) -> Result<(Vec<FileMetadata>, bool), ToolFailure> {
        let mut folders = vec![self.folder()?];
        let (mut found, mut is_complete, mut listed_folders) = (Vec::new(), true, 0);
        while let Some(folder) = folders.pop() {
            listed_folders += 1;
            let listing = match self.drive.list(&self.files.scope.caller, &folder).await {
                // A folder may be deleted during the walk, and the home folder exists only after the first write.
                Err(DriveError::NotFound) if listed_folders > 1 || folder == self.home => continue,
                listing => listing.map_err(|error| drive_failure("path", error))?,
            };
            is_complete &= !listing.is_truncated;
            for item in listing.items {
                // An entry outside of its folder is skipped.
                if !item.url.starts_with(&folder) || item.url == folder {
                    continue;
                }
                if !item.is_folder() {
                    found.push(item);
                // Folders still to be listed count as well, so the walk cannot queue more than it may list.
                } else if listed_folders + folders.len() < MAX_SEARCHED_FOLDERS {
                    folders.push(item.url);
                } else {
                    is_complete = false;
                }
            }
            if found.len() >= MAX_SEARCHED_FILES {
                found.truncate(MAX_SEARCHED_FILES);
                return Ok((found, false));
            }
        }
        // The walk uses a stack and goes depth first, so its own order would look random to the model.
        found.sort_by(|left, right| left.url.cmp(&right.url));
        Ok((found, is_complete))
    }

    pub(super) async fn write(&self) -> Result<String, ToolFailure> {
        let url = self.file("path")?;
        let content = self
            .call
            .arguments
            .get("content")
            .and_then(serde_json::Value::as_str);
        let content =
            content.ok_or_else(|| ToolFailure::parameter("content", "It must be a text."))?;
        let body = UploadBody::Bytes(bytes::Bytes::copy_from_slice(content.as_bytes()));
        self.put("path", &url, body, &self.condition()).await?;
        Ok(format!(
            "{} is written ({}).",
            self.path_for_model(&url),
            human_size(content.len())
        ))
    }

    fn condition(&self) -> UploadCondition {
        if is_on(self.call, "overwrite") {
            UploadCondition::Any
        } else {
            UploadCondition::NoneMatch
        }
    }

    async fn put(
        &self,
        parameter: &str,
        url: &str,
        body: UploadBody,
        condition: &UploadCondition,
    ) -> Result<(), ToolFailure> {
        let is_new = *condition == UploadCondition::NoneMatch;
        let size = body.size();
        let media_type = dray_media_type::type_of_name(&path::shown_path(url))
            .unwrap_or(dray_media_type::names::OCTET_STREAM);
        let put = self
            .drive
            .put(&self.files.scope.caller, url, media_type, body, condition)
            .await;
        match put {
            // Another size means that the upload was cut short.
            Ok(item)
                if item
                    .content_length
                    .is_none_or(|stored_size| stored_size == size) =>
            {
                Ok(())
            }
            Ok(_) => Err(HandledFailure::new(
                "The file storage has not kept the whole file; try again later.",
            )
            .into()),
            Err(DriveError::Conflict) if is_new => Err(ToolFailure::parameter(
                parameter,
                "The file exists already. Choose another name, or set overwrite.",
            )),
            Err(DriveError::Conflict) => Err(HandledFailure::new(
                "The file has changed since it was read. Read it again before you edit it.",
            )
            .into()),
            Err(error) => Err(drive_failure(parameter, error)),
        }
    }

    pub(super) async fn edit(&self) -> Result<String, ToolFailure> {
        let url = self.file("path")?;
        let old = self
            .call
            .arguments
            .get("old_text")
            .and_then(serde_json::Value::as_str);
        let old = old.filter(|old| !old.is_empty()).ok_or_else(|| {
            ToolFailure::parameter("old_text", "It must be a text that is not empty.")
        })?;
        let new = self
            .call
            .arguments
            .get("new_text")
            .and_then(serde_json::Value::as_str);
        let new = new.ok_or_else(|| ToolFailure::parameter("new_text", "It must be a text."))?;
        let (content, item) = self.text_of("path", &url).await?;
        let times = content.matches(old).count();
        let all = is_on(self.call, "replace_all");
        match times {
            0 => {
                return Err(ToolFailure::parameter(
                    "old_text",
                    "It does not occur in the file.",
                ));
            }
            2.. if !all => {
                let sentence = format!(
                    "It occurs {times} times. Give more of the text around it, or set replace_all."
                );
                return Err(ToolFailure::parameter("old_text", sentence));
            }
            _ => {}
        }
        // Without an ETag an edit could overwrite a change that happened after the read.
        let Some(etag) = item.etag else {
            return Err(HandledFailure::new("The file storage does not report the state of the file, so it cannot be edited safely.").into());
        };
        let edited = content.replace(old, new);
        self.put(
            "path",
            &url,
            UploadBody::Bytes(edited.into()),
            &UploadCondition::Match(etag),
        )
        .await?;
        Ok(format!(
            "{} is edited: {times} replaced.",
            self.path_for_model(&url)
        ))
    }

    pub(super) async fn delete(&self) -> Result<String, ToolFailure> {
        let url = self.file("path")?;
        let caller = &self.files.scope.caller;
        let deleted = self.drive.delete(caller, &url, None).await;
        deleted.map_err(|error| drive_failure("path", error))?;
        Ok(format!("{} is deleted.", self.path_for_model(&url)))
    }

    /// Copies chunk by chunk. A move deletes the source after its copy was stored, unless it has changed since its state
    /// was read, which is before it is copied.
    pub(super) async fn copy(&self, moves: bool) -> Result<String, ToolFailure> {
        let (source, target) = (self.file("source")?, self.file("target")?);
        if source == target {
            return Err(ToolFailure::parameter("target", "It is the same file."));
        }
        let caller = &self.files.scope.caller;
        let failed = |error| drive_failure("source", error);
        let item = self.drive.metadata(caller, &source).await.map_err(failed)?;
        if moves && item.etag.is_none() {
            return Err(HandledFailure::new(
                "The file storage does not report the state of the file, so it cannot be moved safely. Copy it.",
            )
            .into());
        }
        let limit = self.files.scope.services.config.upload_limit.as_u64();
        let bytes = match item.content_length {
            Some(size) if size > limit => return Err(failed(DriveError::TooLarge { size, limit })),
            Some(size) => UploadBody::Stream(
                self.drive
                    .open(caller, &source, limit)
                    .await
                    .map_err(failed)?,
                size,
            ),
            // An upload needs its size before, so a file of unknown size is read into memory within a small limit.
            None => UploadBody::Bytes(self.bytes("source", &source, MAX_TEXT_BYTES).await?),
        };
        self.put("target", &target, bytes, &self.condition())
            .await?;
        let (from, to) = (self.path_for_model(&source), self.path_for_model(&target));
        if !moves {
            return Ok(format!("{from} is copied to {to}."));
        }
        let etag = item.etag.as_deref();
        match self.drive.delete(caller, &source, etag).await {
            Ok(()) => Ok(format!("{from} is moved to {to}.")),
            Err(DriveError::Conflict) => Err(HandledFailure::new(format!(
                "{from} was copied to {to}, but it has changed since then and was kept."
            ))
            .into()),
            // The copy is kept, because deleting the target could lose the only complete file.
            Err(error) => Err(HandledFailure::new(format!(
                "{from} was copied to {to}, but could not be deleted."
            ))
            .because(error)
            .into()),
        }
    }

    /// The text of a file, with the state that it was read in.
    async fn text_of(
        &self,
        parameter: &str,
        url: &str,
    ) -> Result<(String, FileMetadata), ToolFailure> {
        // The state is read first, so that a concurrent change makes the edit fail and is not lost.
        let item = self.drive.metadata(&self.files.scope.caller, url).await;
        let item = item.map_err(|error| drive_failure(parameter, error))?;
        if item.is_folder() {
            return Err(ToolFailure::parameter(parameter, "It is a folder."));
        }
        let bytes = self.bytes(parameter, url, MAX_TEXT_BYTES).await?;
        match text_of_bytes(bytes) {
            Some(content) => Ok((content, item)),
            None => Err(ToolFailure::parameter(
                parameter,
                "It is not a text. read_attachment reads documents.",
            )),
        }
    }

    async fn bytes(
        &self,
        parameter: &str,
        url: &str,
        limit: u64,
    ) -> Result<bytes::Bytes, ToolFailure> {
        let bytes = self.bytes_of(url, limit).await;
        bytes.map_err(|error| drive_failure(parameter, error))
    }

    async fn bytes_of(&self, url: &str, limit: u64) -> Result<bytes::Bytes, DriveError> {
        let caller = &self.files.scope.caller;
        let mut chunks = self.drive.open(caller, url, limit).await?;
        let mut all = BytesMut::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|cause| DriveError::of_download(cause, limit))?;
            let size = u64::try_from(all.len() + chunk.len()).unwrap_or(u64::MAX);
            // The size of the metadata is a claim; the bytes are counted.
            if size > limit {
                return Err(DriveError::TooLarge { size, limit });
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }
}

/// The response for a folder without files.
const EMPTY_FOLDER_MESSAGE: &str = "The folder is empty.";

fn refused_parameter(parameter: &str) -> ToolFailure {
    ToolFailure::parameter(
        parameter,
        "It must be a path relative to the files of this app, without .., a leading /, or any of : ; , = { } % & \" \\.",
    )
}

fn human_size(bytes: usize) -> String {
    size::human_size(u64::try_from(bytes).unwrap_or(u64::MAX))
}
