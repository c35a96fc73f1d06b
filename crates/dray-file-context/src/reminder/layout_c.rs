//! Layout C: no ids, sandbox paths, a blank line after each heading (8.3).

use super::layout_b::second_use;
use super::{
    ReminderLine, ReminderSections, SandboxSkill, block, field_element, wrap_with_question,
};
use crate::escape::escape_xml;

pub(super) fn write_layout_c(sections: &ReminderSections<'_>, question: &str) -> String {
    let texts = sections.language.words();
    let mut parts = Vec::new();
    if !sections.skills.is_empty() {
        let skills = block::join_blocks(sections.skills.iter().map(skill_line));
        parts.push(format!(
            "{}\n\n{}\n\n<available_skills>\n{skills}\n</available_skills>",
            texts.skills, texts.skill_rules
        ));
    }
    if let Some(boundary) = sections.write_boundary {
        parts.push(format!("{}\n\n{}", texts.boundary, escape_xml(boundary)));
    }
    // Without ids, only URLs identify files, so they are always shown.
    let sections = &ReminderSections {
        hides_urls: false,
        ..sections.clone()
    };
    let files = block::join_blocks(sections.files.iter().map(file_line));
    if let Some(files) = block::with_left_out(sections, files) {
        let second = second_use(sections, sections.media_attached);
        parts.push(format!(
            "{}\n\n{}\n{second}\n\n{files}",
            texts.files, texts.files_use
        ));
    }
    if !sections.datasets.is_empty() {
        let datasets = block::dataset_blocks(sections.datasets);
        let (heading, intro) = (texts.datasets, texts.datasets_use);
        parts.push(format!("{heading}\n\n{intro}\n\n{datasets}"));
    }
    if sections.time.is_some() || sections.working_directory.is_some() {
        let time = sections
            .time
            .map(|time| format!("{}{}", texts.time, escape_xml(time)));
        let directory = sections.working_directory;
        let directory =
            directory.map(|path| format!("{}{}", texts.directory_of_c, escape_xml(path)));
        let (time, directory) = (time.unwrap_or_default(), directory.unwrap_or_default());
        // The line of two spaces is the peer's (8.3).
        parts.push(format!("{}\n  \n{time}\n{directory}", texts.background));
    }
    if parts.is_empty() {
        return question.to_owned();
    }
    let inside = format!("{}\n\n{}", texts.opening_of_c, parts.join("\n\n"));
    wrap_with_question(&inside, question)
}

fn file_line(line: &ReminderLine) -> String {
    let url = if line.unavailable { "" } else { &line.url };
    let path = line.sandbox_path.as_deref();
    let mut lines = vec![
        field_element("name", &line.name),
        field_element("type", line.file_type.as_str()),
        field_element("url", url),
        // Without a path the line is empty (8.3).
        path.map(|path| field_element("sandboxPath", path))
            .unwrap_or_default(),
    ];
    lines.extend(block::status_line(line));
    block::tagged_block("file", &lines)
}

fn skill_line(skill: &SandboxSkill) -> String {
    let lines = [
        field_element("name", &skill.name),
        field_element("description", &skill.description),
        field_element("location", &skill.path),
    ];
    block::tagged_block("skill", &lines)
}
