//! EPUB: chapters in the order of the spine, each through the rules of HTML.

use std::collections::HashMap;
use std::rc::Rc;

use crate::container::{Container, Input};
use crate::formats::office::package::resolve_part;
use crate::formats::office::xml::{Event, Xml, decode_part};
use crate::formats::{ConversionHint, collapse_white_space, web};
use crate::limits::{Budget, Damage, Failure};
use crate::markdown::{Markdown, Unit};

/// One entry of the manifest.
#[derive(Debug, Default)]
struct Item {
    part: String,
    mime: String,
    nav: bool,
}

/// The package document: the list of parts, and their reading order.
#[derive(Debug, Default)]
struct Book {
    items: HashMap<String, Item>,
    spine: Vec<String>,
    /// Id of the older kind of table of contents.
    toc: Option<String>,
}

/// A missing chapter is named in a warning; the book is damaged only when no chapter could be read.
pub(super) fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let budget = Rc::clone(out.budget());
    let mut container = Container::open(input, &budget)?;
    if let Some(bytes) = container.part("META-INF/encryption.xml")?
        && is_encrypted(&bytes, &budget)?
    {
        return Err(Failure::Encrypted);
    }
    let opf = package_name(&mut container, &budget)?;
    let directory = opf.rsplit_once('/').map_or("", |(directory, _)| directory);
    let book = Book::read(&container.needed(&opf)?, directory, &budget)?;
    let titles = book.titles(&mut container, &budget)?;
    let mut missing = false;
    let mut found = false;
    let mut number = 0;
    for item in book.spine.iter().filter_map(|id| book.items.get(id)) {
        if !matches!(
            item.mime.as_str(),
            // Some books leave the type out; the HTML rules read plain text as well.
            "application/xhtml+xml" | "text/html" | "image/svg+xml" | "text/x-oeb1-document" | ""
        ) {
            continue;
        }
        number += 1;
        let title = titles.get(&item.part).map(String::as_str);
        if !out.part(Unit::Chapter, number, title)? {
            found = true;
            continue;
        }
        match container.part(&item.part) {
            Ok(Some(bytes)) => {
                found = true;
                web::write_html(&decode_part(&bytes), out)?;
            }
            Ok(None) | Err(Failure::Corrupt(_)) => {
                missing = true;
                out.warn(format!("chapter {number} is missing or damaged"));
            }
            Err(failure) => return Err(failure),
        }
    }
    if missing && !found {
        return Err(Failure::Corrupt(Damage::MissingPart));
    }
    Ok(())
}

/// Whether anything but fonts is encrypted.
fn is_encrypted(bytes: &[u8], budget: &Rc<Budget>) -> Result<bool, Failure> {
    let text = decode_part(bytes);
    let mut xml = Xml::new(&text, budget);
    let mut obfuscated = false;
    loop {
        match xml.next()? {
            Event::Open(element) if element.name() == "EncryptedData" => obfuscated = false,
            Event::Open(element) if element.name() == "EncryptionMethod" => {
                obfuscated = matches!(
                    // Two methods of obfuscating fonts against copying; neither hides the text.
                    element.attr("Algorithm").unwrap_or_default().as_str(),
                    "http://www.idpf.org/2008/embedding" | "http://ns.adobe.com/pdf/enc#RC"
                );
            }
            Event::Open(element) if element.name() == "CipherReference" => {
                let name = element.attr("URI").unwrap_or_default().to_ascii_lowercase();
                let is_font = [".ttf", ".otf", ".woff", ".woff2", ".ttc", ".eot"]
                    .iter()
                    .any(|end| name.ends_with(end));
                if !obfuscated && !is_font {
                    return Ok(true);
                }
            }
            Event::End => return Ok(false),
            _ => {}
        }
    }
}

