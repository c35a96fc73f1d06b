//! The oldest layout: a list of numbered files before the question (8.4).

use super::{Line, Sections};
use crate::escape::escape;

const ADVICE: &str = "**重要提示**：\n\
- 需要文档内容时，用文件编号调用读取工具，不要猜测内容。\n\
- 编号在本次对话中有效。";

pub(super) fn write(sections: &Sections<'_>, question: &str) -> String {
    if sections.files.is_empty() {
        return question.to_owned();
    }
    let lines: Vec<_> = sections.files.iter().map(file).collect();
    let files = lines.join("\n");
    format!(
        "## File input\n<available_files>\n当前对话中用户已上传以下文件：\n\n{files}\n{ADVICE}\n</available_files>\n\n## Query\n{question}"
    )
}

fn file(line: &Line) -> String {
    let kind = if line.file_type.is_document() {
        "document"
    } else {
        "image"
    };
    format!("- 文件{}: {}({kind})", escape(&line.id), escape(&line.name))
}
