//! The kinds of content, and the media type of each.

use crate::names;
use crate::table::usual_extension;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContentKind {
    /// A picture without scripts.
    Image(ImageKind),
    /// Moving pictures, with or without sound.
    Video(VideoKind),
    /// Sound without pictures, and notes to play (MIDI).
    Audio(AudioKind),
    /// Pages, tables, slides; also SVG and HTML, which can contain scripts and are never shown as pictures.
    Document(DocumentKind),
    /// Several files in one, or one compressed file.
    Archive(ArchiveKind),
    /// A program or a script, under any name.
    Executable(ExecutableKind),
    /// UTF-8 text of any sort.
    Text,
    /// Bytes of an unknown type.
    Binary,
    /// A file of size zero, which most platforms refuse.
    Empty,
}

/// Pictures that platforms can show; SVG is a [`DocumentKind`], since it can run scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// PNG, also animated (APNG).
    Png,
    /// JPEG, by its start-of-image marker.
    Jpeg,
    /// GIF in both versions, 87a and 89a.
    Gif {
        /// Whether the file has more than one frame.
        animated: bool,
    },
    /// WebP: lossy, lossless or extended (RFC 9649).
    Webp {
        /// Whether the file announces an animation.
        animated: bool,
    },
    /// BMP of Windows or OS/2, by the size of its second header.
    Bmp,
    /// TIFF in either byte order, except many raw formats that are based on it.
    Tiff,
    /// HEIC and HEIF, by the `ftyp` brand; platforms get them as documents.
    Heic,
    /// AVIF, still or as a sequence, by the `ftyp` brand.
    Avif,
    /// Any other: icons, raw files, Photoshop.
    Other,
}

/// Containers of video; the codec is known only for [`VideoKind::Mp4`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VideoKind {
    /// MP4, and any ISO base media file of an unknown brand.
    Mp4(VideoCodec),
    /// `QuickTime`: brand `qt  `, or an older file without a brand.
    Quicktime,
    /// 3GP and 3G2: any brand that begins with `3g`.
    ThreeGp,
    /// Matroska, and any EBML that does not name the document type `webm`.
    Matroska,
    /// `WebM`: Matroska with the document type `webm`.
    Webm,
    /// AVI (RIFF of the form `AVI `).
    Avi,
    /// Ogg whose first packet is of Theora.
    Ogg,
    /// Other video that the `infer` crate knows by its magic.
    Other,
}

/// The video codec of an MP4, if the head contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VideoCodec {
    /// H.264, which every platform plays.
    H264,
    /// H.265, AV1, VP8, VP9, MPEG-4 Part 2, Dolby Vision or `ProRes`.
    Other,
    /// The codec is not known, because the index is at the end of the file.
    Unknown,
}

/// Containers and codecs of sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AudioKind {
    /// MP3, and MPEG audio layer II, by `ID3` or two frames in a row.
    Mp3,
    /// AAC or ALAC in MPEG-4, by the brands `M4A `, `M4B ` and `M4P `.
    M4a,
    /// Opus in Ogg: the format of voice messages.
    OggOpus {
        /// Channels as the stream announces them.
        channels: u8,
    },
    /// Vorbis, FLAC or Speex in Ogg.
    OggOther,
    /// WAV (RIFF of the form `WAVE`).
    Wav,
    /// FLAC in its own container; in Ogg it is [`AudioKind::OggOther`].
    Flac,
    /// AMR narrowband and wideband, the recordings of old telephones.
    Amr,
    /// AAC in ADTS frames, without a container.
    Aac,
    /// AIFF and AIFF-C, uncompressed sound of Apple.
    Aiff,
    /// MIDI: notes without recorded sound.
    Midi,
    /// Other sound that the `infer` crate knows by its magic.
    Other,
}

/// Documents, which platforms pass on unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DocumentKind {
    /// PDF whose signature `%PDF-` is at offset 0.
    Pdf,
    /// Word since 2007 (Office Open XML).
    Docx,
    /// Excel since 2007 (Office Open XML).
    Xlsx,
    /// `PowerPoint` since 2007 (Office Open XML).
    Pptx,
    /// Text of ODF, by the `mimetype` entry.
    Odt,
    /// Spreadsheet of ODF, by the `mimetype` entry.
    Ods,
    /// Presentation of ODF, by the `mimetype` entry.
    Odp,
    /// EPUB, by the `mimetype` entry of its ZIP.
    Epub,
    /// Word before 2007: a compound file, distinguished by the file's name alone.
    Doc,
    /// Excel before 2007: a compound file, distinguished by the file's name alone.
    Xls,
    /// `PowerPoint` before 2007: a compound file, distinguished by the file's name alone.
    Ppt,
    /// Rich text, by `{\rtf` at the start.
    Rtf,
    /// HTML and XHTML; it can run scripts, so it is always sent as a document.
    Html,
    /// SVG, compressed or not.
    Svg,
    /// Outlook messages, unnamed compound files, other ODF, and what the `infer` crate knows.
    Other,
}

