//! The texts of a reminder, by language (agent-file-context 8). The Chinese texts equal the peer's exactly.

use serde::{Deserialize, Serialize};

use crate::built::ExclusionReason;

/// The language of a reminder. Names, types and tags are the same in all languages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReminderLanguage {
    /// English, the default of requests to the newest contract.
    #[default]
    #[serde(rename = "en")]
    English,
    /// Chinese in the words of the peer, its misprints included.
    #[serde(rename = "zh")]
    Chinese,
}

impl ReminderLanguage {
    /// The fixed sentences of all layouts in this language.
    pub(super) fn words(self) -> &'static LayoutTexts {
        match self {
            Self::English => &ENGLISH_WORDS,
            Self::Chinese => &CHINESE_WORDS,
        }
    }
}

/// The texts of a layout around the data.
pub(super) struct LayoutTexts {
    /// The line of layout A under `# Input Files`.
    pub(super) files_of_a: &'static str,
    /// The first line of layout B.
    pub(super) opening: &'static str,
    /// The first line of layout C.
    pub(super) opening_of_c: &'static str,
    /// Heading of the files.
    pub(super) files: &'static str,
    /// The text under the heading of the files, with their first use.
    pub(super) files_use: &'static str,
    /// Heading and text of the layout of G2.
    pub(super) files_of_g2: &'static str,
    /// The second use, if URLs are shown.
    pub(super) url_use: &'static str,
    /// The second use, if ids are used instead of URLs.
    pub(super) id_use: &'static str,
    /// The second use, if media are attached to the message and URLs are shown.
    pub(super) media_use: &'static str,
    /// The second use, if media are attached and URLs are not shown.
    pub(super) media_use_without_urls: &'static str,
    /// The line above the files that have no id.
    pub(super) left_out: &'static str,
    /// How files above the limit can be reached, unless the caller provides a text.
    pub(super) reach: &'static str,
    /// Heading of the skills.
    pub(super) skills: &'static str,
    /// Instructions for the use of skills.
    pub(super) skill_rules: &'static str,
    /// Heading of layout C for where files may be written.
    pub(super) boundary: &'static str,
    /// Heading of the datasets.
    pub(super) datasets: &'static str,
    /// The text under the heading of the datasets.
    pub(super) datasets_use: &'static str,
    /// Heading of time and directory.
    pub(super) background: &'static str,
    /// Label before the current time.
    pub(super) time: &'static str,
    /// Label before the working directory in layout B.
    pub(super) directory: &'static str,
    /// Label before the working directory in layout C.
    pub(super) directory_of_c: &'static str,
    /// The line of the legacy layout above its files.
    pub(super) files_of_legacy: &'static str,
    /// Label of the legacy layout before a file's number.
    pub(super) file_of_legacy: &'static str,
    /// The text of the legacy layout below its files.
    pub(super) advice_of_legacy: &'static str,
    /// The line of the tool-call layout under `# Input Files`.
    pub(super) files_of_tool_call: &'static str,
    /// Separator between the names of files above the limit.
    comma: &'static str,
    /// The language of these texts, for sentences with numbers or names in them.
    language: ReminderLanguage,
}

impl LayoutTexts {
    /// The reason why one file has no id.
    pub(super) fn reason(&self, reason: ExclusionReason) -> &'static str {
        let (english, chinese) = match reason {
            ExclusionReason::Limit => ("over the limit", "超出数量限制"),
            ExclusionReason::Name => (
                "no file with this name can be opened",
                "文件名无效，无法打开",
            ),
            ExclusionReason::Url => ("its address cannot be used", "链接无效，无法使用"),
            ExclusionReason::Scope => ("it belongs to another conversation", "文件属于其他对话"),
            ExclusionReason::Unsigned => ("it is no longer available", "文件已不可用"),
        };
        if self.is_english() { english } else { chinese }
    }

    /// The line on files above the limit of one message; `names` are the first of them.
    pub(super) fn over_limit(&self, count: usize, names: &[String], reach: &str) -> String {
        let names = names.join(self.comma);
        if self.is_english() {
            let files = if count == 1 { "file" } else { "files" };
            format!("{count} more {files} of this message ({names}): {reach}")
        } else {
            format!("本条消息另有 {count} 个文件（{names}）：{reach}")
        }
    }

    fn is_english(&self) -> bool {
        self.language == ReminderLanguage::English
    }
}

