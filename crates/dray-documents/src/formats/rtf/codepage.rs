//! Code pages by the numbers and character sets that RTF names.

use std::borrow::Cow;

use encoding_rs::Encoding;

/// The upper half of code page 437.
const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{A0}";
/// The upper half of code page 850.
const CP850: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜø£Ø×ƒáíóúñÑªº¿®¬½¼¡«»░▒▓│┤ÁÂÀ©╣║╗╝¢¥┐└┴┬├─┼ãÃ╚╔╩╦╠═╬¤ðÐÊËÈıÍÎÏ┘┌█▄¦Ì▀ÓßÔÒõÕµþÞÚÛÙýÝ¯´\u{AD}±‗¾¶§÷¸°¨·¹³²■\u{A0}";

/// An encoding that RTF or Outlook names by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodePage {
    /// One of the WHATWG encodings.
    Known(&'static Encoding),
    /// Code page 437 of MS-DOS, for the United States.
    Dos437,
    /// Code page 850 of MS-DOS, for Western Europe.
    Dos850,
}

impl CodePage {
    /// The code page of a number; windows-1252 for an unknown number.
    pub(crate) fn of_number(number: u32) -> Self {
        let label = match number {
            437 => return Self::Dos437,
            // Page 858 differs from page 850 only in the euro sign.
            850 | 858 => return Self::Dos850,
            866 => "ibm866",
            874 => "windows-874",
            932 => "shift_jis",
            936 => "gbk",
            949 => "euc-kr",
            950 => "big5",
            1250 => "windows-1250",
            1251 => "windows-1251",
            1253 => "windows-1253",
            1254 => "windows-1254",
            1255 => "windows-1255",
            1256 => "windows-1256",
            1257 => "windows-1257",
            1258 => "windows-1258",
            10000 => "macintosh",
            10007 => "x-mac-cyrillic",
            20866 => "koi8-r",
            20932 | 51932 => "euc-jp",
            21866 => "koi8-u",
            28592 => "iso-8859-2",
            28595 => "iso-8859-5",
            28597 => "iso-8859-7",
            28605 => "iso-8859-15",
            50220..=50222 => "iso-2022-jp",
            54936 => "gb18030",
            65001 => "utf-8",
            _ => "windows-1252",
        };
        Self::Known(Encoding::for_label(label.as_bytes()).unwrap_or(encoding_rs::WINDOWS_1252))
    }

    /// The WHATWG name of the encoding; `None` for the code pages of MS-DOS.
    pub(crate) fn label(self) -> Option<&'static str> {
        match self {
            Self::Known(encoding) => Some(encoding.name()),
            Self::Dos437 | Self::Dos850 => None,
        }
    }

    /// The code page of a font's character set; `None` if the document's code page applies.
    pub(super) fn of_charset(charset: i32) -> Option<Self> {
        Some(Self::of_number(match charset {
            0 => 1252,
            77 => 10000,
            128 => 932,
            129 => 949,
            134 => 936,
            136 => 950,
            161 => 1253,
            162 => 1254,
            163 => 1258,
            177 => 1255,
            178 => 1256,
            186 => 1257,
            204 => 1251,
            222 => 874,
            238 => 1250,
            254 => 437,
            255 => 850,
            _ => return None,
        }))
    }

    /// Bytes as text; invalid bytes become U+FFFD.
    pub(crate) fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        let upper = match self {
            Self::Known(encoding) => return encoding.decode_without_bom_handling(bytes).0,
            Self::Dos437 => CP437,
            Self::Dos850 => CP850,
        };
        let upper: Vec<char> = upper.chars().collect();
        bytes
            .iter()
            .map(|byte| match usize::from(*byte).checked_sub(128) {
                Some(index) => upper.get(index).copied().unwrap_or_default(),
                None => char::from(*byte),
            })
            .collect::<String>()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::CodePage;

    #[test]
    fn bytes_from_128_on_are_characters_of_the_dos_code_page() {
        for (number, byte_80, byte_ff) in [(437, 'Ç', '\u{A0}'), (850, 'Ç', '\u{A0}')] {
            let page = CodePage::of_number(number);
            assert_eq!(
                page.decode(&[0x41, 0x80, 0xFF]),
                format!("A{byte_80}{byte_ff}")
            );
        }
        assert_eq!(CodePage::of_number(437).decode(&[0xE1]), "ß");
        assert_eq!(CodePage::of_number(850).decode(&[0xD5]), "ı");
    }

    #[test]
    fn numbers_and_character_sets_name_the_same_pages() {
        assert_eq!(CodePage::of_charset(204), Some(CodePage::of_number(1251)));
        assert_eq!(CodePage::of_number(932).decode(b"\x93\xFA\x96\x7B"), "日本");
        assert_eq!(CodePage::of_number(4242), CodePage::of_number(1252));
        assert_eq!(CodePage::of_charset(1), None);
    }
}
