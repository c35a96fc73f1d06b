//! The stage of one call, from its opening to its end.

use std::time::Duration;

use dray_agent::event::StageStatus;
use dray_agent::manifest::feature::StageLevel;
use dray_agent::message::Attachment;
use serde_json::{Map, Value};

use crate::stage::{self, StageVisibility, body};
use crate::{
    CallRules, ClientGone, EventSink, StageStyle, StageWriter, ToolFailure, ToolOutput, fallback,
};

/// The stage of one call, or the content for it while it is not open.
pub(super) struct CallStage<'a> {
    rules: &'a CallRules,
    sink: &'a EventSink,
    visibility: StageVisibility,
    stage: StageWriter,
    request: String,
    /// The arguments as the model wrote them.
    pub(super) written: Map<String, Value>,
}

impl<'a> CallStage<'a> {
    /// Opens the stage if it is visible from the start.
    pub(super) async fn open(
        rules: &'a CallRules,
        written: Map<String, Value>,
        level: StageLevel,
        sink: &'a EventSink,
    ) -> Result<Self, ClientGone> {
        let visibility = stage::stage_visibility(level, rules);
        let stage = match visibility {
            StageVisibility::Always => sink.open(Some(stage::stage_title(rules, &written))).await?,
            StageVisibility::OnError | StageVisibility::Never => StageWriter::hidden(),
        };
        Ok(Self {
            rules,
            sink,
            visibility,
            stage,
            request: String::new(),
            written,
        })
    }

    /// The stage to which the tool writes its output.
    pub(super) fn stage(&self) -> StageWriter {
        self.stage.clone()
    }

    /// Writes the arguments as the model wrote them. Those that the tool gets, `resolved`, are used only for sizes.
    pub(super) async fn request(
        &mut self,
        resolved: Option<&Map<String, Value>>,
    ) -> Result<(), ClientGone> {
        if self.visibility == StageVisibility::Never {
            return Ok(());
        }
        let request = body::request_body(self.rules, &self.written, resolved);
        if self.visibility == StageVisibility::OnError {
            // The request is kept for a failure; without one the stage is never opened.
            self.request = request;
            return Ok(());
        }
        write_stage(&self.stage, request).await?;
        if self.rules.style == StageStyle::Deployment && resolved.is_some() {
            // The heading is shown before the call: the call's text streams into the stage below this heading.
            let heading = body::response_heading(StageStyle::Deployment);
            self.stage.content(heading).await?;
        }
        Ok(())
    }

    /// Writes the response, and links to those files that have a URL.
    pub(super) async fn response(
        &self,
        output: &ToolOutput,
        files: &[Attachment],
    ) -> Result<(), ClientGone> {
        if !self.stage.is_shown() || self.rules.style == StageStyle::Own {
            return Ok(());
        }
        if self.rules.style == StageStyle::Api {
            self.stage
                .content(body::response_heading(StageStyle::Api))
                .await?;
        }
        // A streamed text is in the stage already; its files are not.
        if !output.streamed {
            let style = self.rules.style;
            let text = body::response_body(style, &output.content, &output.content_type);
            write_stage(&self.stage, text).await?;
        }
        for file in files.iter().filter(|file| file.url.is_some()) {
            let mut file = file.clone();
            // A stage shows addresses, never bytes (R8).
            file.data = None;
            self.stage.attachment(file).await?;
        }
        Ok(())
    }

    /// Ends the stage of a call that succeeded.
    pub(super) async fn completed(self, elapsed: Duration) -> Result<(), ClientGone> {
        self.close(StageStatus::Completed, elapsed).await
    }

    /// Closes the stage. With `defer_close` in the manifest, it is closed at the end of the response.
    async fn close(&self, status: StageStatus, elapsed: Duration) -> Result<(), ClientGone> {
        self.stage.name(stage::duration_suffix(elapsed)).await?;
        let display = self.rules.display.stage.as_ref();
        if display.is_some_and(|stage| stage.defer_close == Some(true)) {
            self.stage.defer_close(status);
            return Ok(());
        }
        self.stage.close(status).await
    }

    /// Writes the error and closes the stage. Opens it first if it is shown only for failures (R12).
    pub(super) async fn failed(
        mut self,
        failure: &ToolFailure,
        text: &str,
        elapsed: Duration,
    ) -> Result<(), ClientGone> {
        if self.visibility == StageVisibility::OnError {
            let title = stage::stage_title(self.rules, &self.written);
            self.stage = self.sink.open(Some(title)).await?;
            write_stage(&self.stage, std::mem::take(&mut self.request)).await?;
        }
        if !self.stage.is_shown() {
            return Ok(());
        }
        let style = self.rules.style;
        let shows_error = self.rules.fallback.display_error_in_stage;
        let body = match failure {
            // The text is shown even if the manifest hides errors (quickapps 20).
            ToolFailure::TimedOut => body::error_text(style, text),
            _ if !shows_error => fallback::HIDDEN_ERROR_MESSAGE.to_owned(),
            ToolFailure::Failed(failed) => body::failure_text(style, failed),
            ToolFailure::Parameter { .. } => body::error_text(style, text),
        };
        write_stage(&self.stage, body).await?;
        self.close(StageStatus::Failed, elapsed).await
    }
}

async fn write_stage(stage: &StageWriter, text: String) -> Result<(), ClientGone> {
    if text.is_empty() {
        return Ok(());
    }
    stage.content(text).await
}
