//! Layout C: no ids, sandbox paths, a blank line after each heading (8.3).

use super::layout_b::second_use;
use super::{ReminderLine, ReminderSections, SandboxSkill, block, field, wrap};
use crate::escape::escape;

pub(super) fn write(sections: &ReminderSections<'_>, question: &str) -> String {
    let words = sections.language.words();
    let mut parts = Vec::new();
    if !sections.skills.is_empty() {
        let skills = block::join(sections.skills.iter().map(skill));
        parts.push(format!(
            "{}\n\n{}\n\n<available_skills>\n{skills}\n</available_skills>",
            words.skills, words.skill_rules
        ));
    }
    if let Some(boundary) = sections.write_boundary {
        parts.push(format!("{}\n\n{}", words.boundary, escape(boundary)));
    }
    // Without ids the URLs are all that names a file, so they are always shown.
    let sections = &ReminderSections {
        hides_urls: false,
        ..sections.clone()
    };
    let files = block::join(sections.files.iter().map(file));
    if let Some(files) = block::with_left_out(sections, files) {
        let second = second_use(sections, sections.media_attached);
        parts.push(format!(
            "{}\n\n{}\n{second}\n\n{files}",
            words.files, words.files_use
        ));
    }
    if !sections.datasets.is_empty() {
        let datasets = block::datasets(sections.datasets);
        let (heading, intro) = (words.datasets, words.datasets_use);
        parts.push(format!("{heading}\n\n{intro}\n\n{datasets}"));
    }
    if sections.time.is_some() || sections.working_directory.is_some() {
        let time = sections
            .time
            .map(|time| format!("{}{}", words.time, escape(time)));
        let directory = sections.working_directory;
        let directory = directory.map(|path| format!("{}{}", words.directory_of_c, escape(path)));
        let (time, directory) = (time.unwrap_or_default(), directory.unwrap_or_default());
        parts.push(format!("{}\n  \n{time}\n{directory}", words.background));
    }
    if parts.is_empty() {
        return question.to_owned();
    }
    let inside = format!("{}\n\n{}", words.opening_of_c, parts.join("\n\n"));
    wrap(&inside, question)
}

fn file(line: &ReminderLine) -> String {
    let url = if line.unavailable { "" } else { &line.url };
    let path = line.sandbox_path.as_deref();
    let mut lines = vec![
        field("name", &line.name),
        field("type", line.file_type.as_str()),
        field("url", url),
        path.map(|path| field("sandboxPath", path))
            .unwrap_or_default(),
    ];
    lines.extend(block::status(line));
    block::block("file", &lines)
}

fn skill(skill: &SandboxSkill) -> String {
    let lines = [
        field("name", &skill.name),
        field("description", &skill.description),
        field("location", &skill.path),
    ];
    block::block("skill", &lines)
}
