//! The engine `pdfboss`: opens documents, runs it page by page on one thread, and converts its layout.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use pdfboss_core::object::decode_text_string;
use pdfboss_core::{
    Document, EmbeddedFile, ObjRef, Object, OcState, StructureTree, block_on, embedded_files_with,
    form_fields_with,
};
use pdfboss_output::{
    FontCache, ReadingOrder, Ruling, SkippedText, SkippedTextKind, TextSpan, retain_rulings_on_page,
};
use pdfboss_text::ExtractReport;

use super::annotations::Annotations;
use super::characters;
use super::emphasis::Emphasis;
use super::engine::{Engine, Field, Page, PageError};
use super::fields::Form;
use super::layout::Layout;
use super::metered::MeteredDocument;
use super::scan;
use super::sizes::FontSizeCounts;
use super::spans;
use super::visibility;
use super::watermark::{self, Watermarks};
use crate::attachment::AttachedFile;
use crate::limits::{Budget, Damage, Failure, Limit};
use crate::markdown::visible_characters;

/// Pages that are read ahead to learn the sizes of headings.
const LOOKAHEAD_PAGES: u32 = 200;
/// Most text spans that are read ahead; each uses about half a kilobyte.
const MAX_LOOKAHEAD_SPANS: usize = 40_000;
/// Most attachments that are listed.
const MAX_ATTACHMENTS: usize = 1000;
/// Most lines drawn on one page among which tables are searched.
const MAX_RULINGS: usize = 6_000;

/// What the engine reads of a page: text, lines, and what it left out.
type PageContent = (Vec<TextSpan>, Vec<Ruling>, ExtractReport);

/// An open document and data about its first pages.
pub(super) struct PdfBoss {
    document: Document,
    damage: Damage,
    budget: Rc<Budget>,
    pages: u32,
    fonts: FontCache,
    layers: Option<OcState>,
    tree: Option<StructureTree>,
    sizes: Option<FontSizeCounts>,
    emphasis: Emphasis,
    watermarks: Watermarks,
    /// The form of the document; `None` until it is read.
    form: Option<Form>,
    /// Pages that were read ahead and are not yet written, by number.
    lookahead_pages: BTreeMap<u32, RawPage>,
    /// Pictures of the page that was read last.
    pictures: (u32, Vec<ObjRef>),
    show_hidden: bool,
}

/// A page as the engine extracts it.
struct RawPage {
    spans: Vec<TextSpan>,
    rulings: Vec<Ruling>,
    width: f32,
    order: ReadingOrder,
    incomplete: bool,
    cut: Option<Limit>,
    hidden_characters: u64,
    /// Pictures, if the page has hardly any text.
    pictures: Vec<ObjRef>,
    watermarks: Vec<watermark::Candidate>,
    annotations: Annotations,
}

impl PdfBoss {
    /// Opens a document, with the empty password if it is encrypted.
    ///
    /// # Errors
    ///
    /// [`Failure::Encrypted`] when a password is needed; damage without a structure that can be read or found
    /// again by scanning the file.
    pub(super) fn open(data: Vec<u8>, budget: &Rc<Budget>) -> Result<Self, Failure> {
        // A file that lacks its end has been cut off, regardless of other damage.
        let damage = if has_end_marker(&data) {
            Damage::Structure
        } else {
            Damage::Truncated
        };
        let document = load_document(data, Failure::Corrupt(damage))?;
        budget.clock()?;
        let trailer = &document.xref().trailer;
        let source = MeteredDocument::new(&document, budget);
        // No future is pending here, because all objects are in memory.
        let layers = block_on(OcState::load_with(&source, trailer));
        let tree = block_on(StructureTree::load_with(&source, trailer));
        let pages = u32::try_from(document.flattened_page_count()).unwrap_or(u32::MAX);
        Ok(Self {
            damage,
            budget: Rc::clone(budget),
            pages,
            fonts: FontCache::default(),
            layers,
            tree,
            sizes: None,
            emphasis: Emphasis::default(),
            watermarks: Watermarks::default(),
            form: None,
            lookahead_pages: BTreeMap::new(),
            pictures: (0, Vec::new()),
            show_hidden: false,
            document,
        })
    }

