//! What a name claims its file to be, and whether the bytes bear it out.

use super::text;
use super::types::{Archive, Audio, Document, Executable, Image, Kind, UNKNOWN, Video};

/// Extensions, and what they may stand for.
type Claim = (&'static [&'static str], fn(Kind) -> bool);

/// Extensions that promise certain bytes, by the kinds they may stand for.
const CLAIMS: &[Claim] = &[
    (&["png", "apng"], |kind| kind == Kind::Image(Image::Png)),
    (&["jpg", "jpeg", "jpe", "jfif"], |kind| {
        kind == Kind::Image(Image::Jpeg)
    }),
    (&["gif"], |kind| {
        matches!(kind, Kind::Image(Image::Gif { .. }))
    }),
    (&["webp"], |kind| {
        matches!(kind, Kind::Image(Image::Webp { .. }))
    }),
    (&["bmp"], |kind| kind == Kind::Image(Image::Bmp)),
    (&["tif", "tiff"], |kind| kind == Kind::Image(Image::Tiff)),
    (&["heic", "heif"], |kind| kind == Kind::Image(Image::Heic)),
    (&["avif"], |kind| kind == Kind::Image(Image::Avif)),
    (&["svg", "svgz"], |kind| {
        kind == Kind::Document(Document::Svg)
    }),
    (&["mp4", "m4v"], |kind| {
        matches!(
            kind,
            Kind::Video(Video::Mp4(_) | Video::Quicktime | Video::ThreeGp)
        )
    }),
    (&["mov", "qt"], |kind| {
        matches!(kind, Kind::Video(Video::Mp4(_) | Video::Quicktime))
    }),
    (&["3gp", "3g2"], |kind| {
        matches!(kind, Kind::Video(Video::ThreeGp | Video::Mp4(_)))
    }),
    (&["mkv", "mka"], |kind| {
        matches!(kind, Kind::Video(Video::Matroska | Video::Webm))
    }),
    (&["webm"], |kind| {
        matches!(kind, Kind::Video(Video::Matroska | Video::Webm))
    }),
    (&["avi"], |kind| kind == Kind::Video(Video::Avi)),
    (&["mp3", "m2a"], |kind| kind == Kind::Audio(Audio::Mp3)),
    (&["m4a", "m4b"], |kind| {
        matches!(kind, Kind::Audio(Audio::M4a) | Kind::Video(Video::Mp4(_)))
    }),
    (&["ogg", "oga", "ogv"], |kind| {
        matches!(
            kind,
            Kind::Audio(Audio::OggOpus { .. } | Audio::OggOther) | Kind::Video(Video::Ogg)
        )
    }),
    (&["opus"], |kind| {
        matches!(kind, Kind::Audio(Audio::OggOpus { .. }))
    }),
    (&["wav"], |kind| kind == Kind::Audio(Audio::Wav)),
    (&["flac"], |kind| kind == Kind::Audio(Audio::Flac)),
    (&["aac"], |kind| kind == Kind::Audio(Audio::Aac)),
    (&["amr"], |kind| kind == Kind::Audio(Audio::Amr)),
    (&["pdf"], |kind| kind == Kind::Document(Document::Pdf)),
    (&["docx", "docm"], |kind| {
        kind == Kind::Document(Document::Docx)
    }),
    (&["xlsx", "xlsm"], |kind| {
        kind == Kind::Document(Document::Xlsx)
    }),
    (&["pptx", "pptm"], |kind| {
        kind == Kind::Document(Document::Pptx)
    }),
    (&["odt"], |kind| kind == Kind::Document(Document::Odt)),
    (&["ods"], |kind| kind == Kind::Document(Document::Ods)),
    (&["odp"], |kind| kind == Kind::Document(Document::Odp)),
    (&["epub"], |kind| kind == Kind::Document(Document::Epub)),
    (&["rtf"], |kind| kind == Kind::Document(Document::Rtf)),
    (&["html", "htm", "xhtml"], |kind| {
        kind == Kind::Document(Document::Html)
    }),
    (&["zip"], |kind| {
        matches!(
            kind,
            Kind::Archive(Archive::Zip | Archive::Jar | Archive::Apk)
        )
    }),
    (&["apk"], |kind| {
        matches!(kind, Kind::Archive(Archive::Apk | Archive::Jar))
    }),
    (&["jar"], |kind| {
        matches!(kind, Kind::Archive(Archive::Jar | Archive::Zip))
    }),
    (&["gz", "tgz"], |kind| kind == Kind::Archive(Archive::Gzip)),
    (&["tar"], |kind| kind == Kind::Archive(Archive::Tar)),
    (&["bz2", "tbz2"], |kind| {
        kind == Kind::Archive(Archive::Bzip2)
    }),
    (&["xz", "txz"], |kind| kind == Kind::Archive(Archive::Xz)),
    (&["7z"], |kind| kind == Kind::Archive(Archive::SevenZip)),
    (&["rar"], |kind| kind == Kind::Archive(Archive::Rar)),
    (&["exe", "dll", "scr"], |kind| {
        kind == Kind::Executable(Executable::Pe)
    }),
];

