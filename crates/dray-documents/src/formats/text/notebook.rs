//! Jupyter notebooks: cells in order, with their output (read-attachment 7.3).

use dray_types::terminal;
use serde_json::Value;

use super::{json, payload, source};
use crate::container::Input;
use crate::formats::{ConversionHint, web};
use crate::limits::Failure;
use crate::markdown::Markdown;

/// Most lines of one output that are shown.
const MAX_OUTPUT_LINES: usize = 200;
/// Most bytes of a language's name that are kept.
const MAX_LANGUAGE_BYTES: usize = 32;

/// Converts a notebook. JSON that is not a notebook is converted as JSON.
pub(super) fn convert(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let text = source::read_text(input, hint, out.budget())?;
    // The library fails at 128 levels of nesting; this crate's JSON writer has no recursion and its own limit.
    let Ok(notebook) = serde_json::from_str::<Value>(&text) else {
        return json::write_json(&text, out);
    };
    out.budget().clock()?;
    let language = kernel_language(&notebook);
    // Up to version 3 of the format, cells are inside worksheets.
    let sheets = notebook.get("worksheets").and_then(Value::as_array);
    let holders: Vec<&Value> = match sheets {
        Some(sheets) => sheets.iter().collect(),
        None => vec![&notebook],
    };
    if !holders
        .iter()
        .any(|holder| holder.get("cells").is_some_and(Value::is_array))
    {
        return json::write_json(&text, out);
    }
    for cell in holders
        .iter()
        .filter_map(|holder| holder.get("cells").and_then(Value::as_array))
        .flatten()
    {
        write_cell(cell, &language, out)?;
    }
    Ok(())
}

/// One cell and its output.
fn write_cell(cell: &Value, language: &str, out: &mut Markdown) -> Result<(), Failure> {
    let text = joined_text(cell.get("source").or_else(|| cell.get("input")));
    match cell
        .get("cell_type")
        .and_then(Value::as_str)
        .unwrap_or_default()
    {
        "markdown" => write_markdown(&text, out)?,
        "heading" => {
            let level = cell
                .get("level")
                .and_then(Value::as_u64)
                .unwrap_or(1)
                .clamp(1, 6);
            let marks = "#".repeat(usize::try_from(level).unwrap_or(1));
            write_markdown(&format!("{marks} {}", text.trim()), out)?;
        }
        "code" => {
            if !text.trim().is_empty() {
                // The third version names the language in each cell.
                let tag = cell.get("language").and_then(Value::as_str).map(fence_tag);
                let tag = tag.filter(|tag| language.is_empty() && !tag.is_empty());
                out.code(tag.as_deref().unwrap_or(language), &text)?;
            }
        }
        _ => write_lines(&text, out)?,
    }
    let outputs = cell.get("outputs").and_then(Value::as_array);
    for output in outputs.into_iter().flatten() {
        write_output(output, out)?;
    }
    Ok(())
}

/// Markdown without payloads, otherwise unchanged.
fn write_markdown(text: &str, out: &mut Markdown) -> Result<(), Failure> {
    let text = payload::without_payloads(text.trim_matches('\n'));
    if !text.trim().is_empty() {
        out.as_is(text.trim_end())?;
    }
    Ok(())
}

/// Text, an image's place, or an error's trace.
fn write_output(output: &Value, out: &mut Markdown) -> Result<(), Failure> {
    if let Some(text) = output.get("text").filter(|_| output.get("data").is_none()) {
        return write_lines(&joined_text(Some(text)), out);
    }
    if let Some(trace) = output.get("traceback").and_then(Value::as_array) {
        let lines: Vec<&str> = trace.iter().filter_map(Value::as_str).collect();
        if !lines.is_empty() {
            return write_lines(&lines.join("\n"), out);
        }
    }
    if let Some(name) = output.get("ename").and_then(Value::as_str) {
        let value = joined_text(output.get("evalue"));
        return write_lines(&format!("{name}: {value}"), out);
    }
    // The third version of the format has the bundle in the output itself, under short names.
    let bundle = output.get("data").unwrap_or(output);
    let image = bundle.as_object().is_some_and(|bundle| {
        bundle
            .keys()
            .any(|key| key.starts_with("image/") || matches!(key.as_str(), "png" | "jpeg" | "svg"))
    });
    if image {
        out.note("image output")?;
    }
    if let Some(plain) = bundle.get("text/plain") {
        let plain = joined_text(Some(plain));
        // The text next to an image is the name of the object in memory, which has no information.
        if !(image && plain.trim_start().starts_with('<')) {
            write_lines(&plain, out)?;
        }
    } else if let Some(markdown) = bundle.get("text/markdown") {
        write_markdown(&joined_text(Some(markdown)), out)?;
    } else if let Some(page) = bundle.get("text/html").or_else(|| bundle.get("html")) {
        web::write_html(&joined_text(Some(page)), out)?;
    } else if let Some(formula) = bundle.get("text/latex").or_else(|| bundle.get("latex")) {
        write_lines(&joined_text(Some(formula)), out)?;
    }
    Ok(())
}

