//! Tokens that are accepted, and changed tokens, which are refused.

use super::*;

const NOW_MS: u64 = 1_800_000_000_000;

fn secret(byte: char) -> Secret {
    Secret::new(byte.to_string().repeat(MIN_KEY_BYTES))
}

fn keys(current: char, previous: Option<char>) -> TokenKeys {
    TokenKeys::new(&secret(current), previous.map(secret).as_ref()).unwrap()
}

fn identity() -> ProxyIdentity {
    ProxyIdentity {
        tenant: TenantId::new("acme").unwrap(),
        session: SessionId::new("chat-1").unwrap(),
        app: Some(AppId::new("analyst").unwrap()),
        expires_s: NOW_MS / 1000 + 60,
        allow: Some(vec!["*.example.org".to_owned()]),
        certificate: None,
    }
}

#[test]
fn a_token_names_its_identity_until_it_expires() {
    let keys = keys('a', None);
    let token = keys.mint(&identity()).unwrap();
    let verify = |now_ms| keys.verify(token.as_bytes(), now_ms);
    assert_eq!(verify(NOW_MS), Ok(identity()));
    assert_eq!(verify(NOW_MS + 59_999), Ok(identity()));
    assert_eq!(verify(NOW_MS + 60_000), Err(IdentityError::Expired));
    let plain = ProxyIdentity {
        app: None,
        allow: None,
        ..identity()
    };
    let token = keys.mint(&plain).unwrap();
    assert!(token.len() <= MAX_SOCKS_TOKEN_BYTES);
    assert_eq!(keys.verify(token.as_bytes(), NOW_MS), Ok(plain));
}

#[test]
fn keys_can_be_changed_without_a_gap() {
    let token = keys('a', None).mint(&identity()).unwrap();
    assert!(
        keys('b', Some('a'))
            .verify(token.as_bytes(), NOW_MS)
            .is_ok()
    );
    assert_eq!(
        keys('b', None).verify(token.as_bytes(), NOW_MS),
        Err(IdentityError::Invalid)
    );
    let short = Secret::new("x".repeat(MIN_KEY_BYTES - 1));
    assert_eq!(
        TokenKeys::new(&short, None).unwrap_err(),
        MintError::ShortKey
    );
}

#[test]
fn a_token_with_any_other_byte_is_invalid() {
    let keys = keys('a', None);
    let token = keys.mint(&identity()).unwrap();
    for index in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
        assert_eq!(
            keys.verify(&changed, NOW_MS),
            Err(IdentityError::Invalid),
            "{index}"
        );
    }
    for cut in [0, 1, 5, 6, token.len() - 1] {
        assert!(keys.verify(&token.as_bytes()[..cut], NOW_MS).is_err());
    }
    let (claims, _) = token.rsplit_once('.').unwrap();
    for forged in [
        format!("{claims}."),
        format!("{claims}.."),
        claims.to_owned(),
    ] {
        assert!(keys.verify(forged.as_bytes(), NOW_MS).is_err(), "{forged}");
    }
}

#[test]
fn p_4_a_host_list_that_is_not_a_list_of_patterns_refuses_every_host() {
    let mut identity = identity();
    identity.allow = Some(Vec::new());
    let keys = keys('a', None);
    let token = keys.mint(&identity).unwrap();
    let read = keys.verify(token.as_bytes(), NOW_MS).unwrap();
    assert_eq!(read.policy().host_allowlist, Some(Vec::new()), "P-1");
    identity.allow = Some(vec!["x".repeat(MAX_TOKEN_BYTES)]);
    assert_eq!(keys.mint(&identity), Err(MintError::TooLong));
}

#[test]
fn a_token_is_found_in_both_schemes() {
    let field = |text: &str| token_of(Some(&HeaderValue::from_str(text).unwrap()));
    let basic = |text: &str| field(&format!("Basic {}", STANDARD.encode(text)));
    assert_eq!(field("Bearer abc.d"), Ok(b"abc.d".to_vec()));
    assert_eq!(field("bearer  abc.d"), Ok(b"abc.d".to_vec()));
    assert_eq!(basic("user:abc:d"), Ok(b"abc:d".to_vec()));
    assert_eq!(basic(":abc"), Ok(b"abc".to_vec()));
    assert_eq!(token_of(None), Err(IdentityError::Missing));
    for wrong in ["abc", "Digest abc", "Basic !", "Basic YWJj"] {
        assert_eq!(field(wrong), Err(IdentityError::Invalid), "{wrong}");
    }
}
