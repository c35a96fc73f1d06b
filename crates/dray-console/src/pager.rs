//! Links between the pages of a list: to the first, the previous and the next one. They work without script.
//!
//! A list of records has positions that only its service can read, and that lead forward. The links carry the positions
//! of the pages before, so that a person gets back to exactly those pages.

use maud::{Markup, html};

use crate::form::FormFields;
use crate::text::{offset_text, url_part};

/// Most positions of earlier pages in a link. From a page that is further from the first one, links lead back through
/// this many pages, and then to the first page.
const MAX_EARLIER_PAGES: usize = 16;
/// Longest position in a link, in bytes. No service returns a longer one.
const MAX_POSITION_BYTES: usize = 256;

/// The words of the links of a list, and the fields of its query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagerWords {
    /// Field with the position of a page.
    position: &'static str,
    /// Field with the position of an earlier page, repeated, the oldest first.
    earlier: &'static str,
    first: &'static str,
    previous: &'static str,
    next: &'static str,
}

/// Lists of records, whose positions are those after which a page begins.
pub(crate) const RECORD_PAGES: PagerWords = PagerWords {
    position: "after",
    earlier: "back",
    first: "First page",
    previous: "Previous page",
    next: "Next page",
};

/// Dead letters, whose positions are the sequences at which a page begins.
pub(crate) const LETTER_PAGES: PagerWords = PagerWords {
    position: "from",
    earlier: "back",
    first: "Oldest letters",
    previous: "Older letters",
    next: "Newer letters",
};

/// Events of the index, whose positions are the rows before which a page begins.
pub(crate) const EVENT_PAGES: PagerWords = PagerWords {
    position: "before",
    earlier: "newer",
    first: "Newest events",
    previous: "Newer events",
    next: "Older events",
};

/// The position of a page in a list.
#[derive(Clone, Debug)]
pub(crate) struct ListPager {
    words: PagerWords,
    /// Position of this page; empty for the first one.
    position: String,
    /// Positions of pages before this one, the nearest last.
    earlier: Vec<String>,
    /// Whether links carry the positions of earlier pages.
    has_trail: bool,
}

impl ListPager {
    /// The page that a query names, with the pages that led to it.
    pub(crate) fn of_query(words: PagerWords, query: &FormFields) -> Self {
        let position = query.get(words.position).to_owned();
        let earlier = query.all(words.earlier);
        let earlier = earlier.filter(|position| position.len() <= MAX_POSITION_BYTES);
        let mut earlier: Vec<String> = earlier.map(str::to_owned).collect();
        keep_nearest(&mut earlier);
        if position.is_empty() {
            earlier.clear();
        }
        Self {
            words,
            position,
            earlier,
            has_trail: true,
        }
    }

    /// The page after this many entries of a list whose full pages have `page_entries`: the page before it is known.
    pub(crate) fn of_offset(offset: usize, page_entries: usize) -> Self {
        let previous = (offset > 0).then(|| offset_text(offset.saturating_sub(page_entries)));
        Self {
            words: RECORD_PAGES,
            position: offset_text(offset),
            earlier: previous.into_iter().collect(),
            has_trail: false,
        }
    }

    /// Whether this is the first page.
    pub(crate) const fn is_first(&self) -> bool {
        self.position.is_empty()
    }

    /// The links. `filter` is the query of the list without a position, and `next` the position of the next page; empty
    /// for the last one.
    pub(crate) fn links(&self, path: &str, filter: &str, next: &str) -> Markup {
        let PagerWords {
            first,
            previous: previous_page,
            next: next_page,
            ..
        } = self.words;
        let previous = self.earlier.split_last();
        html! {
            @if !self.position.is_empty() || !next.is_empty() {
                nav.parts aria-label="Parts of the list" {
                    @if !self.position.is_empty() { a href=(self.url(path, filter, "", &[])) { (first) } }
                    @if let Some((position, before)) = previous {
                        a href=(self.url(path, filter, position, before)) rel="prev" { (previous_page) }
                    }
                    @if !next.is_empty() {
                        a href=(self.url(path, filter, next, &self.with_this_page())) rel="next" { (next_page) }
                    }
                }
            }
        }
    }

    fn with_this_page(&self) -> Vec<String> {
        let mut earlier = self.earlier.clone();
        earlier.push(self.position.clone());
        keep_nearest(&mut earlier);
        earlier
    }

    fn url(&self, path: &str, filter: &str, position: &str, earlier: &[String]) -> String {
        let mut query = Vec::new();
        if !filter.is_empty() {
            query.push(filter.to_owned());
        }
        if !position.is_empty() {
            query.push(format!("{}={}", self.words.position, url_part(position)));
            let earlier = earlier.iter().filter(|_| self.has_trail);
            query.extend(
                earlier.map(|earlier| format!("{}={}", self.words.earlier, url_part(earlier))),
            );
        }
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{path}{mark}{}", query.join("&"))
    }
}

/// Removes the positions that are furthest away.
fn keep_nearest(earlier: &mut Vec<String>) {
    earlier.drain(..earlier.len().saturating_sub(MAX_EARLIER_PAGES));
}

#[cfg(test)]
mod tests {
    use http::Uri;

    use super::*;

    /// The address behind a link of this kind, with the query of `path`.
    fn link(path: &str, next: &str, rel: &str) -> Option<String> {
        let uri: Uri = path.parse().unwrap();
        let pager = ListPager::of_query(RECORD_PAGES, &FormFields::of_query(&uri));
        let links = pager.links("/list", "open=1", next);
        let links = links.into_string();
        let (before, _) = links.split_once(&format!("\" rel=\"{rel}\""))?;
        let (_, address) = before.rsplit_once("href=\"")?;
        Some(address.replace("&amp;", "&"))
    }

    #[test]
    fn links_lead_forward_and_back_over_the_same_pages() {
        let mut forward = vec!["/list?open=1".to_owned()];
        for position in ["a 1", "b", "c"] {
            let next = link(forward.last().unwrap(), position, "next");
            forward.push(next.unwrap());
        }
        assert_eq!(forward[1], "/list?open=1&after=a%201&back=");
        assert_eq!(forward[3], "/list?open=1&after=c&back=&back=a%201&back=b");
        for pages in forward.windows(2).rev() {
            assert_eq!(link(&pages[1], "x", "prev").as_ref(), Some(&pages[0]));
        }
        assert_eq!(link(&forward[0], "x", "prev"), None);
        assert_eq!(link(&forward[3], "", "next"), None);
    }

    #[test]
    fn a_long_list_of_previous_pages_loses_its_first_ones_and_links_stay_short() {
        let mut path = "/list".to_owned();
        for number in 1..=40 {
            path = link(&path, &format!("p{number}"), "next").unwrap();
        }
        for number in (24..40).rev() {
            path = link(&path, "x", "prev").unwrap();
            assert!(path.contains(&format!("after=p{number}")), "{path}");
        }
        assert_eq!(link(&path, "x", "prev"), None);
        let long = format!("/list?after=b&back={}", "x".repeat(300));
        assert_eq!(link(&long, "", "prev"), None);
    }

    #[test]
    fn the_page_before_an_offset_is_known_without_the_list_of_previous_pages() {
        let links = |offset| {
            ListPager::of_offset(offset, 500)
                .links("/list", "", "")
                .into_string()
        };
        assert!(links(1100).contains("href=\"/list?after=600\" rel=\"prev\""));
        assert!(links(100).contains("href=\"/list\" rel=\"prev\""));
        assert_eq!(links(0), "");
    }
}
