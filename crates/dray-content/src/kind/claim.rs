//! What a name claims its file to be, and whether the bytes bear it out.

use super::text;
use super::types::{
    ArchiveKind, AudioKind, ContentKind, DocumentKind, ExecutableKind, ImageKind,
    UNKNOWN_MEDIA_TYPE, VideoKind,
};

/// Extensions, and what they may stand for.
type Claim = (&'static [&'static str], fn(ContentKind) -> bool);

/// Extensions that promise certain bytes, by the kinds they may stand for.
const EXTENSION_CLAIMS: &[Claim] = &[
    (&["png", "apng"], |kind| {
        kind == ContentKind::Image(ImageKind::Png)
    }),
    (&["jpg", "jpeg", "jpe", "jfif"], |kind| {
        kind == ContentKind::Image(ImageKind::Jpeg)
    }),
    (&["gif"], |kind| {
        matches!(kind, ContentKind::Image(ImageKind::Gif { .. }))
    }),
    (&["webp"], |kind| {
        matches!(kind, ContentKind::Image(ImageKind::Webp { .. }))
    }),
    (&["bmp"], |kind| kind == ContentKind::Image(ImageKind::Bmp)),
    (&["tif", "tiff"], |kind| {
        kind == ContentKind::Image(ImageKind::Tiff)
    }),
    (&["heic", "heif"], |kind| {
        kind == ContentKind::Image(ImageKind::Heic)
    }),
    (&["avif"], |kind| {
        kind == ContentKind::Image(ImageKind::Avif)
    }),
    (&["svg", "svgz"], |kind| {
        kind == ContentKind::Document(DocumentKind::Svg)
    }),
    (&["mp4", "m4v"], |kind| {
        matches!(
            kind,
            ContentKind::Video(VideoKind::Mp4(_) | VideoKind::Quicktime | VideoKind::ThreeGp)
        )
    }),
    (&["mov", "qt"], |kind| {
        matches!(
            kind,
            ContentKind::Video(VideoKind::Mp4(_) | VideoKind::Quicktime)
        )
    }),
    (&["3gp", "3g2"], |kind| {
        matches!(
            kind,
            ContentKind::Video(VideoKind::ThreeGp | VideoKind::Mp4(_))
        )
    }),
    (&["mkv", "mka"], |kind| {
        matches!(
            kind,
            ContentKind::Video(VideoKind::Matroska | VideoKind::Webm)
        )
    }),
    (&["webm"], |kind| {
        matches!(
            kind,
            ContentKind::Video(VideoKind::Matroska | VideoKind::Webm)
        )
    }),
    (&["avi"], |kind| kind == ContentKind::Video(VideoKind::Avi)),
    (&["mp3", "m2a"], |kind| {
        kind == ContentKind::Audio(AudioKind::Mp3)
    }),
    (&["m4a", "m4b"], |kind| {
        matches!(
            kind,
            ContentKind::Audio(AudioKind::M4a) | ContentKind::Video(VideoKind::Mp4(_))
        )
    }),
    (&["ogg", "oga", "ogv"], |kind| {
        matches!(
            kind,
            ContentKind::Audio(AudioKind::OggOpus { .. } | AudioKind::OggOther)
                | ContentKind::Video(VideoKind::Ogg)
        )
    }),
    (&["opus"], |kind| {
        matches!(kind, ContentKind::Audio(AudioKind::OggOpus { .. }))
    }),
    (&["wav"], |kind| kind == ContentKind::Audio(AudioKind::Wav)),
    (&["flac"], |kind| {
        kind == ContentKind::Audio(AudioKind::Flac)
    }),
    (&["aac"], |kind| kind == ContentKind::Audio(AudioKind::Aac)),
    (&["amr"], |kind| kind == ContentKind::Audio(AudioKind::Amr)),
    (&["pdf"], |kind| {
        kind == ContentKind::Document(DocumentKind::Pdf)
    }),
    (&["docx", "docm"], |kind| {
        kind == ContentKind::Document(DocumentKind::Docx)
    }),
    (&["xlsx", "xlsm"], |kind| {
        kind == ContentKind::Document(DocumentKind::Xlsx)
    }),
    (&["pptx", "pptm"], |kind| {
        kind == ContentKind::Document(DocumentKind::Pptx)
    }),
    (&["odt"], |kind| {
        kind == ContentKind::Document(DocumentKind::Odt)
    }),
    (&["ods"], |kind| {
        kind == ContentKind::Document(DocumentKind::Ods)
    }),
    (&["odp"], |kind| {
        kind == ContentKind::Document(DocumentKind::Odp)
    }),
    (&["epub"], |kind| {
        kind == ContentKind::Document(DocumentKind::Epub)
    }),
    (&["rtf"], |kind| {
        kind == ContentKind::Document(DocumentKind::Rtf)
    }),
    (&["html", "htm", "xhtml"], |kind| {
        kind == ContentKind::Document(DocumentKind::Html)
    }),
    (&["zip"], |kind| {
        matches!(
            kind,
            ContentKind::Archive(ArchiveKind::Zip | ArchiveKind::Jar | ArchiveKind::Apk)
        )
    }),
    (&["apk"], |kind| {
        matches!(
            kind,
            ContentKind::Archive(ArchiveKind::Apk | ArchiveKind::Jar)
        )
    }),
    (&["jar"], |kind| {
        matches!(
            kind,
            ContentKind::Archive(ArchiveKind::Jar | ArchiveKind::Zip)
        )
    }),
    (&["gz", "tgz"], |kind| {
        kind == ContentKind::Archive(ArchiveKind::Gzip)
    }),
    (&["tar"], |kind| {
        kind == ContentKind::Archive(ArchiveKind::Tar)
    }),
    (&["bz2", "tbz2"], |kind| {
        kind == ContentKind::Archive(ArchiveKind::Bzip2)
    }),
    (&["xz", "txz"], |kind| {
        kind == ContentKind::Archive(ArchiveKind::Xz)
    }),
    (&["7z"], |kind| {
        kind == ContentKind::Archive(ArchiveKind::SevenZip)
    }),
    (&["rar"], |kind| {
        kind == ContentKind::Archive(ArchiveKind::Rar)
    }),
    (&["exe", "dll", "scr"], |kind| {
        kind == ContentKind::Executable(ExecutableKind::Pe)
    }),
];