/// The name of the package document: the one that the container declares, otherwise the only one.
fn package_name(container: &mut Container<'_>, budget: &Rc<Budget>) -> Result<String, Failure> {
    if let Some(bytes) = container.part("META-INF/container.xml")? {
        let text = decode_part(&bytes);
        let mut xml = Xml::new(&text, budget);
        loop {
            match xml.next() {
                Ok(Event::Open(element)) if element.name() == "rootfile" => {
                    // The path is resolved inside the archive: `../../etc/passwd` matches no part (path traversal).
                    let path = resolve_part("", &element.attr("full-path").unwrap_or_default());
                    if container.has(&path) {
                        return Ok(path);
                    }
                }
                Ok(Event::End) | Err(Failure::Corrupt(_)) => break,
                Ok(_) => {}
                Err(failure) => return Err(failure),
            }
        }
    }
    container
        .names()
        .iter()
        .find(|name| name.to_ascii_lowercase().ends_with(".opf"))
        .cloned()
        .ok_or(Failure::Corrupt(Damage::MissingPart))
}

impl Book {
    fn read(bytes: &[u8], directory: &str, budget: &Rc<Budget>) -> Result<Self, Failure> {
        let text = decode_part(bytes);
        let mut xml = Xml::new(&text, budget);
        let mut book = Self::default();
        loop {
            match xml.next()? {
                Event::Open(element) => match element.name() {
                    "item" => {
                        let (Some(id), Some(href)) = (element.attr("id"), element.attr("href"))
                        else {
                            continue;
                        };
                        let nav = element.attr("properties").is_some_and(|properties| {
                            properties
                                .split_whitespace()
                                .any(|property| property == "nav")
                        });
                        book.items.entry(id).or_insert(Item {
                            part: resolve_part(directory, &href),
                            mime: element.attr("media-type").unwrap_or_default(),
                            nav,
                        });
                    }
                    "spine" => book.toc = element.attr("toc"),
                    "itemref" => {
                        budget.element()?;
                        book.spine.extend(element.attr("idref"));
                    }
                    _ => {}
                },
                Event::End => return Ok(book),
                _ => {}
            }
        }
    }

    /// Titles of chapters by part, from the table of contents of either kind. A damaged table only loses the titles.
    fn titles(
        &self,
        container: &mut Container<'_>,
        budget: &Rc<Budget>,
    ) -> Result<HashMap<String, String>, Failure> {
        let nav = self.items.values().find(|item| item.nav);
        let ncx = self.toc.as_ref().and_then(|id| self.items.get(id));
        let mut titles = HashMap::new();
        for item in [nav, ncx].into_iter().flatten() {
            let bytes = match container.part(&item.part) {
                Ok(Some(bytes)) => bytes,
                Ok(None) | Err(Failure::Corrupt(_)) => continue,
                Err(failure) => return Err(failure),
            };
            match read_titles(&bytes, &item.part, budget, &mut titles) {
                Ok(()) | Err(Failure::Corrupt(_)) => {}
                Err(failure) => return Err(failure),
            }
            if !titles.is_empty() {
                break;
            }
        }
        Ok(titles)
    }
}

fn read_titles(
    bytes: &[u8],
    part: &str,
    budget: &Rc<Budget>,
    titles: &mut HashMap<String, String>,
) -> Result<(), Failure> {
    let directory = part.rsplit_once('/').map_or("", |(directory, _)| directory);
    let text = decode_part(bytes);
    let mut xml = Xml::new(&text, budget);
    let mut label = String::new();
    loop {
        match xml.next()? {
            Event::Open(element) => match element.name() {
                "a" => {
                    if let Some(href) = element.attr("href") {
                        let title = xml.text()?;
                        note_title(titles, resolve_part(directory, &href), &title);
                    }
                }
                "navLabel" => label = xml.text()?,
                "content" => {
                    if let Some(href) = element.attr("src") {
                        note_title(titles, resolve_part(directory, &href), &label);
                    }
                }
                _ => {}
            },
            Event::End => return Ok(()),
            _ => {}
        }
    }
}

/// The first title of a part is the chapter's.
fn note_title(titles: &mut HashMap<String, String>, part: String, title: &str) {
    let title = collapse_white_space(title);
    if !title.is_empty() {
        titles.entry(part).or_insert(title);
    }
}
