//! Forms that a page draws, and the groups of its soft masks: content with its own state.

use std::rc::Rc;

use pdfboss_core::{Matrix, ObjRef, Object, Rect, Stream, block_on, content_stream_data_with};

use super::super::Paint;
use super::super::mask::{MaskKind, MaskState, SoftMask};
use super::super::path::Region;
use super::super::resources::{Resources, numbers};
use super::super::state::State;
use super::{Frame, MAX_FORM_DEPTH, MAX_MARKED_BYTES, Walker, stream_key};

/// Most soft masks of one page that are computed. With another mask, text counts as visible.
const MAX_MASKS: usize = 256;
/// Most paints of one soft mask. With a mask of more, text counts as visible.
const MAX_MASK_PAINTS: usize = 1_000;

impl Walker<'_> {
    /// Draws a form: its operators run with their own state and clip.
    pub(super) fn form(&mut self, stream: &Stream, frame: &Frame<'_>) {
        if self.marked_bytes >= MAX_MARKED_BYTES {
            return;
        }
        let Some((content, chain, state)) = self.open_form(stream, frame, frame.state.clone())
        else {
            return;
        };
        // The engine reads this stream before the streams of nested forms.
        let index = self.streams.len();
        self.streams.push_back((stream_key(stream), Vec::new()));
        let marked = self.run(&content, &chain, state, frame.depth + 1);
        if let Some((_, data)) = self.streams.get_mut(index) {
            *data = marked;
        }
    }

    /// The content of a form, its resources, and the state in which it begins.
    fn open_form(
        &self,
        stream: &Stream,
        frame: &Frame<'_>,
        mut state: State,
    ) -> Option<(Vec<u8>, Vec<Rc<Resources>>, State)> {
        let content = block_on(content_stream_data_with(self.source, stream)).ok()?;
        let mut chain = Vec::with_capacity(frame.chain.len() + 1);
        if let Some(Object::Dict(own)) = stream
            .dict
            .get("Resources")
            .and_then(|object| self.source.fetch(object))
        {
            chain.push(Resources::new(own));
        }
        // The resources of the page remain a fallback for those of the form, as old writers rely on (ISO 32000-1,
        // 7.8.3).
        chain.extend_from_slice(frame.chain);
        if let Some([a, b, c, d, e, f]) = numbers::<6>(stream.dict.get("Matrix"), self.source) {
            state.matrix = Matrix { a, b, c, d, e, f }.concat(state.matrix);
        }
        if let Some([x0, y0, x1, y1]) = numbers::<4>(stream.dict.get("BBox"), self.source)
            && let Some(region) = Region::of(Rect::new(x0, y0, x1, y1).normalize(), state.matrix)
        {
            state.clip_to(Some(region));
        }
        Some((content, chain, state))
    }

    /// The mask that a graphics state sets.
    pub(super) fn soft_mask(&mut self, mask: &Object, frame: &Frame<'_>) -> MaskState {
        let mask = self.source.fetch(mask);
        if mask
            .as_ref()
            .and_then(Object::as_name)
            .is_some_and(|name| name.0 == "None")
        {
            return MaskState::None;
        }
        let group = mask.as_ref().and_then(Object::as_dict).and_then(|dict| {
            let kind = MaskKind::of(dict, self.source)?;
            Some((kind, dict.get("G")?.as_ref()?))
        });
        let Some((kind, group)) = group else {
            return MaskState::Unknown;
        };
        let Matrix { a, b, c, d, e, f } = frame.state.matrix;
        let key = (group, [a, b, c, d, e, f].map(f32::to_bits));
        if let Some(known) = self.known_masks.get(&key) {
            return *known;
        }
        if self.known_masks.len() >= MAX_MASKS || frame.depth >= MAX_FORM_DEPTH {
            return MaskState::Unknown;
        }
        // The mask is entered before its group runs, which may set the same mask.
        self.known_masks.insert(key, MaskState::Unknown);
        let computed = self.mask_paints(group, frame).map(|paints| {
            self.masks.push(SoftMask { kind, paints });
            MaskState::Known(self.masks.len() - 1)
        });
        let state = computed.unwrap_or(MaskState::Unknown);
        self.known_masks.insert(key, state);
        state
    }

    /// The paints of a mask's group; `None` if it shows text, whose shapes are unknown, or has too many paints.
    fn mask_paints(&mut self, group: ObjRef, frame: &Frame<'_>) -> Option<Vec<Paint>> {
        let Object::Stream(stream) = self.source.fetch(&Object::Ref(group))? else {
            return None;
        };
        // The group has its own state, in the coordinates of the graphics state that set it (11.6.5.3).
        let mut state = State::new();
        state.matrix = frame.state.matrix;
        let (content, chain, state) = self.open_form(&stream, frame, state)?;
        // The engine does not read the group, so it gets no marks.
        let outer = std::mem::take(&mut self.painted);
        let (streams, marked_bytes) = (self.streams.len(), self.marked_bytes);
        self.run(&content, &chain, state, frame.depth + 1);
        self.streams.truncate(streams);
        self.marked_bytes = marked_bytes;
        let painted = std::mem::replace(&mut self.painted, outer);
        (painted.shown.is_empty() && painted.paints.len() <= MAX_MASK_PAINTS)
            .then_some(painted.paints)
    }

    /// Whether the current mask hides a paint completely.
    pub(super) fn is_masked(&self, frame: &Frame<'_>, paint: &Paint) -> bool {
        match frame.state.mask {
            MaskState::Known(index) => {
                let mask = self.masks.get(index);
                mask.is_some_and(|mask| mask.hides(paint.region.area))
            }
            MaskState::None | MaskState::Unknown => false,
        }
    }
}