const ENGLISH_WORDS: LayoutTexts = LayoutTexts {
    files_of_a: "Files that the user made available in this turn:",
    opening: "Use the following to complete the task.",
    opening_of_c: "The following may help to complete the task.",
    files: "## Files of the conversation",
    files_use: "Files that the user uploaded in this conversation:\n1. Read the text of documents with read_files.",
    files_of_g2: "## Files\nFiles that the user uploaded in this conversation. Read them with read_files:",
    url_use: "2. Pass the url to tools that take the address of a file.",
    id_use: "2. Pass the id to tools that take the address of a file: it is replaced by a link.",
    media_use: "2. Images, audio and video are attached to this message: look at them directly. Their url can be passed to tools too.",
    media_use_without_urls: "2. Images, audio and video are attached to this message: look at them directly. Their id can be passed to tools too.",
    left_out: "Without an id:",
    reach: "ask the user to send them in another message.",
    skills: "## Skills",
    skill_rules: "These skills are deployed in the sandbox:\n\
        1. Decide by name and description whether a skill fits the task.\n\
        2. Before you use a skill, read the file at its path with the sandbox's tool for reading files.\n\
        3. Follow it. Its relative paths start at the skill's directory.",
    boundary: "## Where the sandbox may be written",
    datasets: "## Knowledge bases",
    datasets_use: "Knowledge bases that the user can use:",
    background: "## Background",
    time: "Current time: ",
    directory: "Working directory of the sandbox: ",
    directory_of_c: "Working directory of the sandbox: ",
    files_of_legacy: "The user uploaded these files in this conversation:",
    file_of_legacy: "File ",
    advice_of_legacy: "**Important**:\n\
        - When you need the content of a document, call the reading tool with its number. Do not guess.\n\
        - The numbers hold in this conversation.",
    files_of_tool_call: "Files that the user uploaded in this turn:",
    comma: ", ",
    language: ReminderLanguage::English,
};

const CHINESE_WORDS: LayoutTexts = LayoutTexts {
    files_of_a: "用户本次可用的文件：",
    opening: "依据以下内容完成任务",
    opening_of_c: "可以借助以下信息来完成任务",
    files: "## 对话文件",
    files_use: "用户本次对话上传的文件，用途：\n1. 可通过 read_files 读取文档内容。",
    // The doubled 的 and the space after the comma are the peer's.
    files_of_g2: "## 文件\n用户本次对话上传的的文件， 可通过 read_files 读取文件内容：",
    url_use: "2. 可把 url 作为模型参数。",
    id_use: "2. 可把 id 作为需要文件链接的工具参数，会自动替换为链接。",
    media_use: "2. 图片、音频和视频已作为当前消息的多模态输入提供，应直接分析其内容；url 也可作为模型参数。",
    media_use_without_urls: "2. 图片、音频和视频已作为当前消息的多模态输入提供，应直接分析其内容；id 也可作为模型参数。",
    left_out: "以下文件没有 id：",
    reach: "请用户在另一条消息中发送。",
    skills: "## 技能",
    skill_rules: "以下技能已部署在 sandbox 中，可按需使用：\n\
        1. 先根据 name 和 description 判断任务是否与某个技能相关。\n\
        2. 使用技能前，先用 sandbox 的读文件工具读取其 path 指向的说明文件。\n\
        3. 按说明执行；其中的相对路径以该技能的 directory 为起点。",
    boundary: "## Sandbox 文件写入边界",
    datasets: "## 知识库",
    datasets_use: "用户当前可用的知识库：",
    background: "## 背景信息",
    time: "当前时间: ",
    directory: "当前 sandbox 工作目录: ",
    directory_of_c: "当前沙盒的工作目录: ",
    files_of_legacy: "当前对话中用户已上传以下文件：",
    file_of_legacy: "文件",
    advice_of_legacy: "**重要提示**：\n\
        - 需要文档内容时，用文件编号调用读取工具，不要猜测内容。\n\
        - 编号在本次对话中有效。",
    files_of_tool_call: "用户本次上传的文件：",
    comma: "、",
    language: ReminderLanguage::Chinese,
};
