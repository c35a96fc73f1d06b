//! Finds the citations of an answer: addresses of pages that tools of the turn returned, and names of files of the
//! conversation.
//!
//! [`page_sources`] finds pages in the result of a tool, and [`argument_sources`] in the arguments of a call.
//! [`CitationIndex`] stores these sources, and [`CitationIndex::find`] finds them in a text. Addresses
//! from elsewhere are not cited, because a model can invent them. Positions count characters (Unicode code points), as
//! Python counts them; the end is exclusive.

use std::collections::HashMap;

use dray_types::invisible::{is_unprintable, is_zero_width};
use serde_json::Value;

/// Most bytes of a result that are searched for addresses.
const MAX_SEARCHED_BYTES: usize = 1 << 20;
/// Most sources of one call.
const MAX_CALL_SOURCES: usize = 200;
/// Most sources of an answer.
const MAX_SOURCES: usize = 2_000;
/// Most citations of one part of an answer.
const MAX_CITATIONS: usize = 200;
/// Longest address in bytes; browsers open longer ones, but no one writes them into an answer.
const MAX_URL_BYTES: usize = 2_048;
/// Longest title in characters.
const MAX_TITLE_CHARS: usize = 200;
/// Longest text of a link in bytes.
const MAX_LINK_TEXT_BYTES: usize = 1_024;
/// Shortest name of a file that is looked for in an answer, in characters. Shorter names may be ordinary words.
const MIN_NAME_CHARS: usize = 3;
/// Members of JSON objects that have the address of a page.
const URL_MEMBERS: [&str; 5] = ["url", "link", "href", "uri", "source"];
/// Members of JSON objects that have the title of a page.
const TITLE_MEMBERS: [&str; 2] = ["title", "name"];

/// A page or a file that an answer may cite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CitationSource {
    /// A page that a tool read or listed.
    Page {
        /// URL of the page.
        url: String,
        /// The page's title, if the tool reported one.
        title: Option<String>,
    },
    /// A file of the conversation, with an id of `/v1/files`.
    File {
        /// The id.
        id: String,
        /// Name of the file.
        name: String,
    },
}

/// A citation in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Citation {
    /// Index of its first character in the text.
    pub start: usize,
    /// Index of the character after its last one.
    pub end: usize,
    /// The cited page or file. The URL of a page is that of the text, and its title is never `None`.
    pub source: CitationSource,
}

/// The pages and files that the answer of a turn may cite.
#[derive(Clone, Debug, Default)]
pub struct CitationIndex {
    /// Titles by comparable address.
    pages: HashMap<String, Option<String>>,
    files: Vec<(String, String)>,
}

impl CitationIndex {
    /// Adds sources. The first title of a page stays.
    pub fn add(&mut self, sources: Vec<CitationSource>) {
        for source in sources {
            if self.pages.len() + self.files.len() >= MAX_SOURCES {
                return;
            }
            match source {
                CitationSource::Page { url, title } => {
                    let known = self.pages.entry(comparable_url(&url)).or_default();
                    if known.is_none() {
                        *known = title;
                    }
                }
                CitationSource::File { id, name } => {
                    if !self.files.iter().any(|(known, _)| *known == id) {
                        self.files.push((id, name));
                    }
                }
            }
        }
    }

    /// The citations of a text, in its order.
    pub fn find(&self, text: &str) -> Vec<Citation> {
        let mut found = Vec::new();
        if !self.pages.is_empty() {
            for link in links(text).take(MAX_CITATIONS) {
                if let Some(title) = self.pages.get(&comparable_url(link.url)) {
                    found.push((link.start, link.end, link.page(title.as_deref())));
                }
            }
        }
        let prose = without_links(text);
        for (id, name) in &self.files {
            // A file is cited once, because an answer about a file may name it in every sentence.
            if let Some(start) = find_name(&prose, name) {
                let (id, name) = (id.clone(), name.clone());
                found.push((start, start + name.len(), CitationSource::File { id, name }));
            }
        }
        found.sort_by_key(|(start, ..)| *start);
        found.truncate(MAX_CITATIONS);
        in_characters(text, found)
    }
}

