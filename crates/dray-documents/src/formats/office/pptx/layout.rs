//! Properties that slides inherit from layouts and masters: positions of placeholders, and bullets of their text
//! levels.

use std::rc::Rc;

use crate::formats::office::xml::{Element, Event, Ns, Xml, decode_part};
use crate::limits::{Budget, Failure};

/// Number of levels of a text (ECMA-376-1, 21.1.2.4).
pub(super) const TEXT_LEVELS: usize = 9;
/// Most placeholders of one layout; further ones are ignored.
const MAX_PLACEHOLDERS: usize = 1000;

/// Whether each level has a bullet; `None` where it is not stated.
pub(super) type Bullets = [Option<bool>; TEXT_LEVELS];

/// The attributes that match a shape with a placeholder of its layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Role {
    /// `title`, `body`, …; `obj` when it is not stated.
    pub(super) kind: String,
    pub(super) index: Option<u32>,
}

impl Role {
    /// Reads a `ph` element.
    pub(super) fn of(element: &Element<'_>) -> Self {
        // `obj` is the default of the attribute (ECMA-376-1, 19.3.1.36).
        Self {
            kind: element.attr("type").unwrap_or_else(|| "obj".to_owned()),
            index: element.number("idx"),
        }
    }

    /// Whether the placeholder is a title.
    pub(super) fn is_title(&self) -> bool {
        matches!(self.kind.as_str(), "title" | "ctrTitle")
    }

    /// Whether the text of the placeholder has the bullets of a body.
    fn is_body(&self) -> bool {
        matches!(self.kind.as_str(), "obj" | "body")
    }
}

#[derive(Debug, Default)]
struct Placeholder {
    role: Role,
    position: Option<(i64, i64)>,
    bullets: Bullets,
}

/// A layout. After [`Self::inherit_from`] it includes the properties of its master.
#[derive(Debug, Default)]
pub(super) struct Layout {
    placeholders: Vec<Placeholder>,
    /// Bullets of the master's text style for bodies.
    body: Bullets,
}

impl Layout {
    /// Reads a layout or a master.
    pub(super) fn read(&mut self, bytes: &[u8], budget: &Rc<Budget>) -> Result<(), Failure> {
        let text = decode_part(bytes);
        let mut xml = Xml::new(&text, budget);
        let mut placeholder: Option<Placeholder> = None;
        let mut level = None;
        let mut in_body = None;
        loop {
            match xml.next()? {
                Event::Open(element) => match (element.ns, element.name()) {
                    (Ns::Slides, "sp") => {
                        self.add_placeholder(placeholder.take());
                        level = None;
                    }
                    (Ns::Slides, "ph") => {
                        placeholder = Some(Placeholder {
                            role: Role::of(&element),
                            ..Placeholder::default()
                        });
                    }
                    (Ns::Slides, "txStyles") => self.add_placeholder(placeholder.take()),
                    (Ns::Slides, "bodyStyle") => in_body = Some(xml.depth()),
                    (Ns::Drawing, "off") => {
                        if let Some(placeholder) = &mut placeholder
                            && placeholder.position.is_none()
                        {
                            placeholder.position = element.number("y").zip(element.number("x"));
                        }
                    }
                    (Ns::Drawing, "p") => level = None,
                    (Ns::Drawing, name) => {
                        if let Some(named) = level_of(name) {
                            level = Some(named);
                        }
                        let bullets = match (&mut placeholder, in_body) {
                            (_, Some(_)) => Some(&mut self.body),
                            (Some(placeholder), None) => Some(&mut placeholder.bullets),
                            (None, None) => None,
                        };
                        if let (Some(bullet), Some(index), Some(bullets)) =
                            (bullet_of(name), level, bullets)
                            && let Some(slot) = bullets.get_mut(index)
                        {
                            *slot = Some(bullet);
                        }
                    }
                    _ => {}
                },
                Event::Close if in_body.is_some_and(|depth| xml.depth() < depth) => in_body = None,
                Event::End => {
                    self.add_placeholder(placeholder.take());
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    fn add_placeholder(&mut self, placeholder: Option<Placeholder>) {
        if self.placeholders.len() < MAX_PLACEHOLDERS {
            self.placeholders.extend(placeholder);
        }
    }

    /// Fills in from the master what this layout does not state.
    pub(super) fn inherit_from(&mut self, master: &Self) {
        for (slot, bullet) in self.body.iter_mut().zip(master.body) {
            *slot = slot.or(bullet);
        }
        for own in &mut self.placeholders {
            let inherited = master
                .placeholders
                .iter()
                .find(|candidate| are_alike(&candidate.role.kind, &own.role.kind));
            if let Some(inherited) = inherited {
                own.position = own.position.or(inherited.position);
                for (slot, bullet) in own.bullets.iter_mut().zip(inherited.bullets) {
                    *slot = slot.or(bullet);
                }
            }
        }
    }

    fn find(&self, role: &Role) -> Option<&Placeholder> {
        let by_index = role.index.and_then(|index| {
            self.placeholders
                .iter()
                .find(|placeholder| placeholder.role.index == Some(index))
        });
        by_index.or_else(|| {
            self.placeholders
                .iter()
                .find(|placeholder| are_alike(&placeholder.role.kind, &role.kind))
        })
    }

    /// The position of a placeholder: y, then x.
    pub(super) fn position(&self, role: &Role) -> Option<(i64, i64)> {
        self.find(role).and_then(|placeholder| placeholder.position)
    }

    /// Whether text of this level in a placeholder has a bullet.
    pub(super) fn has_bullet(&self, role: &Role, level: usize) -> bool {
        if !role.is_body() {
            return false;
        }
        self.find(role)
            .and_then(|placeholder| placeholder.bullets.get(level).copied().flatten())
            .or_else(|| self.body.get(level).copied().flatten())
            .unwrap_or(true)
    }
}

/// Whether two kinds of placeholders match between slide, layout and master.
fn are_alike(one: &str, other: &str) -> bool {
    let base = |kind: &str| match kind {
        "ctrTitle" => "title".to_owned(),
        "subTitle" | "obj" => "body".to_owned(),
        other => other.to_owned(),
    };
    base(one) == base(other)
}

/// The level of an element name, from 0: `lvl3pPr` is level 2.
pub(super) fn level_of(name: &str) -> Option<usize> {
    let level: usize = name
        .strip_prefix("lvl")?
        .strip_suffix("pPr")?
        .parse()
        .ok()?;
    level.checked_sub(1).filter(|level| *level < TEXT_LEVELS)
}

/// Whether an element sets a bullet (`true`) or removes it (`false`); `None` for other elements.
pub(super) fn bullet_of(name: &str) -> Option<bool> {
    match name {
        "buNone" => Some(false),
        "buChar" | "buAutoNum" | "buBlip" => Some(true),
        _ => None,
    }
}
