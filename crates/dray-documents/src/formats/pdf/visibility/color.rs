//! Computes the colours of a page as far as needed to decide whether text is visible.

use std::rc::Rc;

use pdfboss_core::Object;

use crate::formats::pdf::metered::MeteredDocument;

/// Largest difference in one channel between two colours that look the same.
const MAX_CHANNEL_DIFFERENCE: f32 = 0.06;
/// Most colours in the table of an indexed colour space.
const MAX_INDEXED: usize = 256;

/// The paint of text or of an area.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ink {
    /// One colour: red, green, blue, from 0 to 1.
    Color([f32; 3]),
    /// A pattern, a picture, or a colour space whose colours are not computed here.
    Unknown,
}

impl Ink {
    pub(super) const BLACK: Self = Self::Color([0.0; 3]);
    pub(super) const PAPER: Self = Self::Color([1.0; 3]);

    /// The luminance from 0 to 1 (ITU-R BT.601); 0 when the colour is unknown.
    pub(super) fn luminance(self) -> f32 {
        match self {
            Self::Color([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue,
            Self::Unknown => 0.0,
        }
    }

    /// Whether a person cannot distinguish the two inks.
    pub(super) fn looks_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::Color(a), Self::Color(b)) => a
                .iter()
                .zip(b)
                .all(|(left, right)| (left - right).abs() <= MAX_CHANNEL_DIFFERENCE),
            _ => false,
        }
    }
}

/// A colour space, with the data that is needed to compute its colours.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Space {
    /// Gray, RGB or CMYK, distinguished by the number of components.
    Device,
    /// CIE L*a*b*: lightness and two colour axes.
    Lab,
    /// An index into a table of colours.
    Indexed(Rc<[Ink]>),
    /// Amounts of inks; when all amounts are zero, the paper shows.
    Tint,
    /// Any other space, such as patterns. Its colours are unknown.
    Other,
}

impl Space {
    /// The space that a resource names.
    pub(super) fn of(object: &Object, source: &MeteredDocument<'_>) -> Self {
        let array = object.as_array().unwrap_or_default();
        let family = object.as_name().or_else(|| array.first()?.as_name());
        match family.map(|name| name.0.as_str()) {
            Some(
                "DeviceGray" | "DeviceRGB" | "DeviceCMYK" | "G" | "RGB" | "CMYK" | "CalGray"
                | "CalRGB" | "ICCBased",
            ) => Self::Device,
            Some("Lab") => Self::Lab,
            Some("Indexed" | "I") => {
                let table = table(array, source);
                table.map_or(Self::Other, |table| Self::Indexed(table.into()))
            }
            Some("Separation" | "DeviceN") => Self::Tint,
            _ => Self::Other,
        }
    }

    /// The initial colour of the space (ISO 32000-1, 8.6.8).
    pub(super) fn initial(&self) -> Ink {
        match self {
            Self::Device | Self::Lab => Ink::BLACK,
            Self::Indexed(table) => table.first().copied().unwrap_or(Ink::Unknown),
            Self::Tint | Self::Other => Ink::Unknown,
        }
    }

    /// The colour with these components in this space.
    pub(super) fn ink(&self, components: &[f32]) -> Ink {
        match (self, components) {
            (Self::Device, _) => device(components),
            (Self::Lab, [lightness, a, b]) => lab(*lightness, *a, *b),
            (Self::Indexed(table), [number]) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "clamped to the numbers that a table can have"
                )]
                let number = number.clamp(0.0, 255.0) as usize;
                let last = table.len().saturating_sub(1);
                table.get(number.min(last)).copied().unwrap_or(Ink::Unknown)
            }
            (Self::Tint, _)
                // The colour of any other amount is defined by a function of the document, which is not evaluated.
                if components
                    .iter()
                    .all(|amount| *amount <= MAX_CHANNEL_DIFFERENCE) =>
            {
                Ink::PAPER
            }
            _ => Ink::Unknown,
        }
    }
}

/// The colours of an indexed space: `[/Indexed base last table]`, the table a string or a stream.
fn table(array: &[Object], source: &MeteredDocument<'_>) -> Option<Vec<Ink>> {
    let base = source.fetch(array.get(1)?)?;
    let components = match base.as_name().map(|name| name.0.as_str()) {
        Some("DeviceGray" | "CalGray" | "G") => 1,
        Some("DeviceRGB" | "RGB") => 3,
        Some("DeviceCMYK" | "CMYK") => 4,
        _ => components_of(base.as_array()?, source)?,
    };
    let table = match source.fetch(array.get(3)?)? {
        Object::Stream(stream) => source.picture(&stream)?,
        text => text.as_str_bytes()?.to_vec(),
    };
    let colors = table.chunks_exact(components).take(MAX_INDEXED);
    Some(
        colors
            .map(|color| {
                let parts: Vec<f32> = color.iter().map(|part| f32::from(*part) / 255.0).collect();
                device(&parts)
            })
            .collect(),
    )
}

/// The number of components of a colour space that is an array.
fn components_of(array: &[Object], source: &MeteredDocument<'_>) -> Option<usize> {
    match array.first()?.as_name()?.0.as_str() {
        "CalGray" => Some(1),
        "CalRGB" => Some(3),
        "ICCBased" => {
            let profile = source.fetch(array.get(1)?)?;
            let count = source
                .fetch(profile.as_stream()?.dict.get("N")?)?
                .as_int()?;
            usize::try_from(count)
                .ok()
                .filter(|count| matches!(count, 1 | 3 | 4))
        }
        _ => None,
    }
}

/// Converts CIE L*a*b* to sRGB. The white of the space becomes the white of the paper (ISO 32000-1, 8.6.5.4).
fn lab(lightness: f32, green_red: f32, blue_yellow: f32) -> Ink {
    let middle = (lightness + 16.0) / 116.0;
    let stage = |value: f32| {
        if value >= 6.0 / 29.0 {
            value.powi(3)
        } else {
            108.0 / 841.0 * (value - 4.0 / 29.0)
        }
    };
    // The white point that the space names is ignored and the one of sRGB is used, because paper counts as white.
    let cie = [
        0.9505 * stage(middle + green_red / 500.0),
        stage(middle),
        1.089 * stage(middle - blue_yellow / 200.0),
    ];
    let channel = |weights: [f32; 3]| {
        let linear: f32 = weights
            .iter()
            .zip(cie)
            .map(|(weight, part)| weight * part)
            .sum();
        if linear <= 0.003_130_8 {
            12.92 * linear
        } else {
            1.055 * linear.powf(1.0 / 2.4) - 0.055
        }
    };
    device(&[
        channel([3.2406, -1.5372, -0.4986]),
        channel([-0.9689, 1.8758, 0.0415]),
        channel([0.0557, -0.2040, 1.0570]),
    ])
}

/// The colour of one (gray), three (RGB) or four (CMYK) components.
pub(super) fn device(components: &[f32]) -> Ink {
    let clamped = |value: f32| {
        if value.is_finite() {
            value.clamp(0.0, 1.0)
        } else {
            0.0
        }
    };
    match *components {
        [gray] => Ink::Color([clamped(gray); 3]),
        [red, green, blue] => Ink::Color([clamped(red), clamped(green), clamped(blue)]),
        [cyan, magenta, yellow, black] => Ink::Color(
            [cyan, magenta, yellow].map(|ink| (1.0 - clamped(ink)) * (1.0 - clamped(black))),
        ),
        _ => Ink::Unknown,
    }
}