/// The first lines of a text, in a plain fence.
fn write_lines(text: &str, out: &mut Markdown) -> Result<(), Failure> {
    let text = terminal::without_escapes(text);
    if text.trim().is_empty() {
        return Ok(());
    }
    out.code_lines(text.trim_end(), MAX_OUTPUT_LINES)?;
    Ok(())
}

/// A text that is one string or a list of strings.
fn joined_text(value: Option<&Value>) -> String {
    let text = match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    };
    source::line_feeds(text)
}

/// The language of the kernel, as a tag.
fn kernel_language(notebook: &Value) -> String {
    let metadata = notebook.get("metadata");
    let text_at = |section: &str, key: &str| metadata?.get(section)?.get(key)?.as_str();
    let name = text_at("language_info", "name").or_else(|| text_at("kernelspec", "language"));
    fence_tag(name.unwrap_or_default())
}

/// A language's name as the tag of a fence.
fn fence_tag(name: &str) -> String {
    name.to_lowercase()
        .chars()
        .filter(|character| {
            character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '#' | '.' | '_')
        })
        .take(MAX_LANGUAGE_BYTES)
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::formats::text::testing::{convert_bytes, convert_to_markdown, test_hint};
    use crate::limits::Limits;

    fn notebook(source: &str) -> String {
        convert_to_markdown("application/x-ipynb+json", "ipynb", source.as_bytes())
    }

    #[test]
    fn cells_and_outputs_in_order() {
        let text = notebook(
            r##"{"nbformat":4,"metadata":{"language_info":{"name":"Python"}},"cells":[
            {"cell_type":"markdown","source":["# Title\n","\n","![x](data:image/png;base64,AAAA) *a*"]},
            {"cell_type":"code","source":"print(1)\nplot()","outputs":[
              {"output_type":"stream","name":"stdout","text":["1\n","\u001b[31m2\u001b[0m\n"]},
              {"output_type":"display_data","data":{"image/png":"iVBORw0","text/plain":["<Figure>"]}},
              {"output_type":"execute_result","data":{"text/html":"<table>","text/plain":["   a\n","0  1"]}},
              {"output_type":"execute_result","data":{"text/html":["<b>x</b>"]}},
              {"output_type":"error","ename":"E","evalue":"v","traceback":["\u001b[0;31mE\u001b[0m: v"]}]},
            {"cell_type":"raw","source":"raw *text*"},
            {"cell_type":"code","source":[],"outputs":[]}]}"##,
        );
        assert_eq!(
            text,
            "# Title\n\n![x] *a*\n\n```python\nprint(1)\nplot()\n```\n\n```\n1\n2\n```\n\n_(image output)_\n\n\
             ```\n   a\n0  1\n```\n\n**x**\n\n```\nE: v\n```\n\n```\nraw *text*\n```\n"
        );
    }

    #[test]
    fn outputs_show_two_hundred_lines() {
        let lines: Vec<String> = (1..=250).map(|line| format!("\"{line}\\n\"")).collect();
        let text = notebook(&format!(
            "{{\"nbformat\":4,\"cells\":[{{\"cell_type\":\"code\",\"source\":\"x\",\"outputs\":[{{\"text\":[{}]}}]}}]}}",
            lines.join(",")
        ));
        assert!(
            text.ends_with("\n199\n200\n```\n\n_(50 more lines truncated)_\n"),
            "{text}"
        );
    }

    #[test]
    fn the_third_version_has_sheets_and_headings() {
        let text = notebook(
            r#"{"nbformat":3,"worksheets":[{"cells":[{"cell_type":"heading","level":2,"source":"H"},
            {"cell_type":"code","input":"x","language":"Py`"},{"cell_type":"code","input":"y","outputs":[{"output_type":"display_data","png":"AAAA"}]}]}]}"#,
        );
        assert_eq!(
            text,
            "## H\n\n```py\nx\n```\n\n```\ny\n```\n\n_(image output)_\n"
        );
    }

    #[test]
    fn json_that_is_not_a_notebook_is_converted_as_json() {
        assert_eq!(
            notebook("{\"nbformat\":4}"),
            "```json\n{\n  \"nbformat\": 4\n}\n```\n"
        );
        let deep = format!("{{\"nbformat\":4,\"cells\":{}", "[".repeat(100_000));
        let conversion = convert_bytes(
            &test_hint("application/x-ipynb+json", "ipynb"),
            deep.as_bytes(),
            Limits::default(),
        );
        assert!(conversion.markdown.starts_with("```\n{\"nbformat\""));
        assert_eq!(notebook(""), "");
    }
}
