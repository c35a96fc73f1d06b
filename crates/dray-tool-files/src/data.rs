//! The sentences for the model about a data URL (RFC 2397) that is refused (quickapps 25.3).

use dray_dial::InvalidDataUrl;

/// The sentence for the model.
pub fn refused_data_sentence(refusal: InvalidDataUrl, parameter: &str, limit: u64) -> String {
    match refusal {
        InvalidDataUrl::Malformed => format!(
            "Parameter `{parameter}` carries a malformed data: URI. Pass a DIAL file path (e.g. files/bucket/foo.pdf) \
             instead."
        ),
        InvalidDataUrl::TooLarge { size } => format!(
            "Inline data: content for parameter `{parameter}` is {size} bytes, over the {limit}-byte file size limit. \
             Upload the file to DIAL and pass `files/...` instead."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_name_the_parameter_and_the_alternative() {
        assert_eq!(
            refused_data_sentence(InvalidDataUrl::Malformed, "p", 1),
            "Parameter `p` carries a malformed data: URI. Pass a DIAL file path (e.g. files/bucket/foo.pdf) instead."
        );
        assert_eq!(
            refused_data_sentence(InvalidDataUrl::TooLarge { size: 4 }, "p", 3),
            "Inline data: content for parameter `p` is 4 bytes, over the 3-byte file size limit. Upload the file to DIAL and \
             pass `files/...` instead."
        );
    }
}
