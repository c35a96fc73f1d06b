//! The observable states of the feature, and the layouts of the reminder.
//!
//! A conversation stored under one generation may be resumed under another, so the generation is not written into
//! stored messages; the caller chooses it for each request.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The contract of ids, maps, reminders and tools that a request follows (agent-file-context 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum ContractGeneration {
    /// Numbers `1..n` in `<available_files>`, read with `file_read {file_indexes}`.
    G0,
    /// `# Input Files`; ids from the answer's id.
    G1,
    /// `## 文件`; ids from the question's id, documents only, no type, no URL.
    G2,
    /// `## 对话文件` with type and URL, and the URL map.
    G3,
    /// As G3; images, audio and video stay attached to the message.
    G4,
    /// As G4; URLs are signed again at the start of each run.
    G5,
    /// No ids: the URL is the handle.
    G6,
    /// The default: ids and maps of G1, URLs of G3, media of G4, signing of G5, and every correction.
    #[default]
    Stable,
}

impl ContractGeneration {
    /// All generations, oldest first, the default last.
    pub const ALL_GENERATIONS: [Self; 8] = [
        Self::G0,
        Self::G1,
        Self::G2,
        Self::G3,
        Self::G4,
        Self::G5,
        Self::G6,
        Self::Stable,
    ];

    /// The name that requests use: `g0` to `g6`, or `stable`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::G0 => "g0",
            Self::G1 => "g1",
            Self::G2 => "g2",
            Self::G3 => "g3",
            Self::G4 => "g4",
            Self::G5 => "g5",
            Self::G6 => "g6",
            Self::Stable => "stable",
        }
    }

    /// The layout that belongs to it.
    pub fn layout(self) -> ReminderLayout {
        match self {
            Self::G0 => ReminderLayout::Legacy,
            Self::G1 => ReminderLayout::A,
            Self::G2 => ReminderLayout::BDocuments,
            Self::G3 => ReminderLayout::B,
            Self::G4 | Self::G5 | Self::Stable => ReminderLayout::BMedia,
            Self::G6 => ReminderLayout::C,
        }
    }

    /// `data:` URLs are candidates (3.2). The default includes them, so that indexes equal those of G1.
    pub(crate) fn accepts_data(self) -> bool {
        matches!(self, Self::G0 | Self::G1 | Self::G2 | Self::Stable)
    }

    /// Only absolute `http(s)` URLs are candidates (3.2).
    pub(crate) fn accepts_only_http(self) -> bool {
        matches!(self, Self::G5 | Self::G6)
    }

    /// A file is the same file by its identity, not by its URL (4.3).
    pub(crate) fn compares_identity(self) -> bool {
        matches!(self, Self::G5 | Self::G6 | Self::Stable)
    }

    /// The id's prefix is the answer's id, not the question's (6.2).
    pub(crate) fn names_by_answer(self) -> bool {
        matches!(self, Self::G0 | Self::G1 | Self::Stable)
    }

    /// Names are made single safe path segments (5.2).
    pub(crate) fn cleans_names(self) -> bool {
        !matches!(self, Self::G0 | Self::G1 | Self::G2)
    }

    /// A declared type other than `file` overrides the type in the URL (5.1).
    pub(crate) fn trusts_declared(self) -> bool {
        matches!(self, Self::G4 | Self::G5 | Self::G6 | Self::Stable)
    }

    /// Images, audio and video stay file parts of the message (7, R-14).
    pub(crate) fn keeps_media(self) -> bool {
        matches!(self, Self::G4 | Self::G5 | Self::G6 | Self::Stable)
    }

    /// The map of documents contains names, too (11).
    pub(crate) fn maps_names(self) -> bool {
        matches!(self, Self::G4 | Self::G5)
    }

    /// The result has a map of URLs for tools (11).
    pub(crate) fn maps_urls(self) -> bool {
        matches!(self, Self::G3 | Self::G4 | Self::G5 | Self::Stable)
    }
}

