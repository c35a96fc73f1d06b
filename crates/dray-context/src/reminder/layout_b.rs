//! Layout B: Chinese headings, the question after the wrapper (8.2), as G2, G3 and G4 wrote it.

use super::{Line, Sections, Skill, block, field, wrap};
use crate::escape::escape;
use crate::generation::Layout;

const OPENING: &str = "依据以下内容完成任务";
const FILES_OF_G2: &str = "## 文件\n用户本次对话上传的的文件， 可通过 read_files 读取文件内容：";
const FILES: &str =
    "## 对话文件\n用户本次对话上传的文件，用途：\n1. 可通过 read_files 读取文档内容。";
const URL_USE: &str = "2. 可把 url 作为模型参数。";
pub(super) const MEDIA_USE: &str =
    "2. 图片、音频和视频已作为当前消息的多模态输入提供，应直接分析其内容；url 也可作为模型参数。";

/// How a model is to use skills.
pub(super) const SKILL_RULES: &str = "以下技能已部署在 sandbox 中，可按需使用：\n\
1. 先根据 name 和 description 判断任务是否与某个技能相关。\n\
2. 使用技能前，先用 sandbox 的读文件工具读取其 path 指向的说明文件。\n\
3. 按说明执行；其中的相对路径以该技能的 directory 为起点。";

pub(super) fn write(layout: Layout, sections: &Sections<'_>, question: &str) -> String {
    let mut parts = Vec::new();
    if !sections.skills.is_empty() {
        let skills = block::join(sections.skills.iter().map(skill));
        parts.push(format!("## 技能\n{SKILL_RULES}\n\n{skills}"));
    }
    parts.extend(files(layout, sections.files));
    if !sections.datasets.is_empty() {
        let datasets = block::datasets(sections.datasets);
        parts.push(format!("## 知识库\n用户当前可用的知识库：\n\n{datasets}"));
    }
    if sections.time.is_some() || sections.working_directory.is_some() {
        let time = sections
            .time
            .map(|time| format!("当前时间: {}", escape(time)));
        let directory = sections.working_directory;
        let directory = directory.map(|path| format!("当前 sandbox 工作目录: {}", escape(path)));
        let (time, directory) = (time.unwrap_or_default(), directory.unwrap_or_default());
        parts.push(format!("## 背景信息\n{time}\n{directory}"));
    }
    if parts.is_empty() {
        return question.to_owned();
    }
    wrap(&format!("{OPENING}\n\n{}", parts.join("\n\n")), question)
}

fn files(layout: Layout, lines: &[Line]) -> Option<String> {
    let of_g2 = layout == Layout::BDocuments;
    let listed = lines
        .iter()
        .filter(|line| !of_g2 || line.file_type.is_document());
    let blocks = block::join(listed.map(|line| file(line, of_g2)));
    if blocks.is_empty() {
        return None;
    }
    let heading = match layout {
        Layout::BDocuments => FILES_OF_G2.to_owned(),
        Layout::BMedia => format!("{FILES}\n{MEDIA_USE}"),
        _ => format!("{FILES}\n{URL_USE}"),
    };
    Some(format!("{heading}\n\n{blocks}"))
}

fn file(line: &Line, of_g2: bool) -> String {
    let mut lines = vec![field("id", &line.id), field("name", &line.name)];
    if !of_g2 {
        lines.push(field("type", line.file_type.as_str()));
        if !line.unavailable && !line.url.is_empty() {
            lines.push(field("url", &line.url));
        }
    }
    lines.extend(block::status(line));
    block::block("file", &lines)
}

fn skill(skill: &Skill) -> String {
    let lines = [
        field("name", &skill.name),
        field("description", &skill.description),
        field("directory", &skill.directory),
        field("path", &skill.path),
    ];
    block::block("skill", &lines)
}
