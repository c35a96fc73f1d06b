//! Sizes as people read them (platform-delivery 11.5).

/// Units above bytes. Larger sizes use `GB` as well.
const SIZE_UNITS: [&str; 3] = ["KB", "MB", "GB"];

/// `16 B`, `2.0 KB`, `42 KB`, `1.5 GB`: divided by 1024 until below 1024, one decimal below 10, an integer above,
/// rounded half up.
pub fn human_size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut power = 1;
    while power < SIZE_UNITS.len() && (bytes >> (10 * power)) >= 1024 {
        power += 1;
    }
    let unit = SIZE_UNITS.get(power - 1).copied().unwrap_or_default();
    // Ten times a size near `u64::MAX` overflows 64 bits.
    let (bytes, divisor) = (u128::from(bytes), 1_u128 << (10 * power));
    if bytes < divisor * 10 {
        let tenths = (bytes * 10 + divisor / 2) / divisor;
        return format!("{}.{} {unit}", tenths / 10, tenths % 10);
    }
    format!("{} {unit}", (bytes + divisor / 2) / divisor)
}

/// `62 MB of 50 MB`: the size of a file and the limit. If both would have the same text, the bytes are shown.
pub fn over_limit(size: u64, limit: u64) -> String {
    let (size_text, limit_text) = (human_size(size), human_size(limit));
    if size_text == limit_text {
        return format!("{size} bytes of {limit}");
    }
    format!("{size_text} of {limit_text}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_read_as_the_context_line_shows_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1.0 KB"),
            (2048, "2.0 KB"),
            (43_008, "42 KB"),
            (1536, "1.5 KB"),
            (10_239, "10.0 KB"),
            (10_240, "10 KB"),
            (10_751, "10 KB"),
            (10_752, "11 KB"),
            (1_048_575, "1024 KB"),
            (1 << 20, "1.0 MB"),
            (50 << 20, "50 MB"),
            (2_000_000_000, "1.9 GB"),
            (5 << 40, "5120 GB"),
            (u64::MAX, "17179869184 GB"),
        ] {
            assert_eq!(human_size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn a_limit_that_reads_like_the_size_is_reported_in_bytes() {
        assert_eq!(over_limit(2048, 1024), "2.0 KB of 1.0 KB");
        assert_eq!(over_limit(62 << 20, 50 << 20), "62 MB of 50 MB");
        assert_eq!(
            over_limit((50 << 20) + 1, 50 << 20),
            "52428801 bytes of 52428800"
        );
    }

    proptest! {
        #[test]
        fn shown_sizes_are_rounded_by_at_most_half_a_step(bytes: u64) {
            let text = human_size(bytes);
            let (number, unit) = text.split_once(' ').unwrap();
            let power = ["B", "KB", "MB", "GB"].iter().position(|name| *name == unit).unwrap();
            let factor = 1_i128 << (10 * power);
            let tenths = match number.split_once('.') {
                Some((whole, tenth)) => whole.parse::<i128>().unwrap() * 10 + tenth.parse::<i128>().unwrap(),
                None => number.parse::<i128>().unwrap() * 10,
            };
            let off = (tenths * factor - i128::from(bytes) * 10).abs();
            let step = if number.contains('.') { factor } else { factor * 10 };
            prop_assert!(off * 2 <= step, "{text} for {bytes}");
        }
    }
}
