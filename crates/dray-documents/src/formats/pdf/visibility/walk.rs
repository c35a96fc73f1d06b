//! Runs over the operators of a page and of the forms that it draws, in the order in which the engine does.

mod forms;
mod replaced;

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;

use pdfboss_core::content::{ContentOps, Op};
use pdfboss_core::{
    Dict, Matrix, Name, ObjRef, Object, OcState, Page, Stream, block_on, page_content_with,
};

use self::replaced::{MarkedOperators, Replacement, shown_bytes};
use super::color::Space;
use super::mask::{MaskState, SoftMask};
use super::path::Path;
use super::resources::{Resources, find, numbers};
use super::state::{Picture, State};
use super::{Paint, PaintedPage, mark};
use crate::formats::pdf::metered::MeteredDocument;

/// Deepest nesting of forms: the limit of the engine.
const MAX_FORM_DEPTH: usize = 16;
/// Most forms that one page draws: the limit of the engine.
const MAX_FORMS: usize = 4096;
/// Most paints of one page that are recorded.
const MAX_PAINTS: usize = 50_000;
/// Most bytes of marked operators of one page.
const MAX_MARKED_BYTES: usize = 64 << 20;
/// Operators between two checks of the time limit.
const OPERATORS_PER_CHECK: usize = 4096;

/// Content streams with their marks, for the engine to read.
#[derive(Clone, Debug, Default)]
pub(in crate::formats::pdf) struct MarkedStreams {
    streams: VecDeque<(u64, Vec<u8>)>,
}

impl MarkedStreams {
    /// Removes and returns the marked operators of the next drawing of a stream.
    pub(in crate::formats::pdf) fn take(&mut self, stream: &Stream) -> Option<Vec<u8>> {
        // A form that is drawn twice has two entries, each with the marks of one drawing.
        let key = stream_key(stream);
        let index = self.streams.iter().position(|(known, _)| *known == key)?;
        self.streams.remove(index).map(|(_, data)| data)
    }
}

/// Identity of a content stream.
fn stream_key(stream: &Stream) -> u64 {
    let mut hasher = DefaultHasher::new();
    stream.data.hash(&mut hasher);
    hasher.finish()
}

/// Walks a page. Returns its paints, and the page and streams for the engine to read instead.
///
/// Texts that replace far fewer glyphs are counted, and kept only if hidden content is shown.
pub(in crate::formats::pdf) fn walk(
    page: &Page,
    source: &MeteredDocument<'_>,
    layers: Option<&OcState>,
    shows_hidden: bool,
) -> (PaintedPage, Page, MarkedStreams) {
    let mut walker = Walker {
        source,
        layers,
        shows_hidden,
        painted: PaintedPage::default(),
        streams: VecDeque::new(),
        pictures: HashMap::new(),
        masks: Vec::new(),
        known_masks: HashMap::new(),
        forms: 0,
        marked_bytes: 0,
        operators: 0,
    };
    let mut page = page.clone();
    // Without content no mark is needed, and the engine itself reports the damage.
    if let Ok(content) = block_on(page_content_with(source, &page)) {
        let chain = vec![Resources::new(page.resources.clone())];
        let marked = walker.run(&content, &chain, State::new(), 0);
        page = with_content(&page, marked);
    }
    let streams = MarkedStreams {
        streams: walker.streams,
    };
    walker.painted.masks = walker.masks;
    (walker.painted, page, streams)
}

/// The page with other content.
fn with_content(page: &Page, data: Vec<u8>) -> Page {
    let mut dict = page.dict().clone();
    let content = Stream {
        // The stream has no filter: the operators are written as they are.
        dict: Dict::new(),
        data,
    };
    dict.insert(Name("Contents".to_owned()), Object::Stream(content));
    Page::from_parts(
        page.index,
        page.media_box,
        page.crop_box,
        page.rotate,
        page.resources.clone(),
        dict,
        page.object_ref(),
    )
}

struct Walker<'a> {
    source: &'a MeteredDocument<'a>,
    layers: Option<&'a OcState>,
    shows_hidden: bool,
    painted: PaintedPage,
    streams: VecDeque<(u64, Vec<u8>)>,
    pictures: HashMap<ObjRef, Picture>,
    masks: Vec<SoftMask>,
    /// Masks by their group and by the bits of the matrix under which they were set.
    known_masks: HashMap<(ObjRef, [u32; 6]), MaskState>,
    forms: usize,
    marked_bytes: usize,
    operators: usize,
}

/// One content stream while it runs.
struct Frame<'f> {
    chain: &'f [Rc<Resources>],
    state: State,
    /// `Tm`, without its position.
    text_matrix: Matrix,
    saved: Vec<State>,
    path: Path,
    /// Marked sequences that are open, and whether each is in a layer that is switched off.
    sequences: Vec<bool>,
    /// Those of them that have a replacement text.
    replacements: Vec<Replacement>,
    /// Number of glyphs that were shown.
    glyphs: usize,
    depth: usize,
}

