//! Parts of a text, and a budget that all files of a call share. Everything is counted in characters.

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextPage<'a> {
    /// The part, cut between characters.
    pub(super) text: &'a str,
    /// Offset of its first character in the complete text.
    pub(super) offset: usize,
    /// Characters of the complete text.
    pub(super) length: usize,
    /// Offset of the next page, if there is one.
    pub(super) next_offset: Option<usize>,
}

/// Returns at most `limit` characters from `offset` on. `None` if `offset` is after the end of a text that is not
/// empty.
pub(super) fn cut_page(text: &str, offset: usize, limit: usize) -> Option<TextPage<'_>> {
    let length = text.chars().count();
    if offset > 0 && offset >= length {
        return None;
    }
    let byte_of = |character: usize| {
        let mut offsets = text.char_indices().map(|(index, _)| index);
        offsets.nth(character).unwrap_or(text.len())
    };
    let end = offset.saturating_add(limit).min(length);
    let page = text.get(byte_of(offset)..byte_of(end))?;
    Some(TextPage {
        text: page,
        offset,
        length,
        next_offset: (end < length).then_some(end),
    })
}

/// Shares a budget: no file gets more than its demand, files with equal demands get equal shares, and the unused share
/// of small files is given to large ones.
pub(super) fn share_budget(budget: usize, demands: &[usize]) -> Vec<usize> {
    let mut order: Vec<_> = demands.iter().copied().enumerate().collect();
    // The smallest demand comes first: the unused share of a file is distributed among the later ones.
    order.sort_by_key(|&(index, demand)| (demand, index));
    let mut shares = vec![0; demands.len()];
    let (mut remaining, mut waiting) = (budget, order.len());
    for (index, demand) in order {
        let fair_share = remaining.checked_div(waiting).unwrap_or(0);
        let granted = demand.min(fair_share);
        if let Some(share) = shares.get_mut(index) {
            *share = granted;
        }
        remaining -= granted;
        waiting -= 1;
    }
    shares
}