impl fmt::Display for ContractGeneration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for ContractGeneration {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::ALL_GENERATIONS
            .into_iter()
            .find(|generation| generation.as_str().eq_ignore_ascii_case(text))
            .ok_or(UnknownName {
                what: "generation",
                known: "g0, g1, g2, g3, g4, g5, g6, stable",
            })
    }
}

impl TryFrom<String> for ContractGeneration {
    type Error = UnknownName;

    fn try_from(text: String) -> Result<Self, UnknownName> {
        text.parse()
    }
}

impl From<ContractGeneration> for &'static str {
    fn from(generation: ContractGeneration) -> Self {
        generation.as_str()
    }
}

/// How a reminder is written (agent-file-context 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum ReminderLayout {
    /// 8.1: English headings, the question inside the wrapper.
    A,
    /// 8.2 as G2 wrote it: documents only, id and name.
    BDocuments,
    /// 8.2: type and URL, the question after the wrapper.
    B,
    /// 8.2 in the form of G4: it says that media are attached.
    BMedia,
    /// 8.3: no ids, sandbox paths.
    C,
    /// 8.4: `## File input` before `## Query`.
    Legacy,
    /// 18.2: the layout of the tool-call node, with contents.
    ToolCall,
}

impl ReminderLayout {
    /// Every layout that a request can name.
    pub const ALL: [Self; 7] = [
        Self::A,
        Self::BDocuments,
        Self::B,
        Self::BMedia,
        Self::C,
        Self::Legacy,
        Self::ToolCall,
    ];

    /// The name that requests use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::BDocuments => "b-g2",
            Self::B => "b",
            Self::BMedia => "b-g4",
            Self::C => "c",
            Self::Legacy => "legacy",
            Self::ToolCall => "tool-call",
        }
    }
}

impl fmt::Display for ReminderLayout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for ReminderLayout {
    type Err = UnknownName;

    /// The name of a layout, or of the generation whose layout is used.
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let named = Self::ALL
            .into_iter()
            .find(|layout| layout.as_str().eq_ignore_ascii_case(text));
        named
            .or_else(|| {
                text.parse::<ContractGeneration>()
                    .ok()
                    .map(ContractGeneration::layout)
            })
            .ok_or(UnknownName {
                what: "layout",
                known: "a, b-g2, b, b-g4, c, legacy, tool-call, or a generation",
            })
    }
}

impl TryFrom<String> for ReminderLayout {
    type Error = UnknownName;

    fn try_from(text: String) -> Result<Self, UnknownName> {
        text.parse()
    }
}

impl From<ReminderLayout> for &'static str {
    fn from(layout: ReminderLayout) -> Self {
        layout.as_str()
    }
}

/// A name that the closed list of its kind does not have; the message lists the known ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such {what}; there are: {known}")]
pub struct UnknownName {
    what: &'static str,
    known: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_and_layouts_are_chosen_by_name_in_any_case() {
        for generation in ContractGeneration::ALL_GENERATIONS {
            assert_eq!(generation.as_str().to_uppercase().parse(), Ok(generation));
            let json = serde_json::to_string(&generation).unwrap();
            assert_eq!(
                serde_json::from_str::<ContractGeneration>(&json).unwrap(),
                generation
            );
            assert_eq!(generation.as_str().parse(), Ok(generation.layout()));
        }
        for layout in ReminderLayout::ALL {
            assert_eq!(layout.to_string().parse(), Ok(layout));
            let json = serde_json::to_string(&layout).unwrap();
            assert_eq!(
                serde_json::from_str::<ReminderLayout>(&json).unwrap(),
                layout
            );
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_names() {
        let error = "g7".parse::<ContractGeneration>().unwrap_err().to_string();
        assert_eq!(
            error,
            "no such generation; there are: g0, g1, g2, g3, g4, g5, g6, stable"
        );
        assert!(serde_json::from_str::<ReminderLayout>("\"z\"").is_err());
    }

    #[test]
    fn the_default_is_the_stable_one_with_layout_b_and_media() {
        assert_eq!(ContractGeneration::default(), ContractGeneration::Stable);
        assert_eq!(
            ContractGeneration::default().layout(),
            ReminderLayout::BMedia
        );
    }
}
