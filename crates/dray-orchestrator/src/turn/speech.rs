//! Sends the text of an answer to the client (quickapps 18.1).

use dray_agent::event::Event;
use dray_agent::message::Attachment;
use dray_tool::{ClientGone, EventSink};

use dray_tool_files::media::MediaTagFilter;

/// Text between the answers of the model in one turn: that of DIAL (quickapps 18.1), or a paragraph.
pub(super) const fn answer_separator(is_dial: bool) -> &'static str {
    if is_dial { "\n\r" } else { "\n\n" }
}

/// Sends text: adds a separator before each answer, and holds `MEDIA:` tags back until they are complete.
#[derive(Debug)]
pub(super) struct TextRelay {
    media: Option<MediaTagFilter>,
    needs_separator: bool,
    has_sent: bool,
    /// Whether the client is one of DIAL, which expects a separator before the first answer too.
    is_dial: bool,
}

impl TextRelay {
    pub(super) const fn new(media: Option<MediaTagFilter>, is_dial: bool) -> Self {
        Self {
            media,
            needs_separator: true,
            has_sent: false,
            is_dial,
        }
    }

    /// Begins another answer, whose text follows a separator.
    pub(super) const fn next(&mut self) {
        self.needs_separator = true;
    }

    /// Sets whether another agent sent text before this answer.
    #[must_use]
    pub(super) const fn after_text(mut self, has_text: bool) -> Self {
        self.has_sent = has_text;
        self
    }

    /// Whether any text was sent.
    pub(super) const fn has_sent_text(&self) -> bool {
        self.has_sent
    }

    /// Sends more text of the current answer.
    pub(super) async fn send_text(
        &mut self,
        sink: &EventSink,
        text: &str,
    ) -> Result<(), ClientGone> {
        let text = match &mut self.media {
            Some(media) => media.push(text).await,
            None => text.to_owned(),
        };
        self.send(sink, text).await
    }

    /// Sends the text that was held back, and returns the files named in it.
    pub(super) async fn finish(&mut self, sink: &EventSink) -> Result<Vec<Attachment>, ClientGone> {
        let Some(media) = self.media.take() else {
            return Ok(Vec::new());
        };
        let rest = media.finish().await;
        for attachment in &rest.attachments {
            sink.send(Event::Attachment(attachment.clone())).await?;
        }
        self.send(sink, rest.text).await?;
        Ok(rest.attachments)
    }

    async fn send(&mut self, sink: &EventSink, mut text: String) -> Result<(), ClientGone> {
        // Many models begin with an empty delta; the separator waits for text.
        if text.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.needs_separator) && (self.is_dial || self.has_sent) {
            text.insert_str(0, answer_separator(self.is_dial));
        }
        self.has_sent = true;
        sink.send(Event::Content(text)).await
    }
}
