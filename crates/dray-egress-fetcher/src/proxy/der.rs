//! Reads the parts of a certificate that the proxy needs (RFC 5280, section 4.1), from DER.
//!
//! It verifies nothing: the TLS handshake verifies the certificates of clients, and a probe verifies that of the
//! authority.

pub(super) const SEQUENCE_TAG: u8 = 0x30;
pub(super) const SET_TAG: u8 = 0x31;
pub(super) const BOOLEAN_TAG: u8 = 0x01;
pub(super) const BIT_STRING_TAG: u8 = 0x03;
pub(super) const OCTET_STRING_TAG: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER_TAG: u8 = 0x06;
pub(super) const UTF8_STRING_TAG: u8 = 0x0c;
pub(super) const PRINTABLE_STRING_TAG: u8 = 0x13;
pub(super) const IA5_STRING_TAG: u8 = 0x16;
/// The explicit tag of `version`, which is absent in version 1.
const VERSION_TAG: u8 = 0xa0;
/// The explicit tag of `extensions`.
const EXTENSIONS_TAG: u8 = 0xa3;

/// The parts of a certificate, as DER.
pub(super) struct CertificateParts<'a> {
    /// Content of `validity`.
    pub(super) validity: &'a [u8],
    /// Content of `subject`.
    pub(super) subject: &'a [u8],
    /// Content of `extensions`; `None` without any.
    pub(super) extensions: Option<&'a [u8]>,
}

impl<'a> CertificateParts<'a> {
    /// Reads a whole certificate; `None` for other bytes.
    pub(super) fn read(certificate: &'a [u8]) -> Option<Self> {
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
pub(super) struct DerReader<'a>(pub(super) &'a [u8]);

impl<'a> DerReader<'a> {
    /// The tag and content of the next value; `None` at the end, and if the value is not complete.
    pub(super) fn next_value(&mut self) -> Option<(u8, &'a [u8])> {
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
    pub(super) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content) = self.next_value()?;
        (found == tag).then_some(content)
    }

    /// The object identifier and the DER value of the next item of `Extensions` (RFC 5280, section 4.1).
    pub(super) fn next_extension(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let mut extension = DerReader(self.expect(SEQUENCE_TAG)?);
        let kind = extension.expect(OBJECT_IDENTIFIER_TAG)?;
        // `critical` is left out where it is false.
        if extension.0.first() == Some(&BOOLEAN_TAG) {
            extension.next_value()?;
        }
        Some((kind, extension.expect(OCTET_STRING_TAG)?))
    }
}
