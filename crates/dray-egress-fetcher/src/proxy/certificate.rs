//! The certificate of a client of the proxy: its name, and when it expires. The TLS handshake has verified it.

use dray_service::certificate_expiry_seconds;
use dray_service::der::{CertificateParts, DerReader, SEQUENCE_TAG};
use rustls_pki_types::CertificateDer;

/// Extension `subjectAltName` (RFC 5280, section 4.2.1.6).
const SUBJECT_ALTERNATIVE_NAME: [u8; 3] = [0x55, 0x1d, 17];
/// Tag of a DNS name in the extension.
const DNS_NAME_TAG: u8 = 0x82;
/// Tag of a URI in the extension.
const URI_TAG: u8 = 0x86;
/// Longest name in bytes. A longer name, and one with characters other than printable ASCII, identifies no client.
const MAX_NAME_BYTES: usize = 512;

/// A certificate that the TLS handshake has verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate's first URI, or without one its first DNS name; `None` without either.
    pub name: Option<String>,
    /// Unix seconds at which it expires.
    pub expires_s: u64,
}

impl ClientCertificate {
    /// Reads a certificate; `None` for one whose parts cannot be read.
    pub fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parts = CertificateParts::read(certificate)?;
        let names = parts
            .extensions
            .map_or(Some(Vec::new()), alternative_names)?;
        Some(Self {
            name: first_name(&names),
            expires_s: certificate_expiry_seconds(certificate)?,
        })
    }
}

/// The tags and contents of `subjectAltName` in `extensions`, in order; empty without one. `None` for bytes that cannot
/// be read.
fn alternative_names(extensions: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut extensions = DerReader(extensions);
    let mut found = Vec::new();
    while !extensions.0.is_empty() {
        let (kind, value) = extensions.next_extension()?;
        if kind != SUBJECT_ALTERNATIVE_NAME {
            continue;
        }
        let mut names = DerReader(DerReader(value).expect(SEQUENCE_TAG)?);
        while !names.0.is_empty() {
            found.push(names.next_value()?);
        }
    }
    Some(found)
}

/// The first URI, or without one the first DNS name. A later name does not replace a first one that is not readable.
fn first_name(names: &[(u8, &[u8])]) -> Option<String> {
    let first = |tag| names.iter().find(|(found, _)| *found == tag);
    let (_, name) = first(URI_TAG).or_else(|| first(DNS_NAME_TAG))?;
    readable(name)
}

/// Returns whether a certificate with this name identifies a client.
pub fn is_client_name(name: &[u8]) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic)
}

fn readable(name: &[u8]) -> Option<String> {
    is_client_name(name).then(|| String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType, date_time_ymd};

    use super::*;

    fn certificate(names: &[(&str, bool)], until: (i32, u8, u8)) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        params.subject_alt_names = names
            .iter()
            .map(|(name, is_uri)| {
                let name = (*name).try_into().unwrap();
                if *is_uri {
                    SanType::URI(name)
                } else {
                    SanType::DnsName(name)
                }
            })
            .collect();
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        ClientCertificate::read(certificate.der()).unwrap()
    }

    #[test]
    fn the_name_is_the_first_uri_or_the_first_dns_name() {
        let uri = "spiffe://example.org/agents/one";
        for (names, expected) in [
            (&[][..], None),
            (&[("a.example.org", false)], Some("a.example.org")),
            (
                &[("a.example.org", false), ("b.example.org", false)],
                Some("a.example.org"),
            ),
            (&[("a.example.org", false), (uri, true)], Some(uri)),
            (&[(uri, true), ("spiffe://example.org/b", true)], Some(uri)),
            (&[("spiffe://example.org/a b", true), (uri, true)], None),
        ] {
            let certificate = certificate(names, (2030, 1, 1));
            assert_eq!(certificate.name.as_deref(), expected, "{names:?}");
        }
    }

    #[test]
    fn the_expiry_is_read_in_both_forms() {
        for (until, seconds) in [
            ((2026, 11, 28), 1_795_824_000),
            ((2028, 2, 29), 1_835_395_200),
            ((2028, 3, 1), 1_835_481_600),
            // From 2050 on, the year has four digits.
            ((2050, 1, 1), 2_524_608_000),
            ((2100, 3, 1), 4_107_542_400),
            ((9999, 12, 31), 253_402_214_400),
        ] {
            assert_eq!(certificate(&[], until).expires_s, seconds, "{until:?}");
        }
    }

    #[test]
    fn other_bytes_are_no_certificate() {
        for bytes in [&b""[..], b"\x30\x00", b"\x30\x03\x30\x01\x00"] {
            assert_eq!(ClientCertificate::read(&CertificateDer::from(bytes)), None);
        }
    }
}
