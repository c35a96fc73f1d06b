//! The kinds, with their media types and usual extensions.

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentKind {
    /// A picture without scripts.
    Image(ImageKind),
    /// Moving pictures.
    Video(VideoKind),
    /// Sound.
    Audio(AudioKind),
    /// Pages, tables, slides; also SVG and HTML, which bear scripts and are never shown as pictures.
    Document(DocumentKind),
    /// Files in a file, or one compressed.
    Archive(ArchiveKind),
    /// Something a machine runs, under any name.
    Executable(ExecutableKind),
    /// UTF-8 text of any sort.
    Text,
    /// Bytes of an unknown type.
    Binary,
    /// No bytes.
    Empty,
}

/// Pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF.
    Gif {
        /// More than one frame.
        animated: bool,
    },
    /// WebP.
    Webp {
        /// The file announces an animation.
        animated: bool,
    },
    /// BMP.
    Bmp,
    /// TIFF.
    Tiff,
    /// HEIC and HEIF.
    Heic,
    /// AVIF.
    Avif,
    /// Any other: icons, raw files, Photoshop.
    Other,
}

/// Moving pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VideoKind {
    /// MP4.
    Mp4(VideoCodec),
    /// `QuickTime`.
    Quicktime,
    /// 3GP and 3G2.
    ThreeGp,
    /// Matroska.
    Matroska,
    /// `WebM`.
    Webm,
    /// AVI.
    Avi,
    /// Ogg with Theora.
    Ogg,
    /// Any other.
    Other,
}

/// How the pictures of an MP4 are coded, as far as the head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VideoCodec {
    /// H.264, which every platform plays.
    H264,
    /// Something else.
    Other,
    /// The index stands at the end of the file.
    Unknown,
}

/// Sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AudioKind {
    /// MP3.
    Mp3,
    /// MPEG-4 audio.
    M4a,
    /// Opus in Ogg: what voice messages are made of.
    OggOpus {
        /// Channels as the stream announces them.
        channels: u8,
    },
    /// Vorbis, FLAC or Speex in Ogg.
    OggOther,
    /// WAV.
    Wav,
    /// FLAC.
    Flac,
    /// AMR.
    Amr,
    /// AAC in ADTS.
    Aac,
    /// AIFF.
    Aiff,
    /// MIDI.
    Midi,
    /// Any other.
    Other,
}

/// Documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// PDF.
    Pdf,
    /// Word.
    Docx,
    /// Excel.
    Xlsx,
    /// `PowerPoint`.
    Pptx,
    /// Open document text.
    Odt,
    /// Open document sheet.
    Ods,
    /// Open document slides.
    Odp,
    /// EPUB.
    Epub,
    /// Word before 2007.
    Doc,
    /// Excel before 2007.
    Xls,
    /// `PowerPoint` before 2007.
    Ppt,
    /// Rich text.
    Rtf,
    /// HTML and XHTML.
    Html,
    /// SVG, compressed or not.
    Svg,
    /// Any other.
    Other,
}

/// Archives and compressed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArchiveKind {
    /// ZIP.
    Zip,
    /// An Android package.
    Apk,
    /// A Java archive.
    Jar,
    /// gzip.
    Gzip,
    /// tar.
    Tar,
    /// bzip2.
    Bzip2,
    /// xz.
    Xz,
    /// Zstandard.
    Zstd,
    /// 7z.
    SevenZip,
    /// RAR.
    Rar,
    /// Any other.
    Other,
}

/// Programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecutableKind {
    /// ELF.
    Elf,
    /// Windows.
    Pe,
    /// Apple.
    MachO,
    /// Text that names its interpreter (`#!`).
    Script,
    /// Any other: Java classes, Android bytecode, `WebAssembly`, Windows installers.
    Other,
}

impl ContentKind {
    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Image(image) => image.facts().0,
            Self::Video(video) => video.facts().0,
            Self::Audio(audio) => audio.facts().0,
            Self::Document(document) => document.facts().0,
            Self::Archive(archive) => archive.facts().0,
            Self::Executable(executable) => executable.facts().0,
            Self::Text => "text/plain",
            Self::Binary => UNKNOWN_MEDIA_TYPE,
            Self::Empty => "application/x-empty",
        }
    }

    /// The usual extension.
    pub(super) fn extension(self) -> Option<&'static str> {
        let extension = match self {
            Self::Image(image) => image.facts().1,
            Self::Video(video) => video.facts().1,
            Self::Audio(audio) => audio.facts().1,
            Self::Document(document) => document.facts().1,
            Self::Archive(archive) => archive.facts().1,
            Self::Executable(executable) => executable.facts().1,
            Self::Text => "txt",
            Self::Binary | Self::Empty => "",
        };
        (!extension.is_empty()).then_some(extension)
    }
}

