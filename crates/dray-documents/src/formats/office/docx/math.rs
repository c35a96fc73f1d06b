//! Equations in one line (OMML; ECMA-376-1, 22.1.2): `(a+b)/(2)`, `x^(2)`, `√(x)`. As a row of runs, that fraction would
//! read `a+b2`.

use super::state::{Tag, Walker};
use crate::formats::office::xml::Element;

/// An element of an equation that is shown with signs around its text. Without a text, it shows no signs.
#[derive(Debug)]
pub(super) struct MathGroup {
    kind: GroupKind,
    open: String,
    close: String,
    /// The sign between the terms in delimiters.
    separator: String,
    has_text: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupKind {
    /// A root. Its degree comes before its sign.
    Radical,
    /// A sum, an integral or the like, whose properties name its sign.
    Operator,
    /// Terms in parentheses or other delimiters.
    Delimited,
    Other,
}

impl Walker {
    /// The role of an element of an equation.
    pub(super) fn math(&mut self, element: &Element<'_>) -> Tag {
        if matches!(element.name(), "chr" | "begChr" | "endChr" | "sepChr") {
            self.set_sign(element);
            return Tag::Plain;
        }
        let parent = match self.tags.last() {
            Some(Tag::Math(group)) => Some(group),
            _ => None,
        };
        let separator = parent.map_or("", |group| group.separator.as_str());
        let group = |kind, open: &str, close: &str| {
            Tag::Math(MathGroup {
                kind,
                open: open.to_owned(),
                close: close.to_owned(),
                // The default of `sepChr` (22.1.2.98).
                separator: "|".to_owned(),
                has_text: false,
            })
        };
        match (
            element.name(),
            parent.map(|group| (group.kind, group.has_text)),
        ) {
            ("t", _) => Tag::MathText,
            ("num", _) => group(GroupKind::Other, "(", ")"),
            ("den", _) => group(GroupKind::Other, "/(", ")"),
            ("sup", _) => group(GroupKind::Other, "^(", ")"),
            ("sub", _) => group(GroupKind::Other, "_(", ")"),
            ("rad", _) => group(GroupKind::Radical, "", ""),
            ("e", Some((GroupKind::Radical, _))) => group(GroupKind::Other, "√(", ")"),
            ("nary", _) => group(GroupKind::Operator, "∫", ""),
            ("d", _) => group(GroupKind::Delimited, "(", ")"),
            ("e", Some((GroupKind::Delimited, true))) => group(GroupKind::Other, separator, ""),
            _ => Tag::Plain,
        }
    }

    /// Replaces the default sign of the operator or the delimiters whose properties are open.
    fn set_sign(&mut self, element: &Element<'_>) {
        // The innermost element has the properties. Those of accents have elements of the same name.
        let Some(Tag::Math(group)) = self.tags.iter_mut().rev().nth(1) else {
            return;
        };
        let sign = element.attr("val").unwrap_or_default();
        match (element.name(), group.kind) {
            ("chr", GroupKind::Operator) | ("begChr", GroupKind::Delimited) => group.open = sign,
            ("endChr", GroupKind::Delimited) => group.close = sign,
            ("sepChr", GroupKind::Delimited) => group.separator = sign,
            _ => {}
        }
    }

    /// Shows text of an equation, after the signs of the groups that begin with it.
    pub(super) fn show_math(&mut self, text: &str) {
        let mut signs = String::new();
        for tag in &mut self.tags {
            if let Tag::Math(group) = tag
                && !std::mem::replace(&mut group.has_text, true)
            {
                signs.push_str(&group.open);
            }
        }
        self.show(&signs);
        self.show(text);
    }

    /// Handles the end of a group.
    pub(super) fn end_math(&mut self, group: &MathGroup) {
        if group.has_text {
            self.show(&group.close);
        }
    }
}
