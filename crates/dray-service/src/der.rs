//! Reads parts of a certificate (RFC 5280, section 4.1), from DER. It verifies nothing.

/// Tag of `BOOLEAN`.
pub const BOOLEAN_TAG: u8 = 0x01;
/// Tag of `BIT STRING`.
pub const BIT_STRING_TAG: u8 = 0x03;
/// Tag of `OCTET STRING`.
pub const OCTET_STRING_TAG: u8 = 0x04;
/// Tag of `OBJECT IDENTIFIER`.
pub const OBJECT_IDENTIFIER_TAG: u8 = 0x06;
/// Tag of `UTF8String`.
pub const UTF8_STRING_TAG: u8 = 0x0c;
/// Tag of `PrintableString`.
pub const PRINTABLE_STRING_TAG: u8 = 0x13;
/// Tag of `IA5String`.
pub const IA5_STRING_TAG: u8 = 0x16;
/// Tag of `UTCTime`.
pub const UTC_TIME_TAG: u8 = 0x17;
/// Tag of `GeneralizedTime`.
pub const GENERALIZED_TIME_TAG: u8 = 0x18;
/// Tag of `SEQUENCE`.
pub const SEQUENCE_TAG: u8 = 0x30;
/// Tag of `SET`.
pub const SET_TAG: u8 = 0x31;
/// The explicit tag of `version`, which is absent in version 1.
const VERSION_TAG: u8 = 0xa0;
/// The explicit tag of `extensions`.
const EXTENSIONS_TAG: u8 = 0xa3;

/// The parts of a certificate, as DER.
#[derive(Clone, Copy, Debug)]
pub struct CertificateParts<'a> {
    /// Content of `validity`.
    pub validity: &'a [u8],
    /// Content of `subject`.
    pub subject: &'a [u8],
    /// Content of `extensions`; `None` without any.
    pub extensions: Option<&'a [u8]>,
}

impl<'a> CertificateParts<'a> {
    /// Reads a whole certificate; `None` for other bytes.
    pub fn read(certificate: &'a [u8]) -> Option<Self> {
        let mut whole = DerReader(certificate);
        let mut signed = DerReader(whole.expect(SEQUENCE_TAG)?);
        let mut fields = DerReader(signed.expect(SEQUENCE_TAG)?);
        if fields.0.first() == Some(&VERSION_TAG) {
            fields.next_value()?;
        }
        // The skipped values are the serial number, the signature algorithm and the issuer.
        for _ in 0..3 {
            fields.next_value()?;
        }
        let validity = fields.expect(SEQUENCE_TAG)?;
        let subject = fields.expect(SEQUENCE_TAG)?;
        let mut extensions = None;
        while let Some((tag, content)) = fields.next_value() {
            if tag == EXTENSIONS_TAG {
                extensions = Some(DerReader(content).expect(SEQUENCE_TAG)?);
            }
        }
        // Bytes after the certificate are not signed, so they are refused.
        (fields.0.is_empty() && whole.0.is_empty()).then_some(Self {
            validity,
            subject,
            extensions,
        })
    }
}

/// A reader over DER values; holds the bytes that are not read yet.
#[derive(Clone, Debug)]
pub struct DerReader<'a>(pub &'a [u8]);

impl<'a> DerReader<'a> {
    /// The tag and content of the next value; `None` at the end, and if the value is not complete.
    pub fn next_value(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = match first {
            0..=0x7f => usize::from(first),
            // Longer certificates than 65,535 bytes are not read.
            0x81 | 0x82 => {
                let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
                rest = after;
                digits
                    .iter()
                    .fold(0, |length, byte| (length << 8) | usize::from(*byte))
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The content of the next value, which must have this tag.
    pub fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content) = self.next_value()?;
        (found == tag).then_some(content)
    }

    /// The object identifier and the DER value of the next item of `Extensions` (RFC 5280, section 4.1).
    pub fn next_extension(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let mut extension = DerReader(self.expect(SEQUENCE_TAG)?);
        let kind = extension.expect(OBJECT_IDENTIFIER_TAG)?;
        // `critical` is left out where it is false.
        if extension.0.first() == Some(&BOOLEAN_TAG) {
            extension.next_value()?;
        }
        Some((kind, extension.expect(OCTET_STRING_TAG)?))
    }
}
