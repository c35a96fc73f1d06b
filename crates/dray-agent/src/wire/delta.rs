//! The deltas of the most frequent chunks, which are written without a JSON tree.

use serde::Serialize;
use serde_json::Value;

use crate::event::Event;

/// A delta with at most one of its members.
#[derive(Debug, Default, Serialize)]
pub(super) struct PlainDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_content: Option<CustomDelta<'a>>,
}

#[derive(Debug, Default, Serialize)]
struct CustomDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    stages: Option<[StageDelta<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a Value>,
}

#[derive(Debug, Serialize)]
struct StageDelta<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<StageName<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    status: Option<&'static str>,
}

/// The name of a stage; a stage without one has the member with `null`.
#[derive(Debug, Serialize)]
struct StageName<'a>(Option<&'a str>);

impl<'a> PlainDelta<'a> {
    /// The delta of the first chunk.
    pub(super) fn of_start() -> Self {
        Self {
            role: Some("assistant"),
            ..Self::default()
        }
    }

    /// The delta of an event; `None` for an event whose chunks need a JSON tree.
    pub(super) fn of(event: &'a Event) -> Option<Self> {
        let stage = |index: &u32| StageDelta {
            index: *index,
            name: None,
            content: None,
            status: None,
        };
        let stage = match event {
            Event::Content(content) => {
                return Some(Self {
                    content: Some(content),
                    ..Self::default()
                });
            }
            Event::State(state) => {
                let custom = CustomDelta {
                    state: Some(state),
                    ..CustomDelta::default()
                };
                return Some(Self {
                    custom_content: Some(custom),
                    ..Self::default()
                });
            }
            Event::StageOpened { stage: index, name } => StageDelta {
                name: Some(StageName(name.as_deref())),
                ..stage(index)
            },
            Event::StageName { stage: index, name } => StageDelta {
                name: Some(StageName(Some(name))),
                ..stage(index)
            },
            Event::StageContent {
                stage: index,
                content,
            } => StageDelta {
                content: Some(content),
                ..stage(index)
            },
            Event::StageClosed {
                stage: index,
                status,
            } => StageDelta {
                status: Some(status.as_str()),
                ..stage(index)
            },
            _ => return None,
        };
        let custom = CustomDelta {
            stages: Some([stage]),
            ..CustomDelta::default()
        };
        Some(Self {
            custom_content: Some(custom),
            ..Self::default()
        })
    }
}
