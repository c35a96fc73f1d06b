//! Resources of a page and of the forms that it draws, found as the engine finds them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use pdfboss_core::{Dict, ObjRef, Object};

use super::super::metered::MeteredDocument;

/// One resource dictionary, and its categories resolved.
#[derive(Debug)]
pub(super) struct Resources {
    dict: Dict,
    categories: RefCell<HashMap<&'static str, Option<Rc<Dict>>>>,
}

impl Resources {
    pub(super) fn new(dict: Dict) -> Rc<Self> {
        Rc::new(Self {
            dict,
            categories: RefCell::default(),
        })
    }

    fn category(&self, name: &'static str, source: &MeteredDocument<'_>) -> Option<Rc<Dict>> {
        if let Some(known) = self.categories.borrow().get(name) {
            return known.clone();
        }
        let found = self.dict.get(name).and_then(|object| source.fetch(object));
        let found = found
            .and_then(|object| object.as_dict().cloned())
            .map(Rc::new);
        self.categories.borrow_mut().insert(name, found.clone());
        found
    }
}

/// The resource of a name: its value, and the object to which it refers.
pub(super) struct NamedResource {
    pub(super) object: Object,
    pub(super) reference: Option<ObjRef>,
}

/// Looks a name up, innermost resources first (ISO 32000-1, 7.8.3).
pub(super) fn find(
    chain: &[Rc<Resources>],
    category: &'static str,
    name: &str,
    source: &MeteredDocument<'_>,
) -> Option<NamedResource> {
    chain.iter().find_map(|resources| {
        let category = resources.category(category, source)?;
        let value = category.get(name)?;
        Some(NamedResource {
            object: source.fetch(value)?,
            reference: value.as_ref(),
        })
    })
}

/// Numbers of an array, resolved.
pub(in crate::formats::pdf) fn numbers<const N: usize>(
    object: Option<&Object>,
    source: &MeteredDocument<'_>,
) -> Option<[f32; N]> {
    let array = source.fetch(object?)?;
    let items = array.as_array()?;
    let mut numbers = [0.0; N];
    for (slot, index) in numbers.iter_mut().zip(0..) {
        *slot = number(items.get(index), source)?;
    }
    Some(numbers)
}

/// A number, resolved; `None` for infinities and other values.
pub(in crate::formats::pdf) fn number(
    object: Option<&Object>,
    source: &MeteredDocument<'_>,
) -> Option<f32> {
    let value = source.fetch(object?)?.as_f64()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a page is measured in single precision"
    )]
    let value = value as f32;
    value.is_finite().then_some(value)
}
