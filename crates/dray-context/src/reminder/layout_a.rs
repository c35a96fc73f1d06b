//! Layout A: English headings, the question last and inside the wrapper (8.1).

use super::{Line, Sections, block, field};
use crate::escape::{WRAPPER, disarm};

pub(super) fn write(sections: &Sections<'_>, question: &str) -> String {
    let mut parts = Vec::new();
    if !sections.files.is_empty() {
        let files = block::join(sections.files.iter().map(file));
        parts.push(format!("# Input Files\n用户本次可用的文件：\n\n{files}"));
    }
    if !sections.datasets.is_empty() {
        let datasets = block::datasets(sections.datasets);
        parts.push(format!(
            "# Input datasets\n用户当前可用的知识库：\n\n{datasets}"
        ));
    }
    if let Some(time) = sections.time {
        parts.push(format!("# Current time\n{time}"));
    }
    if parts.is_empty() {
        return question.to_owned();
    }
    if !question.is_empty() {
        parts.push(disarm(question));
    }
    let whole = format!("<{WRAPPER}>\n{}\n</{WRAPPER}>", parts.join("\n\n"));
    whole.trim().to_owned()
}

fn file(line: &Line) -> String {
    let kind = if line.file_type.is_document() {
        "document"
    } else {
        "image"
    };
    let mut lines = vec![
        field("id", &line.id),
        field("name", &line.name),
        field("type", kind),
    ];
    lines.extend(block::status(line));
    block::block("file", &lines)
}