    /// Sets whether text that a person does not see is kept.
    pub(super) fn with_hidden_text(mut self, show: bool) -> Self {
        self.show_hidden = show;
        self
    }

    /// Measures the sizes of letters on the first pages, and keeps the text of these pages.
    fn look_ahead(&mut self) {
        let mut sizes = FontSizeCounts::default();
        let mut spans = 0;
        for number in 1..=self.pages.min(LOOKAHEAD_PAGES) {
            // A limit is reached again when the pages are written, and is reported there.
            if spans > MAX_LOOKAHEAD_SPANS || self.budget.clock().is_err() {
                break;
            }
            if let Ok(raw) = self.extract(number) {
                sizes.count(&raw.spans);
                self.emphasis.count(&raw.spans);
                self.watermarks.count(&raw.watermarks);
                spans += raw.spans.len();
                self.lookahead_pages.insert(number, raw);
            }
        }
        self.sizes = Some(sizes);
    }

    /// Text and lines of a page.
    fn extract(&self, number: u32) -> Result<RawPage, PageError> {
        let index = usize::try_from(number - 1).map_err(|_| PageError::Damaged)?;
        let page = self.document.page(index).map_err(|_| PageError::Damaged)?;
        // Layers that are switched off hide text as well.
        let layers = self.layers.as_ref().filter(|_| !self.show_hidden);
        let reader = MeteredDocument::new(&self.document, &self.budget);
        let walked = catch_panic(|| visibility::walk(&page, &reader, layers, self.show_hidden));
        let (painted, marked_page, streams) = walked.ok_or(PageError::Damaged)?;
        let has_layer_text = self.layers.is_some() && (self.show_hidden || painted.has_layer_text);
        let streams_of_layers = has_layer_text.then(|| streams.clone());
        let cut = reader.reached();
        // The engine gets a separate counter, because the walk has read the same objects.
        let source =
            MeteredDocument::new(&self.document, &self.budget).with_marked_streams(streams);
        let extracted = self.read_content(&source, &marked_page, layers);
        // The limit that the walk reached is the reason for content that the engine does not return.
        let reached = || cut.or(source.reached());
        let Some(Ok((mut spans, mut rulings, report))) = extracted else {
            return Err(reached().map_or(PageError::Damaged, PageError::Limit));
        };
        let layer_characters = streams_of_layers.map_or(0, |streams| {
            self.count_layer_text(&marked_page, streams, &spans)
        });
        // This comes before spans are added or removed, because hidden spans are identified by index.
        let hidden = painted
            .judge(&spans, &page, &self.budget)
            .map_err(PageError::Limit)?;
        let hidden_characters = self.remove_hidden(&mut spans, &hidden)
            + painted.replaced_characters
            + layer_characters;
        let pictures = painted.pictures_beside(&spans, page.crop_box);
        spans::repair_spans(&mut spans);
        let watermarks = watermark::take(&mut spans, &painted);
        let annotations = Annotations::read(&page, &reader, self.show_hidden);
        retain_rulings_on_page(&mut rulings, &page);
        if rulings.len() > MAX_RULINGS {
            // So many lines are a drawing and not a table. Comparing all of them with each other takes quadratic time.
            rulings.clear();
        }
        if spans.is_empty() {
            // Without any text the page may have text beyond the limit, so it does not count as empty.
            if let Some(limit) = reached() {
                return Err(PageError::Limit(limit));
            }
            let contents = |kind| kind == SkippedTextKind::PageContents;
            if report.skipped.iter().any(|skipped| contents(skipped.kind)) {
                return Err(PageError::Damaged);
            }
        }
        Ok(RawPage {
            spans,
            rulings,
            width: page.crop_box.width(),
            order: report.order,
            incomplete: is_incomplete(&report.skipped) && reached().is_none(),
            cut: reached(),
            hidden_characters,
            pictures,
            watermarks,
            annotations,
        })
    }

