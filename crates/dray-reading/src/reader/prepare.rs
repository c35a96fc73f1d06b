//! Steps 6 to 9: size, classification, kind, emptiness. Blocking work, done on a separate thread.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::time::{Duration, Instant};

use dray_documents::classify::{self, Class, Kind};
use dray_documents::formats;
use dray_types::Sha256Digest;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::message;
use crate::ocr::{self, Ocr};
use crate::policy::Policy;
use crate::record::{Code, Outcome, Record, Refusal};
use crate::workspace::errno;

/// A file that will be converted, or that is empty.
#[derive(Debug)]
pub(super) struct PreparedFile {
    /// The open file, at its start.
    pub(super) file: File,
    /// Kind, media type and encoding, by content.
    pub(super) class: Class,
    /// Size in bytes.
    pub(super) size: u64,
    /// Whether the file has only white space.
    pub(super) blank: bool,
    /// Digest of the content, if the steps compute one.
    pub(super) digest: Option<Sha256Digest>,
    /// Whether hidden content is shown.
    pub(super) show_hidden: bool,
    /// The file of an archive that is to be read.
    pub(super) member: Option<String>,
}

impl PreparedFile {
    /// The same file for another conversion. Both have one offset, which every conversion sets to the start.
    ///
    /// # Errors
    ///
    /// The process has too many open files.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            class: self.class.clone(),
            size: self.size,
            blank: self.blank,
            digest: self.digest,
            show_hidden: self.show_hidden,
            member: self.member.clone(),
        })
    }
}

/// Step 8: which kinds a caller's operation accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KindGate {
    /// Documents, texts and archives.
    Read,
    /// All kinds with a converter.
    Convert,
    /// Every kind: for classification and announcements.
    Any,
}

/// Options of steps 6 to 9, owned so that they can move to a blocking thread.
#[derive(Clone, Debug)]
pub(super) struct PrepareSteps {
    /// The limits on kinds and sizes.
    pub(super) policy: Policy,
    /// The kinds that are let through, among those that the policy allows.
    pub(super) gate: KindGate,
    /// Whether the content is to be hashed.
    pub(super) digest: bool,
    /// Whether hidden content is to be shown.
    pub(super) show_hidden: bool,
    /// The file of an archive that is to be read.
    pub(super) member: Option<String>,
    /// The recognition of text on pictures, if it is on.
    pub(super) ocr: Option<Ocr>,
    /// Cancelled together with the call.
    pub(super) cancel: CancellationToken,
}

/// Most bytes that are read between two checks for cancellation.
const READ_STEP_BYTES: usize = 64 * 1024;

fn refuse(display_path: &str, code: Code, reason: &str) -> Box<Record> {
    let output = message::cannot_read(display_path, reason);
    Box::new(Refusal { code, output }.into())
}

pub(super) fn unreadable(display_path: &str, error: &io::Error) -> Box<Record> {
    let reason = format!("io error: {}", errno::of_io(error));
    refuse(display_path, Code::Unreadable, &reason)
}

/// Fills in the result of the classification.
pub(super) fn describe(record: &mut Record, display_path: &str, class: &Class, size: u64) {
    record.kind = Some(class.kind);
    record.mime = Some(class.mime.to_owned());
    record.path = Some(message::escape_path(display_path));
    record.size_bytes = Some(size);
    record.warnings.clone_from(&class.warnings);
}