/// The pages that the arguments of a call name: members of their object whose whole value is an address. Any other text
/// there is the model's own, with addresses and titles that it may have invented.
pub fn argument_sources(arguments: &str) -> Vec<CitationSource> {
    let mut sources = Vec::new();
    // Arguments that were cut are not JSON.
    let searched = prefix_of(arguments, MAX_SEARCHED_BYTES);
    if let Ok(Value::Object(members)) = serde_json::from_str(searched) {
        let texts = URL_MEMBERS
            .iter()
            .filter_map(|name| members.get(*name)?.as_str());
        for url in texts.filter(|text| is_address(text) && !text.contains(char::is_whitespace)) {
            push_page(&mut sources, url, None);
        }
    }
    sources
}

/// The pages of a text that a tool returned.
pub fn page_sources(text: &str) -> Vec<CitationSource> {
    let mut sources = Vec::new();
    let searched = prefix_of(text, MAX_SEARCHED_BYTES);
    // JSON that was cut is searched as text.
    match serde_json::from_str::<Value>(searched) {
        Ok(value) => add_json_pages(&value, &mut sources),
        Err(_) => add_text_pages(searched, &mut sources),
    }
    sources
}

fn add_json_pages(value: &Value, sources: &mut Vec<CitationSource>) {
    match value {
        Value::Object(members) => {
            let text = |names: &[&str]| {
                let mut texts = names.iter().filter_map(|name| members.get(*name)?.as_str());
                texts.next()
            };
            if let Some(url) = text(&URL_MEMBERS).filter(|url| is_address(url)) {
                push_page(sources, url, text(&TITLE_MEMBERS));
            }
            members
                .values()
                .for_each(|member| add_json_pages(member, sources));
        }
        Value::Array(elements) => elements
            .iter()
            .for_each(|element| add_json_pages(element, sources)),
        Value::String(text) => add_text_pages(text, sources),
        _ => {}
    }
}

fn add_text_pages(text: &str, sources: &mut Vec<CitationSource>) {
    for link in links(text).take(MAX_CALL_SOURCES) {
        push_page(sources, link.url, link.text);
    }
}

fn push_page(sources: &mut Vec<CitationSource>, url: &str, title: Option<&str>) {
    if sources.len() < MAX_CALL_SOURCES && url.len() <= MAX_URL_BYTES {
        sources.push(CitationSource::Page {
            url: url.to_owned(),
            title: title.and_then(clean_title),
        });
    }
}

fn is_address(text: &str) -> bool {
    text.starts_with("https://") || text.starts_with("http://")
}

/// An address in a text, with the link of Markdown around it, if there is one. Positions are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TextLink<'a> {
    start: usize,
    end: usize,
    url: &'a str,
    text: Option<&'a str>,
}

impl TextLink<'_> {
    fn page(&self, title: Option<&str>) -> CitationSource {
        let own = || self.text.and_then(clean_title);
        let title = title.map(str::to_owned).or_else(own);
        CitationSource::Page {
            url: self.url.to_owned(),
            title: Some(title.unwrap_or_else(|| host_of(self.url).to_owned())),
        }
    }
}

/// The addresses of a text, in its order.
fn links(text: &str) -> impl Iterator<Item = TextLink<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..)?;
            let begin = at + rest.find("http")?;
            let from = text.get(begin..)?;
            if !is_address(from) {
                at = begin + "http".len();
                continue;
            }
            let link = link_at(text, begin, from);
            // The position always advances, even if nothing of the address remains.
            at = link.end.max(begin + "http".len());
            return Some(link);
        }
    })
}

fn link_at<'a>(text: &'a str, begin: usize, from: &'a str) -> TextLink<'a> {
    let before = text.get(..begin).unwrap_or_default();
    let is_end = |char: char| {
        char.is_whitespace()
            || char.is_control()
            || matches!(char, '<' | '>' | '"' | '`' | '|' | '\\')
    };
    // This is one byte more than an address may have, so that a longer address is recognised.
    let whole = prefix_of(from, MAX_URL_BYTES + 1);
    let whole = whole.split(is_end).next().unwrap_or_default();
    // The end of a link of Markdown is the bracket that the address does not open (CommonMark 6.3).
    let in_link = before
        .ends_with("](")
        .then(|| unopened_bracket(whole))
        .flatten();
    if let Some(length) = in_link
        && let Some((start, label)) = link_text(before)
    {
        return TextLink {
            start,
            end: begin + length + 1,
            url: from.get(..length).unwrap_or_default(),
            text: Some(label),
        };
    }
    let length = unopened_bracket(whole).unwrap_or(whole.len());
    let url = from.get(..length).unwrap_or_default();
    let url = url.trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', '*', '_', ']', '}']);
    TextLink {
        start: begin,
        end: begin + url.len(),
        url,
        text: None,
    }
}