    /// Runs the engine over the content of a page; `None` if it panics.
    fn read_content(
        &self,
        source: &MeteredDocument<'_>,
        page: &pdfboss_core::Page,
        layers: Option<&OcState>,
    ) -> Option<pdfboss_core::Result<PageContent>> {
        catch_panic(|| {
            block_on(
                pdfboss_text::extract_spans_and_rulings_reporting_cached_with(
                    source,
                    page,
                    &self.fonts,
                    layers,
                    self.tree.as_ref(),
                    ReadingOrder::StructureTree,
                ),
            )
        })
    }

    /// Characters in layers that are switched off: the difference between the text with them and without them.
    fn count_layer_text(
        &self,
        page: &pdfboss_core::Page,
        streams: visibility::MarkedStreams,
        spans: &[TextSpan],
    ) -> u64 {
        // `spans` has the text of all layers if hidden content is shown, otherwise only that of the others.
        let layers = self.layers.as_ref().filter(|_| self.show_hidden);
        let source =
            MeteredDocument::new(&self.document, &self.budget).with_marked_streams(streams);
        let Some(Ok((compared, ..))) = self.read_content(&source, page, layers) else {
            return 0;
        };
        let count = |spans: &[TextSpan]| -> u64 {
            spans
                .iter()
                .map(|span| visible_characters(&span.text))
                .sum()
        };
        count(&compared).abs_diff(count(spans))
    }

    /// The form of the document.
    fn form(&mut self) -> &mut Form {
        let Self {
            form,
            document,
            budget,
            ..
        } = self;
        form.get_or_insert_with(|| {
            let source = MeteredDocument::new(document, budget);
            let found =
                catch_panic(|| block_on(form_fields_with(&source, &document.xref().trailer)));
            Form::new(found.unwrap_or_default())
        })
    }

    /// Counts the invisible characters, and removes them unless hidden text is requested.
    fn remove_hidden(&self, spans: &mut Vec<TextSpan>, hidden: &[bool]) -> u64 {
        let mut count = 0;
        let mut hidden = hidden.iter();
        spans.retain(|span| {
            let is_hidden = hidden.next().copied().unwrap_or(false);
            if is_hidden {
                count += visible_characters(&span.text);
            }
            self.show_hidden || !is_hidden
        });
        count
    }
}

impl Engine for PdfBoss {
    fn pages(&mut self) -> u32 {
        self.pages
    }

    fn damage(&self) -> Damage {
        match self.damage {
            Damage::Structure => Damage::Malformed,
            other => other,
        }
    }

    fn page(&mut self, number: u32) -> Result<Page, PageError> {
        if self.sizes.is_none() {
            self.look_ahead();
        }
        let mut raw = if let Some(raw) = self.lookahead_pages.remove(&number) {
            raw
        } else {
            let raw = self.extract(number)?;
            self.watermarks.count(&raw.watermarks);
            raw
        };
        let watermarks = self.watermarks.settle(raw.watermarks, &mut raw.spans);
        let unreadable = characters::is_unreadable(raw.spans.iter().map(|span| span.text.as_str()));
        raw.hidden_characters += raw.annotations.markup.add_typed_texts(&mut raw.spans);
        raw.annotations.mark(&mut raw.spans);
        if !raw.annotations.widgets.is_empty() {
            let show_hidden = self.show_hidden;
            let form = self.form();
            raw.hidden_characters +=
                form.fill_in(&raw.annotations.widgets, &mut raw.spans, show_hidden);
        }
        let layout = Layout {
            // For a document of one page, the sizes on this page are used.
            sizes: self.sizes.as_ref().filter(|_| self.pages > 1),
            emphasis: self.emphasis,
            targets: &raw.annotations.targets,
        };
        let blocks = catch_panic(|| layout.blocks(raw.spans, &raw.rulings, raw.order))
            .ok_or(PageError::Damaged)?;
        let is_picture = !raw.pictures.is_empty();
        self.pictures = (number, raw.pictures);
        Ok(Page {
            blocks,
            width: raw.width,
            incomplete: raw.incomplete,
            cut: raw.cut,
            unreadable,
            hidden_characters: raw.hidden_characters,
            is_picture,
            watermarks,
            comments: raw.annotations.markup.comments,
        })
    }

