//! Colours of a page, as far as they decide whether text can be seen.

use pdfboss_core::Object;

/// How far two colours may differ in one channel and still look the same.
const SAME: f32 = 0.06;

/// What something is painted with.
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

    /// How light it is, from 0 to 1 (ITU-R BT.601); 0 when that is not known.
    pub(super) fn luminance(self) -> f32 {
        match self {
            Self::Color([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue,
            Self::Unknown => 0.0,
        }
    }

    /// Whether a person cannot tell the two apart.
    pub(super) fn looks_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::Color(a), Self::Color(b)) => a.iter().zip(b).all(|(a, b)| (a - b).abs() <= SAME),
            _ => false,
        }
    }
}

/// A colour space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Gray, RGB or CMYK, told apart by the number of components.
    Device,
    /// Amounts of inks: none of any is the paper.
    Tint,
    /// Any other.
    Other,
}

impl Space {
    /// The space that a resource names.
    pub(super) fn of(object: &Object) -> Self {
        let family = match object {
            Object::Name(name) => Some(name),
            Object::Array(items) => items.first().and_then(Object::as_name),
            _ => None,
        };
        match family.map(|name| name.0.as_str()) {
            Some(
                "DeviceGray" | "DeviceRGB" | "DeviceCMYK" | "G" | "RGB" | "CMYK" | "CalGray"
                | "CalRGB" | "ICCBased",
            ) => Self::Device,
            Some("Separation" | "DeviceN") => Self::Tint,
            _ => Self::Other,
        }
    }

    /// The colour that a space begins with (ISO 32000-1, 8.6.8).
    pub(super) fn initial(self) -> Ink {
        match self {
            Self::Device => Ink::BLACK,
            Self::Tint | Self::Other => Ink::Unknown,
        }
    }

    /// The colour of components in this space.
    pub(super) fn ink(self, components: &[f32]) -> Ink {
        match self {
            Self::Device => device(components),
            Self::Tint if components.iter().all(|amount| *amount <= SAME) => Ink::PAPER,
            Self::Tint | Self::Other => Ink::Unknown,
        }
    }
}

/// Gray, RGB or CMYK, by the number of components.
pub(super) fn device(components: &[f32]) -> Ink {
    let cut = |value: f32| {
        if value.is_finite() {
            value.clamp(0.0, 1.0)
        } else {
            0.0
        }
    };
    match *components {
        [gray] => Ink::Color([cut(gray); 3]),
        [red, green, blue] => Ink::Color([cut(red), cut(green), cut(blue)]),
        [cyan, magenta, yellow, black] => {
            Ink::Color([cyan, magenta, yellow].map(|ink| (1.0 - cut(ink)) * (1.0 - cut(black))))
        }
        _ => Ink::Unknown,
    }
}
