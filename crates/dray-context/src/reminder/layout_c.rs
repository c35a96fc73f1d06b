//! Layout C: no ids, sandbox paths, a blank line after each heading (8.3).

use super::layout_b::{MEDIA_USE, SKILL_RULES};
use super::{Line, Sections, Skill, block, field, wrap};
use crate::escape::escape;

const OPENING: &str = "可以借助以下信息来完成任务";

pub(super) fn write(sections: &Sections<'_>, question: &str) -> String {
    let mut parts = Vec::new();
    if !sections.skills.is_empty() {
        let skills = block::join(sections.skills.iter().map(skill));
        parts.push(format!(
            "## 技能\n\n{SKILL_RULES}\n\n<available_skills>\n{skills}\n</available_skills>"
        ));
    }
    if let Some(boundary) = sections.write_boundary {
        parts.push(format!("## Sandbox 文件写入边界\n\n{}", escape(boundary)));
    }
    if !sections.files.is_empty() {
        let files = block::join(sections.files.iter().map(file));
        parts.push(format!(
            "## 对话文件\n\n用户本次对话上传的文件，用途：\n1. 可通过 read_files 读取文档内容。\n{MEDIA_USE}\n\n{files}"
        ));
    }
    if !sections.datasets.is_empty() {
        let datasets = block::datasets(sections.datasets);
        parts.push(format!("## 知识库\n\n用户当前可用的知识库：\n\n{datasets}"));
    }
    if sections.time.is_some() || sections.working_directory.is_some() {
        let time = sections
            .time
            .map(|time| format!("当前时间: {}", escape(time)));
        let directory = sections.working_directory;
        let directory = directory.map(|path| format!("当前沙盒的工作目录: {}", escape(path)));
        let (time, directory) = (time.unwrap_or_default(), directory.unwrap_or_default());
        parts.push(format!("## 背景信息\n  \n{time}\n{directory}"));
    }
    if parts.is_empty() {
        return question.to_owned();
    }
    wrap(&format!("{OPENING}\n\n{}", parts.join("\n\n")), question)
}

fn file(line: &Line) -> String {
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

fn skill(skill: &Skill) -> String {
    let lines = [
        field("name", &skill.name),
        field("description", &skill.description),
        field("location", &skill.path),
    ];
    block::block("skill", &lines)
}
