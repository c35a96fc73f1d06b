//! Text on pictures, recognised by an optional program: Tesseract.
//!
//! The conversion returns the pictures of pages without text, and files that are pictures. Each picture is handled in a
//! separate process: this executable, started again, is confined like a conversion and then becomes the program. The
//! process gets the picture on its standard input and has the limits of memory and processor time of a conversion. It
//! has no network, cannot start processes, and can read only its own files and system files.

mod child;
mod confine;
mod fill;

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use dray_documents::formats::{Converted, OcrHint, is_picture, recognized_markdown};
use dray_documents::limits::{Limit, Limits};
use dray_documents::markdown::Picture;
use dray_types::whole_millis;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::fill::PictureText;
use crate::worker::{Worker, kill_group};

pub(crate) use child::child;

/// First argument that makes an executable the launcher of the program.
pub(crate) const LAUNCHER_ARGUMENT: &str = "ocr-worker";
/// Paths at which the program is searched if none is configured.
const PROGRAM_PATHS: [&str; 2] = ["/usr/local/bin/tesseract", "/usr/bin/tesseract"];
/// Pictures of one document that are processed concurrently, if the workers allow.
const CONCURRENT_PICTURES: usize = 4;
/// Most bytes of the program's error message that are read.
const MAX_MESSAGE_BYTES: u64 = 4096;
/// The warning if the program is not installed. The message for a document without text depends on it.
pub(crate) const UNAVAILABLE_WARNING: &str =
    "OCR is not available here: install tesseract-ocr and the data of its languages";

/// How the text of pictures is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcrSettings {
    /// Path of the program; `None` searches `tesseract` in `/usr/local/bin` and `/usr/bin`.
    pub program: Option<PathBuf>,
    /// Languages as the program names them: `eng`, `deu+eng`.
    pub languages: String,
    /// Most pictures of one document that are recognised; a `range` can select later ones.
    pub max_pictures: u32,
    /// Time for all pictures of one document.
    pub timeout: Duration,
}

impl Default for OcrSettings {
    /// English, 20 pictures, 30 seconds.
    fn default() -> Self {
        Self {
            program: None,
            languages: "eng".to_owned(),
            max_pictures: 20,
            timeout: Duration::from_secs(30),
        }
    }
}

impl OcrSettings {
    /// Whether these are names of languages; other text is never passed to a program.
    pub fn has_valid_languages(&self) -> bool {
        let is_name = |name: &str| {
            // `/` is for `script/Latin`. Without dots no name leaves the directory of the data (path
            // traversal).
            let ordinary = |character: char| {
                character.is_ascii_alphanumeric() || matches!(character, '_' | '/')
            };
            name.starts_with(|character: char| character.is_ascii_alphabetic())
                && name.chars().all(ordinary)
        };
        self.languages.len() <= 200 && self.languages.split('+').all(is_name)
    }
}

/// Recognises text on pictures.
#[derive(Clone, Debug)]
pub(crate) struct Ocr {
    settings: OcrSettings,
    /// Path of the program, if it is installed.
    program: Option<PathBuf>,
}

/// Options for the launcher.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct OcrJob {
    program: PathBuf,
    languages: String,
    limits: Limits,
}

/// The program's result for one picture.
enum Recognition {
    Text(String),
    Failed,
    LanguageMissing,
    TimedOut,
}

impl Ocr {
    pub(crate) fn new(settings: OcrSettings) -> Self {
        let program = find_program(&settings);
        Self { settings, program }
    }

    /// Whether the program is installed.
    pub(crate) fn is_available(&self) -> bool {
        self.program.is_some()
    }

    /// Options for the converter.
    pub(crate) fn hint(&self) -> OcrHint {
        OcrHint {
            max_pictures: self.settings.max_pictures,
            languages: self.settings.languages.clone(),
        }
    }

    /// Inserts the text of the pictures, or the reason for its absence, into a conversion. Returns whether everything
    /// readable was read.
    pub(crate) async fn recognize(
        &self,
        converted: &mut Converted,
        worker: &Worker,
        limits: &Limits,
        cancel: &CancellationToken,
    ) -> bool {
        let pictures = std::mem::take(&mut converted.pictures);
        let Some(program) = &self.program else {
            fill::fill(converted, &pictures, |_| PictureText::Unavailable);
            return false;
        };
        let until = Instant::now() + self.settings.timeout;
        let job = OcrJob {
            program: program.clone(),
            languages: self.settings.languages.clone(),
            limits: Limits {
                wall_ms: whole_millis(self.settings.timeout),
                ..limits.clone()
            },
        };
        let tasks: Vec<_> = pictures
            .iter()
            .map(|picture| picture_text(picture, &job, worker, until, cancel))
            .collect();
        let recognized: Vec<PictureText> = stream::iter(tasks)
            .buffered(CONCURRENT_PICTURES)
            .collect()
            .await;
        let has_timed_out = recognized
            .iter()
            .any(|text| matches!(text, PictureText::TimedOut));
        let is_whole = !recognized.iter().any(PictureText::may_change);
        let too_many = recognized
            .iter()
            .any(|text| matches!(text, PictureText::TooMany));
        fill::fill(converted, &pictures, |index| {
            recognized
                .get(index)
                .cloned()
                .unwrap_or(PictureText::Failed)
        });
        if converted.stopped.is_none() && converted.failure.is_none() {
            converted.stopped = match (has_timed_out, too_many) {
                (true, _) => Some(Limit::Time),
                (_, true) => Some(Limit::Element),
                _ => None,
            };
        }
        is_whole
    }
}

