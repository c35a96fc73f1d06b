//! Tests of the authority: what it refuses at the start, and its certificates.

use dray_guard::CanonicalUrl;
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertifiedIssuer, DnValue, IsCa};

use super::*;
use crate::proxy::tests::intercepted::new_authority;

const NOW_S: u64 = 1_800_000_000;

fn host(text: &str) -> Host {
    let url = CanonicalUrl::parse(&format!("https://{text}/")).unwrap();
    url.host().clone()
}

/// A certificate with these parameters, and its key.
fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "test");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    (issuer.pem(), issuer.key().serialize_pem())
}

#[test]
fn certificates_are_made_once_for_a_host_and_again_after_a_day() {
    let (certificate, _, key) = new_authority();
    let authority = InterceptionAuthority::new(&certificate, &key, NOW_S).unwrap();
    let config = |text: &str, now_s| authority.server_config(&host(text), now_s).unwrap();
    let first = config("files.example.org", NOW_S);
    assert!(Arc::ptr_eq(
        &first,
        &config("FILES.example.org", NOW_S + 3600)
    ));
    assert!(!Arc::ptr_eq(&first, &config("8.8.8.8", NOW_S)));
    config("[2606:4700::1111]", NOW_S);
    let day = LEAF_USE.as_secs();
    assert!(!Arc::ptr_eq(
        &first,
        &config("files.example.org", NOW_S + day)
    ));
    // A clock that was set back makes another one too.
    let later = config("files.example.org", NOW_S + day);
    assert!(!Arc::ptr_eq(&later, &config("files.example.org", NOW_S)));
}

#[test]
fn an_authority_expires_with_the_first_certificate_of_its_chain() {
    let until = |year| self_signed(|params| params.not_after = date_time_ymd(year, 1, 1));
    let ((certificate, key), (root, _)) = (until(2100), until(2050));
    for (chain, expires_s) in [
        (certificate.clone(), 4_102_444_800),
        (format!("{certificate}{root}"), 2_524_608_000),
    ] {
        let authority = InterceptionAuthority::new(&chain, &key, NOW_S).unwrap();
        assert_eq!(authority.expires_s(), Some(expires_s));
    }
}

#[test]
fn the_number_of_kept_certificates_is_bounded_and_the_one_used_longest_ago_goes() {
    let (certificate, _, key) = new_authority();
    let authority = InterceptionAuthority::new(&certificate, &key, NOW_S).unwrap();
    let config = |number: usize, now_s| {
        let name = host(&format!("h{number}.example.org"));
        authority.server_config(&name, now_s).unwrap()
    };
    let first = config(0, NOW_S + 2);
    for number in 1..MAX_LEAVES {
        config(number, NOW_S + 1);
    }
    config(MAX_LEAVES, NOW_S + 3);
    assert_eq!(authority.leaves.lock().unwrap().len(), MAX_LEAVES);
    assert!(Arc::ptr_eq(&first, &config(0, NOW_S + 3)));
}

#[test]
fn certificates_have_serial_numbers_of_their_own_and_name_the_key_of_the_authority() {
    let (certificate, _, key) = new_authority();
    let authority = InterceptionAuthority::new(&certificate, &key, NOW_S).unwrap();
    let one = authority.leaf("a.example.org", NOW_S).unwrap();
    let other = authority.leaf("a.example.org", NOW_S).unwrap();
    assert_ne!(one, other);
    // RFC 5280, section 4.2.1.1: the extension `authorityKeyIdentifier`.
    assert!(one.windows(3).any(|bytes| bytes == [0x55, 0x1d, 35]));
    // A name that is too long for a common name.
    let long = format!("{}.example.org", "a".repeat(60));
    authority.leaf(&long, NOW_S).unwrap();
}

#[test]
fn an_authority_that_clients_would_refuse_stops_the_start() {
    let (certificate, _, key) = new_authority();
    let (_, _, other_key) = new_authority();
    let refused = |certificate: &str, key: &str| {
        let authority = InterceptionAuthority::new(certificate, key, NOW_S);
        authority.unwrap_err()
    };
    assert!(matches!(refused("", &key), AuthorityError::Certificate(_)));
    assert!(matches!(
        refused(&key, &key),
        AuthorityError::Certificate(_)
    ));
    assert!(matches!(refused(&certificate, "x"), AuthorityError::Key(_)));
    assert!(matches!(
        refused(&certificate, &other_key),
        AuthorityError::Mismatch(_)
    ));
    let (leaf, leaf_key) = self_signed(|params| params.is_ca = IsCa::ExplicitNoCa);
    assert!(matches!(
        refused(&leaf, &leaf_key),
        AuthorityError::NotAuthority
    ));
    let (signer, signer_key) = self_signed(|params| {
        params.key_usages = vec![KeyUsagePurpose::CrlSign];
    });
    assert!(matches!(
        refused(&signer, &signer_key),
        AuthorityError::NotAuthority
    ));
}

#[test]
fn names_of_authorities_are_repeated_byte_for_byte() {
    let (certificate, key) = self_signed(|params| {
        let name = &mut params.distinguished_name;
        name.push(DnType::CountryName, "CH");
        name.push(DnType::OrganizationName, "Größe & Söhne");
        let address = Ia5String::try_from("ca@example.org").unwrap();
        let mail = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
        name.push(mail, DnValue::Ia5String(address));
    });
    // The probe is verified by a comparison of the bytes of both names.
    InterceptionAuthority::new(&certificate, &key, NOW_S).unwrap();
}

#[test]
fn a_damaged_certificate_is_refused_and_never_read_beyond_its_end() {
    let (certificate, _, _) = new_authority();
    let whole = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    assert!(read_facts(&whole).is_ok());
    for length in 0..whole.len() {
        assert!(read_facts(&whole[..length]).is_err(), "{length}");
    }
    for index in 0..whole.len() {
        let mut damaged = whole.to_vec();
        damaged[index] ^= 0x80;
        // Whether it is refused depends on the byte; it must not panic.
        let _ = read_facts(&damaged);
    }
}