impl Walker<'_> {
    /// Runs one stream. Returns its operators with the marks.
    fn run(
        &mut self,
        content: &[u8],
        chain: &[Rc<Resources>],
        state: State,
        depth: usize,
    ) -> Vec<u8> {
        let mut frame = Frame {
            chain,
            state,
            text_matrix: Matrix::identity(),
            saved: Vec::new(),
            path: Path::default(),
            sequences: Vec::new(),
            replacements: Vec::new(),
            glyphs: 0,
            depth,
        };
        let mut marked = MarkedOperators::new(content);
        let mut ops = ContentOps::new(content);
        // Content after a damaged operator is copied without marks and counts as visible.
        while let Ok(Some((op, span))) = ops.next_op() {
            if self.is_out_of_time() {
                break;
            }
            if let Some(bytes) = shown_bytes(&op) {
                let glyphs = bytes.div_ceil(frame.state.code_bytes);
                frame.glyphs = frame.glyphs.saturating_add(glyphs);
                if let Some(text) = self.mark(&mut frame) {
                    marked.insert(span.start, &text);
                }
                continue;
            }
            self.step(&op, &mut frame);
            match &op {
                Op::BeginMarkedContentProps(tag, properties) => {
                    self.begin_replacement((tag, properties), span, &mut frame, &mut marked);
                }
                Op::EndMarkedContent => self.end_replacement(span, &mut frame, &mut marked),
                _ => {}
            }
        }
        marked.insert(content.len() as u64, "");
        // Sequences that the stream does not end end with it.
        for replacement in std::mem::take(&mut frame.replacements) {
            self.settle(&replacement, frame.glyphs, &mut marked);
        }
        let marked = marked.finish();
        self.marked_bytes = self.marked_bytes.saturating_add(marked.len());
        marked
    }

    fn is_out_of_time(&mut self) -> bool {
        self.operators += 1;
        self.operators.is_multiple_of(OPERATORS_PER_CHECK) && self.source.is_out_of_time()
    }

    /// Records the state of the text that is shown now. Returns the mark to write before its operator.
    fn mark(&mut self, frame: &mut Frame<'_>) -> Option<String> {
        let number = self.painted.shown.len();
        let is_off = frame.is_off();
        self.painted.has_layer_text |= is_off;
        if number >= mark::MAX_MARKS || is_off {
            return None;
        }
        let paints_before = self.painted.paints.len();
        let shown = frame.state.text_state(frame.text_matrix, paints_before);
        self.painted.shown.push(shown);
        Some(mark::write(number))
    }

    fn paint(&mut self, paint: Option<Paint>) {
        if let Some(paint) = paint
            && self.painted.paints.len() < MAX_PAINTS
        {
            self.painted.paints.push(paint);
        }
    }

    /// Applies an operator that shows no text.
    fn step(&mut self, op: &Op, frame: &mut Frame<'_>) {
        if frame.state.set(op) || frame.state.build(op, &mut frame.path) {
            return;
        }
        match op {
            // The stack is bounded: deeper content was cut off when the stream was read.
            Op::Save => frame.saved.push(frame.state.clone()),
            Op::Restore => {
                // Some writers restore more often than they save; the state then stays as it is.
                if let Some(saved) = frame.saved.pop() {
                    frame.state = saved;
                }
            }
            Op::SetExtGState(name) => {
                if let Some(found) = self.find(frame, "ExtGState", name)
                    && let Some(settings) = found.as_dict()
                {
                    frame.state.apply(settings, self.source);
                    if let Some(mask) = settings.get("SMask") {
                        frame.state.mask = self.soft_mask(mask, frame);
                    }
                }
            }
            Op::SetFillColorSpace(name) => {
                frame.state.fill_space = self.space(frame, name);
                frame.state.fill = frame.state.fill_space.initial();
            }
            Op::SetStrokeColorSpace(name) => {
                frame.state.stroke_space = self.space(frame, name);
                frame.state.stroke = frame.state.stroke_space.initial();
            }
            Op::BeginMarkedContent(_) => frame.sequences.push(false),
            Op::BeginMarkedContentProps(tag, properties) => {
                let off = tag.0 == "OC" && self.is_switched_off(frame, properties);
                frame.sequences.push(off);
            }
            Op::EndMarkedContent => {
                frame.sequences.pop();
            }
            Op::Shading(_) if !frame.is_off() => self.paint(Some(frame.state.shading())),
            Op::InlineImage(image) if !frame.is_off() => {
                let picture = Picture::of(&image.dict, self.source);
                self.paint(frame.state.picture(&picture));
            }
            Op::XObject(name) if !frame.is_off() => self.draw(name, frame),
            Op::XObject(_) => self.painted.has_layer_text = true,
            Op::Stroke
            | Op::CloseStroke
            | Op::Fill
            | Op::FillEvenOdd
            | Op::FillStroke
            | Op::FillStrokeEvenOdd
            | Op::CloseFillStroke
            | Op::CloseFillStrokeEvenOdd
            | Op::EndPath => {
                let off = frame.is_off();
                for paint in frame.state.end_path(op, &mut frame.path) {
                    self.paint(Some(paint).filter(|_| !off));
                }
            }
            _ => self.set_text(op, frame),
        }
    }

    /// Applies an operator that sets the font or the matrix of text, and no other operator.
    fn set_text(&self, op: &Op, frame: &mut Frame<'_>) {
        match op {
            Op::SetFont(name, size) => {
                frame.state.glyph_scale = self.glyph_scale(frame, name);
                frame.state.code_bytes = self.code_bytes(frame, name);
                frame.state.font_size = Some(*size);
            }
            Op::BeginText => frame.text_matrix = Matrix::identity(),
            Op::SetTextMatrix(matrix) => frame.text_matrix = *matrix,
            _ => {}
        }
    }

    fn find(&self, frame: &Frame<'_>, category: &'static str, name: &Name) -> Option<Object> {
        find(frame.chain, category, &name.0, self.source).map(|found| found.object)
    }

    fn space(&self, frame: &Frame<'_>, name: &Name) -> Space {
        let named = Object::Name(name.clone());
        match Space::of(&named, self.source) {
            Space::Other => self
                .find(frame, "ColorSpace", name)
                .map_or(Space::Other, |found| Space::of(&found, self.source)),
            device => device,
        }
    }

    /// Glyphs of a Type 3 font have their own matrix; glyphs of other fonts have units of a thousandth of the size.
    fn glyph_scale(&self, frame: &Frame<'_>, name: &Name) -> f32 {
        let scale = || {
            let font = self.find(frame, "Font", name)?;
            let dict = font.as_dict()?;
            dict.get_name("Subtype")
                .filter(|subtype| subtype.0 == "Type3")?;
            let [a, _, _, d, ..] = numbers::<6>(dict.get("FontMatrix"), self.source)?;
            Some(a.abs().max(d.abs()) * 1000.0)
        };
        scale().unwrap_or(1.0)
    }

    /// Bytes of a code: nearly all composite fonts have codes of two bytes.
    fn code_bytes(&self, frame: &Frame<'_>, name: &Name) -> usize {
        let font = self.find(frame, "Font", name);
        let dict = font.as_ref().and_then(Object::as_dict);
        let subtype = dict.and_then(|dict| dict.get_name("Subtype"));
        if subtype.is_some_and(|subtype| subtype.0 == "Type0") {
            2
        } else {
            1
        }
    }

    fn is_switched_off(&self, frame: &Frame<'_>, properties: &Object) -> bool {
        let Some(layers) = self.layers else {
            return false;
        };
        let layer = match properties {
            // The reference identifies the layer.
            Object::Name(name) => find(frame.chain, "Properties", &name.0, self.source)
                .map(|found| found.reference.map_or(found.object, Object::Ref)),
            other => Some(other.clone()),
        };
        layer.is_some_and(|layer| !block_on(layers.visible_with(&self.source, &layer)))
    }

    /// Draws a picture or a form.
    fn draw(&mut self, name: &Name, frame: &mut Frame<'_>) {
        if frame.depth >= MAX_FORM_DEPTH || self.forms >= MAX_FORMS {
            return;
        }
        // The form is counted before it is read, so that the limit includes forms that cannot be read.
        self.forms += 1;
        let Some(found) = find(frame.chain, "XObject", &name.0, self.source) else {
            return;
        };
        let Object::Stream(stream) = found.object else {
            return;
        };
        let subtype = stream
            .dict
            .get("Subtype")
            .and_then(|object| self.source.fetch(object));
        let subtype = subtype.as_ref().and_then(Object::as_name);
        if let (Some(layers), Some(layer)) = (self.layers, stream.dict.get("OC"))
            && !block_on(layers.visible_with(&self.source, layer))
        {
            self.painted.has_layer_text = true;
            return;
        }
        match subtype.map(|name| name.0.as_str()) {
            Some("Image") => {
                let known = found
                    .reference
                    .and_then(|reference| self.pictures.get(&reference).copied());
                let picture = known.unwrap_or_else(|| Picture::of(&stream.dict, self.source));
                if let Some(reference) = found.reference {
                    self.pictures.insert(reference, picture);
                }
                let paint = frame.state.picture(&picture);
                let paint = paint.filter(|paint| !self.is_masked(frame, paint));
                if let (Some(paint), Some(reference)) = (paint, found.reference) {
                    self.painted.add_picture(paint.region.area, reference);
                }
                self.paint(paint);
            }
            Some("Form") => self.form(&stream, frame),
            _ => {}
        }
    }
}

impl Frame<'_> {
    /// Whether the stream is in a layer that is switched off.
    fn is_off(&self) -> bool {
        self.sequences.contains(&true)
    }
}