/// The media type of unknown content.
pub(super) const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";

impl ImageKind {
    fn facts(self) -> (&'static str, &'static str) {
        match self {
            Self::Png => ("image/png", "png"),
            Self::Jpeg => ("image/jpeg", "jpg"),
            Self::Gif { .. } => ("image/gif", "gif"),
            Self::Webp { .. } => ("image/webp", "webp"),
            Self::Bmp => ("image/bmp", "bmp"),
            Self::Tiff => ("image/tiff", "tiff"),
            Self::Heic => ("image/heic", "heic"),
            Self::Avif => ("image/avif", "avif"),
            Self::Other => (UNKNOWN_MEDIA_TYPE, ""),
        }
    }
}

impl VideoKind {
    fn facts(self) -> (&'static str, &'static str) {
        match self {
            Self::Mp4(_) => ("video/mp4", "mp4"),
            Self::Quicktime => ("video/quicktime", "mov"),
            Self::ThreeGp => ("video/3gpp", "3gp"),
            Self::Matroska => ("video/x-matroska", "mkv"),
            Self::Webm => ("video/webm", "webm"),
            Self::Avi => ("video/x-msvideo", "avi"),
            Self::Ogg => ("video/ogg", "ogv"),
            Self::Other => (UNKNOWN_MEDIA_TYPE, ""),
        }
    }
}

impl AudioKind {
    fn facts(self) -> (&'static str, &'static str) {
        match self {
            Self::Mp3 => ("audio/mpeg", "mp3"),
            Self::M4a => ("audio/mp4", "m4a"),
            Self::OggOpus { .. } | Self::OggOther => ("audio/ogg", "ogg"),
            Self::Wav => ("audio/wav", "wav"),
            Self::Flac => ("audio/flac", "flac"),
            Self::Amr => ("audio/amr", "amr"),
            Self::Aac => ("audio/aac", "aac"),
            Self::Aiff => ("audio/aiff", "aiff"),
            Self::Midi => ("audio/midi", "mid"),
            Self::Other => (UNKNOWN_MEDIA_TYPE, ""),
        }
    }
}

impl DocumentKind {
    fn facts(self) -> (&'static str, &'static str) {
        match self {
            Self::Pdf => ("application/pdf", "pdf"),
            Self::Docx => (
                "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
                "docx",
            ),
            Self::Xlsx => (
                "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
                "xlsx",
            ),
            Self::Pptx => (
                "application/vnd.openxmlformats-officedocument.presentationml.presentation",
                "pptx",
            ),
            Self::Odt => ("application/vnd.oasis.opendocument.text", "odt"),
            Self::Ods => ("application/vnd.oasis.opendocument.spreadsheet", "ods"),
            Self::Odp => ("application/vnd.oasis.opendocument.presentation", "odp"),
            Self::Epub => ("application/epub+zip", "epub"),
            Self::Doc => ("application/msword", "doc"),
            Self::Xls => ("application/vnd.ms-excel", "xls"),
            Self::Ppt => ("application/vnd.ms-powerpoint", "ppt"),
            Self::Rtf => ("application/rtf", "rtf"),
            Self::Html => ("text/html", "html"),
            Self::Svg => ("image/svg+xml", "svg"),
            Self::Other => (UNKNOWN_MEDIA_TYPE, ""),
        }
    }
}

impl ArchiveKind {
    fn facts(self) -> (&'static str, &'static str) {
        match self {
            Self::Zip => ("application/zip", "zip"),
            Self::Apk => ("application/vnd.android.package-archive", "apk"),
            Self::Jar => ("application/java-archive", "jar"),
            Self::Gzip => ("application/gzip", "gz"),
            Self::Tar => ("application/x-tar", "tar"),
            Self::Bzip2 => ("application/x-bzip2", "bz2"),
            Self::Xz => ("application/x-xz", "xz"),
            Self::Zstd => ("application/zstd", "zst"),
            Self::SevenZip => ("application/x-7z-compressed", "7z"),
            Self::Rar => ("application/vnd.rar", "rar"),
            Self::Other => (UNKNOWN_MEDIA_TYPE, ""),
        }
    }
}

impl ExecutableKind {
    fn facts(self) -> (&'static str, &'static str) {
        match self {
            Self::Elf => ("application/x-executable", ""),
            Self::Pe => ("application/vnd.microsoft.portable-executable", "exe"),
            Self::MachO => ("application/x-mach-binary", ""),
            Self::Script => ("text/x-script", ""),
            Self::Other => (UNKNOWN_MEDIA_TYPE, ""),
        }
    }
}
