//! The codes that users bring from a sign-in page into the conversation.

use dray_agent::message::{Content, Message};

/// Letters and digits of codes, without those that look alike.
const CODE_ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Characters of a code before and after its dash: 40 bits, for one principal and at most 10 minutes.
const CODE_HALF_CHARS: usize = 4;
/// Most codes of one message that are looked up.
const MAX_CODES: usize = 3;

/// A new code, such as `K7QF-2MWX`.
pub(super) fn random_code() -> String {
    let bytes = rand_bytes();
    let letters = bytes.iter().map(|byte| {
        let letter = CODE_ALPHABET.get(usize::from(byte % 32));
        letter.map_or('A', |letter| char::from(*letter))
    });
    let mut code: String = letters.collect();
    code.insert(CODE_HALF_CHARS, '-');
    code
}

/// Random bytes for one code.
fn rand_bytes() -> [u8; 2 * CODE_HALF_CHARS] {
    let mut bytes = [0; 2 * CODE_HALF_CHARS];
    let random = uuid::Uuid::new_v4();
    // The first six bytes and the last seven of version 4 are all random; the others have the version and the variant.
    let all = random.as_bytes();
    let parts = all.iter().take(4).chain(all.iter().skip(12));
    for (byte, random) in bytes.iter_mut().zip(parts) {
        *byte = *random;
    }
    bytes
}

/// Codes in a message, in upper case.
pub(super) fn codes_in(message: &Message) -> Vec<String> {
    let texts: Vec<&str> = match &message.content {
        Some(Content::Text(text)) => vec![text],
        Some(Content::Parts(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect()
        }
        None => Vec::new(),
    };
    let words = texts.into_iter().flat_map(|text| {
        text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-')
    });
    let codes = words
        .filter(|word| is_code(word))
        .map(str::to_ascii_uppercase);
    codes.take(MAX_CODES).collect()
}

fn is_code(word: &str) -> bool {
    let is_half = |half: &str| {
        half.len() == CODE_HALF_CHARS
            && half
                .bytes()
                .all(|byte| CODE_ALPHABET.contains(&byte.to_ascii_uppercase()))
    };
    word.split_once('-')
        .is_some_and(|(first, second)| is_half(first) && is_half(second))
}

#[cfg(test)]
mod tests {
    use dray_agent::message::Role;

    use super::*;

    #[test]
    fn codes_are_found_in_what_users_write_around_them() {
        let code = random_code();
        assert!(is_code(&code), "{code}");
        assert_ne!(code, random_code());
        for text in [
            code.clone(),
            format!("The code is \"{code}\"."),
            format!("**{}**, thanks", code.to_ascii_lowercase()),
        ] {
            assert_eq!(
                codes_in(&Message::new(Role::User, &text)),
                std::slice::from_ref(&code),
                "{text}"
            );
        }
        for text in [
            "ABCD-EFG",
            "ABCD-EFG0",
            "ABCDE-FGHJ",
            "ABCD EFGH",
            "AB-CD-EFGH",
            "",
        ] {
            assert!(
                codes_in(&Message::new(Role::User, text)).is_empty(),
                "{text}"
            );
        }
        let many = "AAAA-AAAA BBBB-BBBB CCCC-CCCC DDDD-DDDD";
        assert_eq!(codes_in(&Message::new(Role::User, many)).len(), MAX_CODES);
    }
}