/// The text of one page or file, of all its images.
async fn picture_text(
    picture: &Picture,
    job: &OcrJob,
    worker: &Worker,
    until: Instant,
    cancel: &CancellationToken,
) -> PictureText {
    // The converter counts pages beyond its limit of pictures but does not copy their images.
    if picture.images.is_empty() {
        return PictureText::TooMany;
    }
    let mut text = String::new();
    for image in &picture.images {
        // A document may have forged the worker's result, so only supported image formats are passed to the program.
        if !is_picture(image) {
            return PictureText::Failed;
        }
        match run(image, job, worker, until, cancel).await {
            Recognition::Text(more) => {
                text.push_str(&more);
                text.push_str("\n\n");
            }
            Recognition::Failed => return PictureText::Failed,
            Recognition::LanguageMissing => return PictureText::LanguageMissing,
            Recognition::TimedOut => return PictureText::TimedOut,
        }
    }
    let markdown = recognized_markdown(&text, &job.limits);
    if markdown.trim().is_empty() {
        PictureText::Nothing
    } else {
        PictureText::Recognized(markdown)
    }
}

/// Runs the program on one image, within the remaining time.
async fn run(
    image: &[u8],
    job: &OcrJob,
    worker: &Worker,
    until: Instant,
    cancel: &CancellationToken,
) -> Recognition {
    let work = async {
        // The wait is inside the timeout, which is for all pictures of a document.
        let _permit = worker.permit().await?;
        let mut child = start(image, job, worker)
            .inspect_err(|error| tracing::warn!(%error, "could not start OCR"))
            .ok()?;
        // Both pipes are read concurrently: a program that fills an unread pipe would never end.
        let (text, message) = tokio::join!(
            read(child.stdout.take(), job.limits.max_text_bytes),
            read(child.stderr.take(), MAX_MESSAGE_BYTES),
        );
        // Output beyond the limits is not read, so the program may be blocked in a write.
        kill_group(&mut child);
        let status = child.wait().await.ok()?;
        Some((text, message, status))
    };
    let done = tokio::select! {
        done = tokio::time::timeout_at(until, work) => done,
        // The caller checks the token and drops this result.
        () = cancel.cancelled() => return Recognition::TimedOut,
    };
    let Ok(done) = done else {
        return Recognition::TimedOut;
    };
    match done {
        Some((text, _, status)) if status.success() => Recognition::Text(text),
        Some((_, message, _)) if message.contains(".traineddata") => Recognition::LanguageMissing,
        Some(_) | None => Recognition::Failed,
    }
}

async fn read(stream: Option<impl AsyncRead + Unpin>, max_bytes: u64) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // Output before an error is kept; the exit status decides whether it is used.
        let _ = stream.take(max_bytes).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn start(image: &[u8], job: &OcrJob, worker: &Worker) -> io::Result<Child> {
    // A file in memory disappears when this process ends.
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::memfd_create("picture", flags)?);
    file.write_all(image)?;
    file.rewind()?;
    let mut command = worker.command(LAUNCHER_ARGUMENT, job, file)?;
    command.stderr(Stdio::piped()).spawn()
}

/// The program's file, if it exists and is executable.
fn find_program(settings: &OcrSettings) -> Option<PathBuf> {
    if !settings.has_valid_languages() {
        return None;
    }
    let program_path = match &settings.program {
        Some(program) => Some(program.clone()),
        None => PROGRAM_PATHS
            .map(PathBuf::from)
            .into_iter()
            .find(|program| is_program(program)),
    };
    program_path?
        .canonicalize()
        .ok()
        .filter(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_names_and_nothing_else() {
        let valid = |languages: &str| {
            let settings = OcrSettings {
                languages: languages.to_owned(),
                ..OcrSettings::default()
            };
            settings.has_valid_languages()
        };
        assert!(valid("eng") && valid("deu+eng") && valid("chi_sim+script/Latin"));
        for wrong in [
            "", "+", "eng+", "--help", "eng deu", "../eng", "e;rm", "eng\n",
        ] {
            assert!(!valid(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_not_available() {
        let settings = |program: &str| OcrSettings {
            program: Some(program.into()),
            ..OcrSettings::default()
        };
        assert!(!Ocr::new(settings("/nowhere/tesseract")).is_available());
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!Ocr::new(settings(file.path().to_str().unwrap())).is_available());
        assert!(Ocr::new(settings("/bin/sh")).is_available());
    }
}