/// Archives and compressed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArchiveKind {
    /// ZIP without the marks of a document or package.
    Zip,
    /// An Android package: a ZIP with `AndroidManifest.xml`.
    Apk,
    /// A Java archive: a ZIP with `META-INF/MANIFEST.MF`.
    Jar,
    /// One file, or a tar, compressed with gzip (RFC 1952).
    Gzip,
    /// tar of POSIX or of Unix V7, not compressed.
    Tar,
    /// One file compressed with bzip2, by `BZh` and the level.
    Bzip2,
    /// One file compressed with xz (LZMA2).
    Xz,
    /// One file compressed with Zstandard (RFC 8878).
    Zstd,
    /// 7-Zip, by its six-byte signature.
    SevenZip,
    /// RAR, version 4 or 5.
    Rar,
    /// Other archives that the `infer` crate knows by their magic.
    Other,
}

/// Content that an operating system or a virtual machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecutableKind {
    /// Programs and libraries of Linux and most Unix systems.
    Elf,
    /// Programs and libraries of Windows, under any extension.
    Pe,
    /// Programs and libraries of Apple, for one architecture or several.
    MachO,
    /// Text that names its interpreter (`#!`).
    Script,
    /// Any other: Java classes, Android bytecode, `WebAssembly`, Windows installers.
    Other,
}

impl ContentKind {
    /// The registered media type, or the common one if IANA has none.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Image(image) => image.media_type(),
            Self::Video(video) => video.media_type(),
            Self::Audio(audio) => audio.media_type(),
            Self::Document(document) => document.media_type(),
            Self::Archive(archive) => archive.media_type(),
            Self::Executable(executable) => executable.media_type(),
            Self::Text => names::PLAIN,
            Self::Binary => names::OCTET_STREAM,
            Self::Empty => "application/x-empty",
        }
    }

    /// The usual extension without its dot; `None` for kinds with many extensions.
    pub(super) fn extension(self) -> Option<&'static str> {
        usual_extension(self.media_type())
    }
}

impl ImageKind {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif { .. } => "image/gif",
            Self::Webp { .. } => "image/webp",
            Self::Bmp => "image/bmp",
            Self::Tiff => "image/tiff",
            Self::Heic => "image/heic",
            Self::Avif => "image/avif",
            Self::Other => names::OCTET_STREAM,
        }
    }
}

impl VideoKind {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Mp4(_) => "video/mp4",
            Self::Quicktime => "video/quicktime",
            Self::ThreeGp => "video/3gpp",
            Self::Matroska => "video/x-matroska",
            Self::Webm => "video/webm",
            Self::Avi => "video/x-msvideo",
            Self::Ogg => "video/ogg",
            Self::Other => names::OCTET_STREAM,
        }
    }
}

impl AudioKind {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Mp3 => "audio/mpeg",
            Self::M4a => "audio/mp4",
            Self::OggOpus { .. } | Self::OggOther => "audio/ogg",
            Self::Wav => "audio/wav",
            Self::Flac => "audio/flac",
            Self::Amr => "audio/amr",
            Self::Aac => "audio/aac",
            Self::Aiff => "audio/aiff",
            Self::Midi => "audio/midi",
            Self::Other => names::OCTET_STREAM,
        }
    }
}

impl DocumentKind {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Pdf => names::PDF,
            Self::Docx => names::DOCX,
            Self::Xlsx => names::XLSX,
            Self::Pptx => names::PPTX,
            Self::Odt => names::ODT,
            Self::Ods => names::ODS,
            Self::Odp => names::ODP,
            Self::Epub => names::EPUB,
            Self::Doc => names::DOC,
            Self::Xls => names::XLS,
            Self::Ppt => names::PPT,
            Self::Rtf => names::RTF,
            Self::Html => names::HTML,
            Self::Svg => names::SVG,
            Self::Other => names::OCTET_STREAM,
        }
    }
}

impl ArchiveKind {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Zip => names::ZIP,
            Self::Apk => "application/vnd.android.package-archive",
            Self::Jar => "application/java-archive",
            Self::Gzip => names::GZIP,
            Self::Tar => names::TAR,
            Self::Bzip2 => names::BZIP2,
            Self::Xz => names::XZ,
            Self::Zstd => names::ZSTANDARD,
            Self::SevenZip => "application/x-7z-compressed",
            Self::Rar => "application/vnd.rar",
            Self::Other => names::OCTET_STREAM,
        }
    }
}

impl ExecutableKind {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Elf => "application/x-executable",
            Self::Pe => "application/vnd.microsoft.portable-executable",
            Self::MachO => "application/x-mach-binary",
            Self::Script => "text/x-script",
            Self::Other => names::OCTET_STREAM,
        }
    }
}
