//! CSV (RFC 4180) as a markdown table.

use std::fmt::Write as _;

/// Most rows that are shown.
const MAX_ROWS: usize = 200;

/// The table. `None` when the text is not a table because a quote is not closed, or because it has no row.
pub(super) fn csv_to_markdown(text: &str) -> Option<String> {
    let rows = csv_rows(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    let (head, body) = rows.split_first()?;
    let width = rows.iter().map(Vec::len).max()?;
    let mut table = markdown_row(head, width);
    table.push_str(&markdown_row(&vec!["---".to_owned(); width], width));
    for cells in body.iter().take(MAX_ROWS) {
        table.push_str(&markdown_row(cells, width));
    }
    if body.len() > MAX_ROWS {
        let _ = write!(table, "\n… ({} rows)\n", body.len());
    }
    Some(table)
}

fn markdown_row(cells: &[String], width: usize) -> String {
    let mut row = "|".to_owned();
    for column in 0..width {
        // Short rows are filled up: each row of a Markdown table needs all cells.
        let cell = cells.get(column).map_or("", String::as_str);
        // Backslashes are escaped first; otherwise the backslash of `\|` would be escaped again.
        let cell = cell.replace('\\', "\\\\").replace('|', "\\|");
        let cell: Vec<_> = cell.lines().collect();
        let _ = write!(row, " {} |", cell.join("<br>"));
    }
    row.push('\n');
    row
}

/// The rows that are not empty.
fn csv_rows(text: &str) -> Option<Vec<Vec<String>>> {
    let (mut rows, mut cells, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut is_quoted, mut is_row_started) = (false, false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' if is_quoted => is_quoted = false,
            // A quote opens a field only at its beginning (RFC 4180 section 2).
            '"' if cell.is_empty() => (is_quoted, is_row_started) = (true, true),
            ',' if !is_quoted => {
                cells.push(std::mem::take(&mut cell));
                is_row_started = true;
            }
            '\r' if !is_quoted && characters.peek() == Some(&'\n') => {}
            '\n' if !is_quoted => {
                cells.push(std::mem::take(&mut cell));
                let row = std::mem::take(&mut cells);
                if std::mem::take(&mut is_row_started) {
                    rows.push(row);
                }
            }
            other => {
                cell.push(other);
                is_row_started = true;
            }
        }
    }
    if is_quoted {
        return None;
    }
    if is_row_started {
        cells.push(cell);
        rows.push(cells);
    }
    (!rows.is_empty()).then_some(rows)
}
