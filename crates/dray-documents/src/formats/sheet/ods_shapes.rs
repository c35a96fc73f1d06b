//! Shapes, pictures and embedded objects on an ODS sheet.

use super::drawing::SheetDrawing;
use crate::formats::collapse_white_space;
use crate::formats::office::figure;
use crate::formats::office::odf;
use crate::formats::office::xml::{Element, Event, Ns, Xml};
use crate::limits::Failure;
use crate::markdown::Inline;

/// Reads a shape, or a group of shapes, after its start.
pub(super) fn read_shape(
    shape: &Element<'_>,
    xml: &mut Xml<'_>,
    drawing: &mut SheetDrawing,
) -> Result<(), Failure> {
    let is_hidden = odf::is_switched_off(shape);
    let depth = xml.depth();
    let mut lines = Vec::new();
    let (mut image, mut has_object) = (None, false);
    let mut description = String::new();
    loop {
        match xml.next()? {
            Event::Open(element) if element.ns == Ns::OdfDraw => match element.name() {
                "image" => {
                    image = image.or(element.attr("href"));
                    xml.skip()?;
                }
                "object" | "object-ole" => {
                    let target = element.attr("href").unwrap_or_default();
                    lines.push(figure::embedded_note(figure::part_name(
                        target.trim_end_matches('/'),
                    )));
                    has_object = true;
                    xml.skip()?;
                }
                // The shapes of a group are shown one by one. All of a hidden group is hidden with it.
                "frame" | "g" if !is_hidden => read_shape(&element, xml, drawing)?,
                _ if !is_hidden && odf::is_switched_off(&element) => {
                    read_shape(&element, xml, drawing)?;
                }
                _ => {}
            },
            Event::Open(element)
                if element.ns == Ns::OdfText && matches!(element.name(), "p" | "h") =>
            {
                lines.push(Inline::plain(&odf::plain_text(xml)?));
            }
            Event::Open(element) if matches!(element.name(), "title" | "desc") => {
                description = xml.text()?;
            }
            Event::Close if xml.depth() < depth => break,
            Event::End => break,
            _ => {}
        }
    }
    // The picture of an embedded object only stands for it.
    if let Some(image) = image.filter(|_| !has_object) {
        let mut picture = Inline::new();
        picture.image(
            &collapse_white_space(&description),
            figure::part_name(&image),
        );
        lines.push(picture);
    }
    drawing.add(lines, is_hidden);
    Ok(())
}
