//! Reads the few parts of the authority's certificate that a leaf certificate repeats (RFC 5280, section 4.1), from
//! DER.
//!
//! The file is the operator's own. It is read strictly nevertheless: a part that is not understood is an error at the
//! start, and [`super::InterceptionAuthority`] verifies a leaf before it is used.

use dray_service::der::{
    BIT_STRING_TAG, BOOLEAN_TAG, CertificateParts, DerReader, IA5_STRING_TAG,
    OBJECT_IDENTIFIER_TAG, OCTET_STRING_TAG, PRINTABLE_STRING_TAG, SEQUENCE_TAG, SET_TAG,
    UTF8_STRING_TAG,
};
use rcgen::string::{Ia5String, PrintableString};
use rcgen::{DistinguishedName, DnType, DnValue};

use super::AuthorityError;

// Object identifiers of extensions below 2.5.29 (`id-ce`), as DER.
const SUBJECT_KEY_IDENTIFIER: [u8; 3] = [0x55, 0x1d, 14];
const KEY_USAGE: [u8; 3] = [0x55, 0x1d, 15];
const BASIC_CONSTRAINTS: [u8; 3] = [0x55, 0x1d, 19];
/// Bit `keyCertSign` in the first byte of `KeyUsage`.
const CERTIFICATE_SIGN_BIT: u8 = 0x04;

/// Fields of the authority's certificate that leaf certificates repeat.
#[derive(Clone, Debug, Default)]
pub(super) struct AuthorityFacts {
    /// The name, as issuer of leaves.
    pub(super) name: DistinguishedName,
    /// The identifier of its key; `None` where the certificate has no key identifier.
    pub(super) key_id: Option<Vec<u8>>,
}

/// Reads a certificate that may sign others.
pub(super) fn read_facts(certificate: &[u8]) -> Result<AuthorityFacts, AuthorityError> {
    let malformed = || AuthorityError::Certificate("it is not one in DER form".into());
    let parts = CertificateParts::read(certificate).ok_or_else(malformed)?;
    let name = read_name(parts.subject).ok_or(AuthorityError::Name)?;
    let extensions = parts.extensions.map(read_extensions);
    let extensions = extensions.unwrap_or(Some(AuthorityExtensions::default()));
    let extensions = extensions.ok_or_else(malformed)?;
    if !extensions.is_authority || extensions.forbids_signing {
        return Err(AuthorityError::NotAuthority);
    }
    Ok(AuthorityFacts {
        name,
        key_id: extensions.key_id,
    })
}

/// Reads a name whose parts have one attribute each, of different types.
fn read_name(subject: &[u8]) -> Option<DistinguishedName> {
    let mut name = DistinguishedName::new();
    let mut parts = DerReader(subject);
    while !parts.0.is_empty() {
        let mut part = DerReader(parts.expect(SET_TAG)?);
        let mut attribute = DerReader(part.expect(SEQUENCE_TAG)?);
        let kind = DnType::CustomDnType(read_object_identifier(
            attribute.expect(OBJECT_IDENTIFIER_TAG)?,
        )?);
        let (tag, content) = attribute.next_value()?;
        // The other string types may hold bytes of any encoding.
        let text = std::str::from_utf8(content).ok()?;
        let value = match tag {
            UTF8_STRING_TAG => DnValue::Utf8String(text.to_owned()),
            PRINTABLE_STRING_TAG => DnValue::PrintableString(PrintableString::try_from(text).ok()?),
            IA5_STRING_TAG => DnValue::Ia5String(Ia5String::try_from(text).ok()?),
            _ => return None,
        };
        // A second attribute of a type would replace the first.
        if !part.0.is_empty() || !attribute.0.is_empty() || name.get(&kind).is_some() {
            return None;
        }
        name.push(kind, value);
    }
    Some(name)
}

#[derive(Default)]
struct AuthorityExtensions {
    key_id: Option<Vec<u8>>,
    is_authority: bool,
    /// Whether there is a key usage without the right to sign certificates.
    forbids_signing: bool,
}

fn read_extensions(content: &[u8]) -> Option<AuthorityExtensions> {
    let mut found = AuthorityExtensions::default();
    let mut extensions = DerReader(content);
    while !extensions.0.is_empty() {
        let (kind, value) = extensions.next_extension()?;
        let mut value = DerReader(value);
        if kind == SUBJECT_KEY_IDENTIFIER {
            found.key_id = Some(value.expect(OCTET_STRING_TAG)?.to_vec());
        } else if kind == BASIC_CONSTRAINTS {
            let mut constraints = DerReader(value.expect(SEQUENCE_TAG)?);
            found.is_authority = constraints
                .next_value()
                .is_some_and(|(tag, content)| tag == BOOLEAN_TAG && content != [0]);
        } else if kind == KEY_USAGE {
            // The first byte is the number of unused bits.
            let bits = value.expect(BIT_STRING_TAG)?.get(1).copied();
            found.forbids_signing = bits.unwrap_or_default() & CERTIFICATE_SIGN_BIT == 0;
        }
    }
    Some(found)
}

/// The numbers of an object identifier (X.690, section 8.19).
fn read_object_identifier(content: &[u8]) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for byte in content {
        number = number.checked_mul(128)? + u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if numbers.is_empty() {
            // The first number packs two: 40 times the first, plus the second.
            let first = (number / 40).min(2);
            numbers.extend([first, number - 40 * first]);
        } else {
            numbers.push(number);
        }
        number = 0;
    }
    // The last byte ends a number.
    content
        .last()
        .is_some_and(|byte| byte & 0x80 == 0)
        .then_some(numbers)
}