/// The place of the first closing bracket that has no opening bracket before it.
fn unopened_bracket(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    text.char_indices().find_map(|(at, char)| {
        match char {
            '(' => open += 1,
            ')' if open == 0 => return Some(at),
            ')' => open -= 1,
            _ => {}
        }
        None
    })
}

/// Beginning and text of the link whose `](` ends `before`.
fn link_text(before: &str) -> Option<(usize, &str)> {
    let label_end = before.len().checked_sub("](".len())?;
    let label = before.get(..label_end)?;
    let mut depth = 0_usize;
    // The search runs backwards, because brackets before the link may belong to no link.
    for (at, char) in label.char_indices().rev() {
        if label_end - at > MAX_LINK_TEXT_BYTES || char == '\n' {
            return None;
        }
        match char {
            ']' => depth += 1,
            '[' if depth == 0 => return Some((at, label.get(at + 1..)?)),
            '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The text with a space for each byte of its links. The address of another page may end with the name of a file.
fn without_links(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    for link in links(text) {
        // A link of Markdown may begin before an address that is part of its text.
        prose.truncate(link.start);
        prose.push_str(text.get(prose.len()..link.start).unwrap_or_default());
        prose.extend(std::iter::repeat_n(' ', link.end - prose.len()));
    }
    prose.push_str(text.get(prose.len()..).unwrap_or_default());
    prose
}

/// Where a name occurs by itself, in bytes. `a.txt` does not occur in `data.txt` or `a.txt.gz`.
fn find_name(text: &str, name: &str) -> Option<usize> {
    if name.chars().count() < MIN_NAME_CHARS {
        return None;
    }
    let is_part = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-');
    text.match_indices(name).find_map(|(at, _)| {
        let before = text.get(..at)?.chars().next_back();
        let mut after = text.get(at + name.len()..)?.chars();
        let (next, second) = (after.next(), after.next());
        let continues = match next {
            // The end of a sentence is not an extension.
            Some('.') => second.is_some_and(is_part),
            next => next.is_some_and(is_part),
        };
        let begins = before.is_none_or(|char| !is_part(char) && char != '.');
        (begins && !continues).then_some(at)
    })
}

/// The address without the parts that do not change its page: its fragment, and a slash at its end.
fn comparable_url(url: &str) -> String {
    let page = url.split('#').next().unwrap_or(url);
    page.trim_end_matches('/').to_owned()
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    // The part before `@` is not the host, and may look like another one (RFC 3986, section 3.2.1).
    authority.rsplit('@').next().unwrap_or(authority)
}

fn clean_title(title: &str) -> Option<String> {
    // Joiners and the selectors of emoji belong to the character before them; other invisible characters can hide or
    // reverse the text around them.
    let joins = |char: char| matches!(char, '\u{200c}'..='\u{200d}' | '\u{fe0e}'..='\u{fe0f}');
    let clean = title
        .chars()
        .filter(|char| joins(*char) || !is_zero_width(*char))
        .map(|char| {
            if is_unprintable(char) && !joins(char) {
                ' '
            } else {
                char
            }
        });
    let clean: String = clean.take(MAX_TITLE_CHARS).collect();
    let clean = clean.trim();
    (!clean.is_empty()).then(|| clean.to_owned())
}

fn prefix_of(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// Positions in characters for positions in bytes, which are sorted by their beginnings.
fn in_characters(text: &str, found: Vec<(usize, usize, CitationSource)>) -> Vec<Citation> {
    let (mut counted_bytes, mut counted) = (0, 0);
    let length = |from: usize, to: usize| text.get(from..to).map_or(0, |part| part.chars().count());
    let citations = found.into_iter().map(|(start, end, source)| {
        counted += length(counted_bytes, start);
        counted_bytes = start;
        Citation {
            start: counted,
            end: counted + length(start, end),
            source,
        }
    });
    citations.collect()
}

#[cfg(test)]
mod tests;
