//! Plans the content of every slot, before anything is loaded.

use std::collections::HashMap;
use std::ops::Range;

use dray_types::reference::{MISSING_PREFIX, ReferenceForm};
use dray_types::{Fault, FaultCode};

use crate::arguments::{ReferenceFinding, ReferenceSlot};
use crate::shown::DisplayName;
use dray_dial::origin::{DialOrigin, LoadTarget, UnsupportedReference, classify_reference};

/// A slot with its planned content.
#[derive(Clone, Debug)]
pub(crate) struct PlannedSlot {
    pub(crate) range: Range<usize>,
    pub(crate) parameter: String,
    pub(crate) pointer: String,
    pub(crate) filling: SlotContent,
}

/// The content that replaces a reference in the arguments.
#[derive(Clone, Debug)]
pub(crate) enum SlotContent {
    /// The named text itself, as a JSON string.
    Url {
        named: String,
        /// Name of the file, as it may be shown.
        shown: DisplayName,
    },
    /// The content of a file.
    Content {
        form: ContentForm,
        target: LoadTarget,
        /// Name of the file, as it may be shown.
        shown: DisplayName,
        /// Whether another slot needs the same file, so that it is kept.
        is_shared: bool,
    },
    /// No content: the argument has to be corrected.
    Invalid(Fault),
}

/// The form in which content is written into JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentForm {
    Base64,
    Text,
}

impl ContentForm {
    /// The keyword of the grammar (quickapps 30).
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Base64 => "base64",
            Self::Text => "text",
        }
    }
}

/// Plans every slot. Nothing is loaded, and a slot that cannot be filled does not affect those before it.
pub(crate) fn plan_slots(
    slots: Vec<ReferenceSlot>,
    origin: Option<&DialOrigin>,
) -> Vec<PlannedSlot> {
    let mut planned: Vec<_> = slots
        .into_iter()
        .map(|slot| plan_slot(slot, origin))
        .collect();
    // Two spellings of one file are one target (R2).
    let mut uses: HashMap<LoadTarget, usize> = HashMap::new();
    for slot in &planned {
        if let SlotContent::Content { target, .. } = &slot.filling {
            *uses.entry(target.clone()).or_default() += 1;
        }
    }
    for slot in &mut planned {
        if let SlotContent::Content {
            target, is_shared, ..
        } = &mut slot.filling
        {
            *is_shared = uses.get(target).is_some_and(|count| *count > 1);
        }
    }
    planned
}

fn plan_slot(slot: ReferenceSlot, origin: Option<&DialOrigin>) -> PlannedSlot {
    let ReferenceSlot {
        range,
        parameter,
        pointer,
        finding,
    } = slot;
    let filling = match finding {
        ReferenceFinding::MissingPrefix => invalid_content("missing_prefix", MISSING_PREFIX),
        ReferenceFinding::BrokenUnicode => invalid_content(
            "broken_unicode",
            "The reference holds half of a surrogate pair, which names no file.",
        ),
        ReferenceFinding::Reference {
            form: ReferenceForm::Url,
            target,
        } => SlotContent::Url {
            shown: match classify_reference(&target, origin) {
                Ok(target) => DisplayName::target(&target),
                // A URL is only passed on, so it may be of any kind; the name has to be fit for logs anyway.
                Err(_) => DisplayName::url(&target),
            },
            named: target,
        },
        ReferenceFinding::Reference {
            form: ReferenceForm::Base64,
            target,
        } => slot_content(ContentForm::Base64, &target, origin),
        ReferenceFinding::Reference {
            form: ReferenceForm::Text,
            target,
        } => slot_content(ContentForm::Text, &target, origin),
    };
    PlannedSlot {
        range,
        parameter,
        pointer,
        filling,
    }
}

fn slot_content(form: ContentForm, named: &str, origin: Option<&DialOrigin>) -> SlotContent {
    match classify_reference(named, origin) {
        Ok(target) => SlotContent::Content {
            form,
            shown: DisplayName::target(&target),
            target,
            is_shared: false,
        },
        Err(reason) => unsupported_content(&DisplayName::unsupported(named), reason),
    }
}

fn unsupported_content(shown: &DisplayName, reason: UnsupportedReference) -> SlotContent {
    let message = format!("Unsupported file URL {shown}. {}", reason.sentence());
    SlotContent::Invalid(Fault::new(FaultCode::Unsupported, message).detail("unsupported_url"))
}

fn invalid_content(detail: &str, message: &str) -> SlotContent {
    SlotContent::Invalid(Fault::new(FaultCode::InvalidArgument, message).detail(detail))
}
