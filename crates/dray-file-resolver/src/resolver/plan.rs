//! What has to be put into every slot, before anything is loaded.

use std::collections::HashMap;
use std::ops::Range;

use dray_types::reference::{Form, MISSING_PREFIX};
use dray_types::{Fault, FaultCode};

use crate::arguments::{Finding, Slot};
use crate::classify::{DialOrigin, Target, Unsupported, classify};
use crate::shown::Shown;

/// A slot with what is to be put into it.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) range: Range<usize>,
    pub(crate) parameter: String,
    pub(crate) pointer: String,
    pub(crate) filling: Filling,
}

/// What is put into a slot.
#[derive(Clone, Debug)]
pub(crate) enum Filling {
    /// The named text itself.
    Url {
        named: String,
        /// What was named, as it may be shown.
        shown: Shown,
    },
    /// The content of a file.
    Content {
        form: ContentForm,
        target: Target,
        /// What was named, as it may be shown.
        shown: Shown,
        /// Whether another slot needs the same file.
        is_shared: bool,
    },
    /// Nothing: the argument has to be corrected.
    Invalid(Fault),
}

/// How content is written into JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentForm {
    Base64,
    Text,
}

impl ContentForm {
    /// The keyword of the grammar.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Base64 => "base64",
            Self::Text => "text",
        }
    }
}

/// Decides for every slot; nothing is loaded, and a slot that cannot be filled does not affect those before it.
pub(crate) fn plan(slots: Vec<Slot>, origin: Option<&DialOrigin>) -> Vec<Planned> {
    let mut planned: Vec<_> = slots.into_iter().map(|slot| one(slot, origin)).collect();
    let mut uses: HashMap<Target, usize> = HashMap::new();
    for slot in &planned {
        if let Filling::Content { target, .. } = &slot.filling {
            *uses.entry(target.clone()).or_default() += 1;
        }
    }
    for slot in &mut planned {
        if let Filling::Content {
            target, is_shared, ..
        } = &mut slot.filling
        {
            *is_shared = uses.get(target).is_some_and(|count| *count > 1);
        }
    }
    planned
}

fn one(slot: Slot, origin: Option<&DialOrigin>) -> Planned {
    let Slot {
        range,
        parameter,
        pointer,
        finding,
    } = slot;
    let filling = match finding {
        Finding::MissingPrefix => invalid("missing_prefix", MISSING_PREFIX),
        Finding::BrokenUnicode => invalid(
            "broken_unicode",
            "The reference holds half of a surrogate pair, which names no file.",
        ),
        Finding::Reference {
            form: Form::Url,
            target,
        } => Filling::Url {
            shown: match classify(&target, origin) {
                Ok(target) => Shown::target(&target),
                Err(_) => Shown::url(&target),
            },
            named: target,
        },
        Finding::Reference {
            form: Form::Base64,
            target,
        } => content(ContentForm::Base64, &target, origin),
        Finding::Reference {
            form: Form::Text,
            target,
        } => content(ContentForm::Text, &target, origin),
    };
    Planned {
        range,
        parameter,
        pointer,
        filling,
    }
}

fn content(form: ContentForm, named: &str, origin: Option<&DialOrigin>) -> Filling {
    match classify(named, origin) {
        Ok(target) => Filling::Content {
            form,
            shown: Shown::target(&target),
            target,
            is_shared: false,
        },
        Err(reason) => unsupported(&Shown::unsupported(named), reason),
    }
}

fn unsupported(shown: &Shown, reason: Unsupported) -> Filling {
    let message = format!("Unsupported file URL {shown}. {}", reason.sentence());
    Filling::Invalid(Fault::new(FaultCode::Unsupported, message).detail("unsupported_url"))
}

fn invalid(detail: &str, message: &str) -> Filling {
    Filling::Invalid(Fault::new(FaultCode::InvalidArgument, message).detail(detail))
}
