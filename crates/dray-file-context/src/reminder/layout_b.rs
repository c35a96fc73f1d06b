//! Layout B: the question after the wrapper (8.2), as G2, G3 and G4 wrote it.

use super::{
    ReminderLine, ReminderSections, SandboxSkill, block, field_element, wrap_with_question,
};
use crate::escape::escape_xml;
use crate::generation::ReminderLayout;

pub(super) fn write_layout_b(
    layout: ReminderLayout,
    sections: &ReminderSections<'_>,
    question: &str,
) -> String {
    let texts = sections.language.words();
    let mut parts = Vec::new();
    if !sections.skills.is_empty() {
        let skills = block::join_blocks(sections.skills.iter().map(skill_line));
        let (heading, rules) = (texts.skills, texts.skill_rules);
        parts.push(format!("{heading}\n{rules}\n\n{skills}"));
    }
    parts.extend(files_block(layout, sections));
    if !sections.datasets.is_empty() {
        let datasets = block::dataset_blocks(sections.datasets);
        let (heading, intro) = (texts.datasets, texts.datasets_use);
        parts.push(format!("{heading}\n{intro}\n\n{datasets}"));
    }
    if sections.time.is_some() || sections.working_directory.is_some() {
        let time = sections
            .time
            .map(|time| format!("{}{}", texts.time, escape_xml(time)));
        let directory = sections.working_directory;
        let directory = directory.map(|path| format!("{}{}", texts.directory, escape_xml(path)));
        let (time, directory) = (time.unwrap_or_default(), directory.unwrap_or_default());
        // Two lines in any case; either may be empty (8.2).
        parts.push(format!("{}\n{time}\n{directory}", texts.background));
    }
    if parts.is_empty() {
        // The question is not trimmed either (section 22, item 5).
        return question.to_owned();
    }
    let inside = format!("{}\n\n{}", texts.opening, parts.join("\n\n"));
    wrap_with_question(&inside, question)
}

fn files_block(layout: ReminderLayout, sections: &ReminderSections<'_>) -> Option<String> {
    let texts = sections.language.words();
    let is_g2 = layout == ReminderLayout::BDocuments;
    let listed = sections
        .files
        .iter()
        .filter(|line| !is_g2 || line.file_type.is_document());
    let blocks = block::join_blocks(listed.map(|line| file_line(line, is_g2, sections.hides_urls)));
    let blocks = block::with_left_out(sections, blocks)?;
    let heading = if is_g2 {
        texts.files_of_g2.to_owned()
    } else {
        let says_media = layout == ReminderLayout::BMedia && sections.media_attached;
        let second = second_use(sections, says_media);
        format!("{}\n{}\n{second}", texts.files, texts.files_use)
    };
    Some(format!("{heading}\n\n{blocks}"))
}

/// The line about the second use of files. It mentions attached media only where media are attached.
pub(super) fn second_use(sections: &ReminderSections<'_>, says_media: bool) -> &'static str {
    let texts = sections.language.words();
    match (says_media, sections.hides_urls) {
        (true, false) => texts.media_use,
        (true, true) => texts.media_use_without_urls,
        (false, false) => texts.url_use,
        (false, true) => texts.id_use,
    }
}

fn file_line(line: &ReminderLine, is_g2: bool, hides_url: bool) -> String {
    let mut lines = vec![
        field_element("id", &line.id),
        field_element("name", &line.name),
    ];
    if !is_g2 {
        lines.push(field_element("type", line.file_type.as_str()));
        if !line.unavailable && !line.url.is_empty() && !hides_url {
            lines.push(field_element("url", &line.url));
        }
    }
    lines.extend(block::status_line(line));
    block::tagged_block("file", &lines)
}

fn skill_line(skill: &SandboxSkill) -> String {
    let lines = [
        field_element("name", &skill.name),
        field_element("description", &skill.description),
        field_element("directory", &skill.directory),
        field_element("path", &skill.path),
    ];
    block::tagged_block("skill", &lines)
}