    fn images(&mut self, number: u32) -> Vec<Vec<u8>> {
        let (page, pictures) = &self.pictures;
        if *page != number {
            return Vec::new();
        }
        let source = MeteredDocument::new(&self.document, &self.budget);
        let image = |reference: &ObjRef| {
            let picture = source.fetch(&Object::Ref(*reference))?;
            catch_panic(|| scan::image_of(picture.as_stream()?, &source))?
        };
        pictures.iter().filter_map(image).collect()
    }

    fn fields(&mut self) -> Vec<Field> {
        self.form().unwritten_fields()
    }

    fn attachments(&mut self) -> Vec<AttachedFile> {
        let source = MeteredDocument::new(&self.document, &self.budget);
        let trailer = &self.document.xref().trailer;
        let found = catch_panic(|| block_on(embedded_files_with(&source, trailer)));
        let found = found.unwrap_or_default().into_iter();
        found.take(MAX_ATTACHMENTS).map(attachment_of).collect()
    }
}

/// An attachment by the name that viewers show: of its file, otherwise the one under which it is listed.
fn attachment_of(file: EmbeddedFile) -> AttachedFile {
    let plain_name = || file.spec.file.as_deref().map(decode_text_string);
    let name = file.spec.unicode_file.clone().or_else(plain_name);
    AttachedFile {
        name: name.unwrap_or(file.name),
        mime: file.mime.unwrap_or_default(),
        size: file.size,
    }
}

/// Whether skipped content may have contained text.
fn is_incomplete(skipped: &[SkippedText]) -> bool {
    let mut kinds = skipped.iter().map(|skipped| skipped.kind);
    kinds.any(|kind| kind != SkippedTextKind::FontEncoding)
}

/// Runs the engine; `None` if it panics, so that a panic loses one page and not the document. The worker process
/// contains other failures.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Loads a document. If its cross-reference table leads to fewer pages than declared, or to none, the table is rebuilt
/// from the objects in the file.
fn load_document(data: Vec<u8>, damage: Failure) -> Result<Document, Failure> {
    let document = match catch_panic(|| Document::load(data)).ok_or(damage)? {
        Ok(document) => document,
        Err(pdfboss_core::Error::Encrypted) => return Err(Failure::Encrypted),
        Err(_) => return Err(damage),
    };
    let declared = document.page_count();
    let found = document.flattened_page_count();
    if found > 0 && found >= declared {
        return Ok(document);
    }
    // Some writers leave a table that covers only a part of the file, although all objects exist.
    let scanned = without_table(document.bytes());
    match catch_panic(|| Document::load(scanned)) {
        Some(Ok(rebuilt)) if rebuilt.flattened_page_count() > found => Ok(rebuilt),
        Some(Err(pdfboss_core::Error::Encrypted)) if found == 0 => Err(Failure::Encrypted),
        _ if found > 0 => Ok(document),
        _ => Err(damage),
    }
}

/// Whether the file ends as a PDF does.
fn has_end_marker(data: &[u8]) -> bool {
    let tail = data.get(data.len().saturating_sub(1024)..).unwrap_or(data);
    tail.windows(5).any(|window| window == b"%%EOF")
}

/// The file with each `startxref` overwritten by blanks, so that the engine finds no table and scans for the objects.
fn without_table(data: &[u8]) -> Vec<u8> {
    const STARTXREF_KEYWORD: &[u8] = b"startxref";
    let mut data = data.to_vec();
    let starts: Vec<usize> = data
        .windows(STARTXREF_KEYWORD.len())
        .enumerate()
        .filter(|(_, window)| *window == STARTXREF_KEYWORD)
        .map(|(start, _)| start)
        .collect();
    for start in starts {
        if let Some(word) = data.get_mut(start..start + STARTXREF_KEYWORD.len()) {
            word.fill(b' ');
        }
    }
    data
}