impl PrepareSteps {
    /// Checks and classifies an open file of this size.
    pub(super) fn prepare(
        &self,
        display_path: &str,
        mut file: File,
        mut size: u64,
    ) -> Result<PreparedFile, Box<Record>> {
        let cap = self.policy.max_file_bytes;
        if size > cap {
            return Err(refuse(
                display_path,
                Code::TooLarge,
                &message::too_large(size, cap),
            ));
        }
        let failed = |error: io::Error| unreadable(display_path, &error);
        if size == 0
            && let Some((spooled, length)) = self.spool(&mut file).map_err(failed)?
        {
            (file, size) = (spooled, length);
        }
        let class = classify::classify(&mut file, display_path).map_err(failed)?;
        let passes = match self.gate {
            KindGate::Read => self.reads(&class),
            KindGate::Convert => self.reads(&class) || formats::converter(&class.hint()).is_some(),
            KindGate::Any => true,
        };
        if !passes || !self.policy.allows(class.kind) {
            let output = self.kind_not_allowed(display_path, &class);
            let mut record = Record::new(Outcome::Refuse, Some(Code::KindNotAllowed), output);
            describe(&mut record, display_path, &class, size);
            return Err(Box::new(record));
        }
        if self.member.is_some() && !formats::is_archive(&class.hint()) {
            let output = message::not_an_archive(display_path, class.kind, class.mime);
            let mut record = Record::new(Outcome::Refuse, Some(Code::NotAnArchive), output);
            describe(&mut record, display_path, &class, size);
            return Err(Box::new(record));
        }
        let blank = classify::is_blank(&mut file, &class, cap).map_err(failed)?;
        let digest = if self.digest && !blank {
            Some(self.hash(&mut file).map_err(failed)?)
        } else {
            None
        };
        // Announcements continue to read from this handle, and the steps above have moved its offset.
        file.rewind().map_err(failed)?;
        Ok(PreparedFile {
            file,
            class,
            size,
            blank,
            digest,
            show_hidden: self.show_hidden,
            member: self.member.clone(),
        })
    }

    /// Whether a file is read by the tool. A document without a converter gets a hint; an archive without one is
    /// refused like a binary.
    fn reads(&self, class: &Class) -> bool {
        if class.kind == Kind::Image {
            let ocr = self.ocr.as_ref().filter(|ocr| ocr.is_available());
            return ocr.is_some_and(|ocr| {
                let hint = formats::ConversionHint {
                    ocr: Some(ocr.hint()),
                    ..class.hint()
                };
                formats::converter(&hint).is_some()
            });
        }
        self.policy.reads(class.kind)
            && (class.kind != Kind::Archive || formats::is_archive(&class.hint()))
    }

    /// The reason why a file is refused; for a picture also which program is missing.
    fn kind_not_allowed(&self, display_path: &str, class: &Class) -> String {
        let refusal = message::kind_not_allowed(display_path, class.kind, class.mime);
        let is_missing = self.ocr.as_ref().is_some_and(|ocr| !ocr.is_available());
        if class.kind == Kind::Image && is_missing && self.policy.allows(class.kind) {
            format!("{refusal} {}.", ocr::UNAVAILABLE_WARNING)
        } else {
            refusal
        }
    }

    /// Copies the content of a file of size 0, up to the limit: files of pseudo file systems have content but no size.
    /// Returns `None` for an empty file.
    fn spool(&self, file: &mut File) -> io::Result<Option<(File, u64)>> {
        let until = Instant::now() + Duration::from_millis(self.policy.limits().wall_ms);
        let mut buffer = vec![0; READ_STEP_BYTES];
        let mut copy: Option<(File, u64)> = None;
        loop {
            let read = match file.read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The file was opened with `O_NONBLOCK`: a stream without available data counts as ended.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && copy.is_some() => 0,
                Err(error) => return Err(error),
            };
            if read == 0 {
                return Ok(copy);
            }
            let (to, length) = match &mut copy {
                Some(copy) => copy,
                // The file is in memory, because the tool must not leave files behind (read-attachment 2).
                none => none.insert((memory_file()?, 0)),
            };
            let remaining = self.policy.max_file_bytes - *length;
            let wanted = usize::try_from(remaining)
                .unwrap_or(READ_STEP_BYTES)
                .min(read);
            to.write_all(buffer.get(..wanted).unwrap_or_default())?;
            *length += wanted as u64;
            if *length == self.policy.max_file_bytes
                || self.cancel.is_cancelled()
                || Instant::now() >= until
            {
                return Ok(copy);
            }
        }
    }

    fn hash(&self, file: &mut File) -> io::Result<Sha256Digest> {
        file.rewind()?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; READ_STEP_BYTES];
        // The file can grow while it is read. A digest that was cancelled midway reaches no cache, because the
        // conversion that would be stored under it is cancelled, too.
        let mut remaining = self.policy.max_file_bytes.saturating_add(1);
        while remaining > 0 && !self.cancel.is_cancelled() {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(buffer.get(..read).unwrap_or_default());
                    remaining = remaining.saturating_sub(read as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Sha256Digest::from_bytes(hasher.finalize().into()))
    }
}

/// A file that exists in memory only.
fn memory_file() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(File::from(rustix::fs::memfd_create("attachment", flags)?))
}
