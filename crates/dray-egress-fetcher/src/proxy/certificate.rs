//! The certificate of a client of the proxy: its name, and when it expires. The TLS handshake has verified it.

use rustls_pki_types::CertificateDer;

use super::der::{CertificateParts, DerReader, SEQUENCE_TAG};

/// Extension `subjectAltName` (RFC 5280, section 4.2.1.6).
const SUBJECT_ALTERNATIVE_NAME: [u8; 3] = [0x55, 0x1d, 17];
/// A DNS name among them.
const DNS_NAME_TAG: u8 = 0x82;
/// A URI among them.
const URI_TAG: u8 = 0x86;
const UTC_TIME_TAG: u8 = 0x17;
const GENERALIZED_TIME_TAG: u8 = 0x18;
/// Longest name in bytes; a longer one, or one with other characters than printable ASCII, is no name.
const MAX_NAME_BYTES: usize = 512;
const SECONDS_PER_DAY: u64 = 24 * 3600;

/// A certificate that the TLS handshake has verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// Its first URI, or without one its first DNS name; `None` without either.
    pub name: Option<String>,
    /// Unix seconds at which it expires.
    pub expires_s: u64,
}

impl ClientCertificate {
    /// Reads a certificate; `None` for one whose parts cannot be read.
    pub fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let parts = CertificateParts::read(certificate)?;
        Some(Self {
            name: match parts.extensions {
                Some(extensions) => read_name(extensions)?,
                None => None,
            },
            expires_s: read_expiry(parts.validity)?,
        })
    }
}

/// The name in `extensions`. `None` for bytes that cannot be read.
fn read_name(extensions: &[u8]) -> Option<Option<String>> {
    let mut extensions = DerReader(extensions);
    let (mut uri, mut dns_name) = (None, None);
    while !extensions.0.is_empty() {
        let (kind, value) = extensions.next_extension()?;
        if kind != SUBJECT_ALTERNATIVE_NAME {
            continue;
        }
        let mut names = DerReader(DerReader(value).expect(SEQUENCE_TAG)?);
        while !names.0.is_empty() {
            let (tag, name) = names.next_value()?;
            let first = match tag {
                URI_TAG => &mut uri,
                DNS_NAME_TAG => &mut dns_name,
                _ => continue,
            };
            // A later name does not replace a first one that is not readable.
            first.get_or_insert_with(|| readable(name));
        }
    }
    Some(uri.or(dns_name).flatten())
}

fn readable(name: &[u8]) -> Option<String> {
    let is_readable =
        (1..=MAX_NAME_BYTES).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic);
    is_readable.then(|| String::from_utf8_lossy(name).into_owned())
}

/// `notAfter` in Unix seconds.
fn read_expiry(validity: &[u8]) -> Option<u64> {
    let mut times = DerReader(validity);
    times.next_value()?;
    let (tag, time) = times.next_value()?;
    let digits = std::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        // Two digits stand for 1950 to 2049 (RFC 5280, section 4.1.2.5.1).
        UTC_TIME_TAG => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME_TAG => {
            let (year, rest) = digits.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let number = |from: usize| rest.get(from..from + 2)?.parse::<u64>().ok();
    let (month, day) = (number(0)?, number(2)?);
    let seconds = number(4)? * 3600 + number(6)? * 60 + number(8)?;
    Some(days_since_epoch(year, month, day)? * SECONDS_PER_DAY + seconds)
}

/// Days from 1 January 1970 to a date of the Gregorian calendar; `None` before it.
fn days_since_epoch(year: u64, month: u64, day: u64) -> Option<u64> {
    /// Days before each month of a year that is no leap year.
    const DAYS_BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let past_years = year.checked_sub(1970)?;
    let leap_days_before = |year: u64| year / 4 - year / 100 + year / 400;
    let leap_days = leap_days_before(year.checked_sub(1)?) - leap_days_before(1969);
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let before = DAYS_BEFORE.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    let leap_day = u64::from(is_leap && month > 2);
    Some(past_years * 365 + leap_days + before + leap_day + day.checked_sub(1)?)
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