/// Whether an extension stands for something that these bytes are not. An extension without a claim never does; a
/// text type does when the bytes are not text.
pub(super) fn disagrees(kind: Kind, extension: &str) -> bool {
    if kind == Kind::Empty {
        return false;
    }
    if let Some((_, fits)) = CLAIMS
        .iter()
        .find(|(extensions, _)| extensions.contains(&extension))
    {
        return !fits(kind);
    }
    let textual = matches!(
        kind,
        Kind::Text
            | Kind::Executable(Executable::Script)
            | Kind::Document(Document::Html | Document::Svg | Document::Rtf)
    );
    text::sort(extension).is_some() && !textual
}

/// The media type that a name alone suggests, for headers where no bytes are at hand. Never trusted for routing.
pub fn media_type_of_name(name: &str) -> &'static str {
    const CANDIDATES: &[Kind] = &[
        Kind::Image(Image::Png),
        Kind::Image(Image::Jpeg),
        Kind::Image(Image::Gif { animated: false }),
        Kind::Image(Image::Webp { animated: false }),
        Kind::Image(Image::Bmp),
        Kind::Image(Image::Tiff),
        Kind::Image(Image::Heic),
        Kind::Image(Image::Avif),
        Kind::Document(Document::Svg),
        Kind::Video(Video::Mp4(super::Codec::Unknown)),
        Kind::Video(Video::Quicktime),
        Kind::Video(Video::ThreeGp),
        Kind::Video(Video::Webm),
        Kind::Video(Video::Matroska),
        Kind::Video(Video::Avi),
        Kind::Audio(Audio::Mp3),
        Kind::Audio(Audio::M4a),
        Kind::Audio(Audio::OggOther),
        Kind::Audio(Audio::Wav),
        Kind::Audio(Audio::Flac),
        Kind::Document(Document::Pdf),
        Kind::Document(Document::Docx),
        Kind::Document(Document::Xlsx),
        Kind::Document(Document::Pptx),
        Kind::Document(Document::Odt),
        Kind::Document(Document::Ods),
        Kind::Document(Document::Odp),
        Kind::Document(Document::Epub),
        Kind::Document(Document::Rtf),
        Kind::Document(Document::Html),
        Kind::Archive(Archive::Zip),
        Kind::Archive(Archive::Gzip),
        Kind::Archive(Archive::Tar),
    ];
    let extension = crate::name::extension(name);
    if let Some((media_type, _)) = text::sort(&extension) {
        return media_type;
    }
    let same = |kind: &&Kind| kind.extension() == Some(extension.as_str());
    if let Some(kind) = CANDIDATES.iter().find(same) {
        return kind.media_type();
    }
    let claim = CLAIMS
        .iter()
        .find(|(extensions, _)| extensions.contains(&extension.as_str()));
    let kind = claim.and_then(|(_, fits)| CANDIDATES.iter().find(|kind| fits(**kind)));
    kind.map_or(UNKNOWN, |kind| kind.media_type())
}