/// Whether an extension stands for something that these bytes are not. An extension without a claim never does; a
/// text type does when the bytes are not text.
pub(super) fn extension_disagrees(kind: ContentKind, extension: &str) -> bool {
    if kind == ContentKind::Empty {
        return false;
    }
    if let Some((_, fits)) = EXTENSION_CLAIMS
        .iter()
        .find(|(extensions, _)| extensions.contains(&extension))
    {
        return !fits(kind);
    }
    let textual = matches!(
        kind,
        ContentKind::Text
            | ContentKind::Executable(ExecutableKind::Script)
            | ContentKind::Document(DocumentKind::Html | DocumentKind::Svg | DocumentKind::Rtf)
    );
    text::text_type(extension).is_some() && !textual
}

/// The media type that a name alone suggests, for headers where no bytes are at hand. Never trusted for routing.
pub fn media_type_of_name(name: &str) -> &'static str {
    const CANDIDATE_KINDS: &[ContentKind] = &[
        ContentKind::Image(ImageKind::Png),
        ContentKind::Image(ImageKind::Jpeg),
        ContentKind::Image(ImageKind::Gif { animated: false }),
        ContentKind::Image(ImageKind::Webp { animated: false }),
        ContentKind::Image(ImageKind::Bmp),
        ContentKind::Image(ImageKind::Tiff),
        ContentKind::Image(ImageKind::Heic),
        ContentKind::Image(ImageKind::Avif),
        ContentKind::Document(DocumentKind::Svg),
        ContentKind::Video(VideoKind::Mp4(super::VideoCodec::Unknown)),
        ContentKind::Video(VideoKind::Quicktime),
        ContentKind::Video(VideoKind::ThreeGp),
        ContentKind::Video(VideoKind::Webm),
        ContentKind::Video(VideoKind::Matroska),
        ContentKind::Video(VideoKind::Avi),
        ContentKind::Audio(AudioKind::Mp3),
        ContentKind::Audio(AudioKind::M4a),
        ContentKind::Audio(AudioKind::OggOther),
        ContentKind::Audio(AudioKind::Wav),
        ContentKind::Audio(AudioKind::Flac),
        ContentKind::Document(DocumentKind::Pdf),
        ContentKind::Document(DocumentKind::Docx),
        ContentKind::Document(DocumentKind::Xlsx),
        ContentKind::Document(DocumentKind::Pptx),
        ContentKind::Document(DocumentKind::Odt),
        ContentKind::Document(DocumentKind::Ods),
        ContentKind::Document(DocumentKind::Odp),
        ContentKind::Document(DocumentKind::Epub),
        ContentKind::Document(DocumentKind::Rtf),
        ContentKind::Document(DocumentKind::Html),
        ContentKind::Archive(ArchiveKind::Zip),
        ContentKind::Archive(ArchiveKind::Gzip),
        ContentKind::Archive(ArchiveKind::Tar),
    ];
    let extension = crate::name::extension_of(name);
    if let Some((media_type, _)) = text::text_type(&extension) {
        return media_type;
    }
    let same = |kind: &&ContentKind| kind.extension() == Some(extension.as_str());
    if let Some(kind) = CANDIDATE_KINDS.iter().find(same) {
        return kind.media_type();
    }
    let claim = EXTENSION_CLAIMS
        .iter()
        .find(|(extensions, _)| extensions.contains(&extension.as_str()));
    let kind = claim.and_then(|(_, fits)| CANDIDATE_KINDS.iter().find(|kind| fits(**kind)));
    kind.map_or(UNKNOWN_MEDIA_TYPE, |kind| kind.media_type())
}
