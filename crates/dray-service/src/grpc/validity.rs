//! When a certificate expires (RFC 5280, section 4.1.2.5). TLS does not look at the end of the own certificate: the
//! clients refuse it.

use crate::der::{CertificateParts, DerReader, GENERALIZED_TIME_TAG, UTC_TIME_TAG};

const SECONDS_PER_DAY: i64 = 86_400;

/// End of validity of a certificate in DER, in Unix seconds; `None` for a certificate that cannot be read, or that ended
/// before 1970.
pub fn certificate_expiry_seconds(certificate: &[u8]) -> Option<u64> {
    let mut times = DerReader(CertificateParts::read(certificate)?.validity);
    // The beginning.
    times.next_value()?;
    let (tag, time) = times.next_value()?;
    unix_seconds(tag, time)
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn unix_seconds(tag: u8, time: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME_TAG => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME_TAG => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 || !rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let two_digits = |start: usize| rest[start..start + 2].parse::<i64>().ok();
    let days = days_since_1970(year, two_digits(0)?, two_digits(2)?);
    let seconds = two_digits(4)? * 3600 + two_digits(6)? * 60 + two_digits(8)?;
    u64::try_from(days * SECONDS_PER_DAY + seconds).ok()
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years begin in March here, so a leap day is the last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days_before_month = (153 * month + 2) / 5;
    // Days from 0000-03-01 to 1970-01-01.
    year * 365 + leap_days + days_before_month + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    #[test]
    fn times_of_certificates_are_read_as_unix_seconds() {
        for (tag, time, seconds) in [
            (UTC_TIME_TAG, "700101000000Z", Some(0)),
            (UTC_TIME_TAG, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME_TAG, "240229120000Z", Some(1_709_208_000)),
            (GENERALIZED_TIME_TAG, "20240301000000Z", Some(1_709_251_200)),
            (GENERALIZED_TIME_TAG, "20500101000000Z", Some(2_524_608_000)),
            (UTC_TIME_TAG, "690101000000Z", None),
            (UTC_TIME_TAG, "2402291200Z", None),
            (UTC_TIME_TAG, "240229120000", None),
            (UTC_TIME_TAG, "2402291200é", None),
            (0x02, "240229120000Z", None),
        ] {
            assert_eq!(unix_seconds(tag, time.as_bytes()), seconds, "{time}");
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_found_and_a_cut_one_has_none() {
        let authority = dray_testkit::tls::Authority::new().unwrap();
        let issued = authority.issue(&["localhost"], true).unwrap();
        let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        // 2001-01-01, as the authority of the tests has it.
        assert_eq!(certificate_expiry_seconds(&der), Some(978_307_200));
        for length in [0, 1, 2, 5, 40] {
            assert_eq!(certificate_expiry_seconds(&der[..length]), None, "{length}");
        }
        assert_eq!(certificate_expiry_seconds(&[0x30, 0x80, 0, 0]), None);
    }
}
