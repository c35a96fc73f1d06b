//! Tests of tables and notebooks as pages, with the reader in the process of `dray preview`.

use super::PreviewProcess;
use crate::support;

const NOTEBOOK_FILE: &str = r##"{"cells": [
 {"cell_type": "markdown", "metadata": {}, "source": ["# Runs\n", "\n", "<script>alert(1)</script>"]},
 {"cell_type": "code", "metadata": {}, "source": ["print(40 + 2)"], "execution_count": 1,
  "outputs": [{"output_type": "stream", "name": "stdout", "text": ["42\n"]}]}],
 "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}"##;

#[test]
fn tables_and_notebooks_are_pages_and_their_files_stay_reachable() {
    let directory = tempfile::tempdir().unwrap();
    let office = support::root().join("tests/documents/corpus/office");
    for name in ["budget.xlsx", "tides.ods"] {
        std::fs::copy(office.join(name), directory.path().join(name)).unwrap();
    }
    // Larger than a message, so that it is transferred through the store.
    let rows: Vec<String> = (0..9000)
        .map(|row| format!("row {row},<b>{row}\n"))
        .collect();
    let rows = rows.concat();
    for (name, content) in [
        ("small.csv", "name,amount\nada,0012\n"),
        ("large.csv", &format!("name,amount\n{rows}")),
        ("small.tsv", "name\tamount\ngrace\t1e5\n"),
        ("run.ipynb", NOTEBOOK_FILE),
    ] {
        std::fs::write(directory.path().join(name), content).unwrap();
    }
    let root = directory.path().canonicalize().unwrap();
    let preview = PreviewProcess::start(&format!("local:{}", root.display()), &[]);
    for (name, parts) in [
        ("small.csv", ["<th>amount</th>", "<td>0012</td>"]),
        ("large.csv", ["<td>row 0</td>", "<td>&lt;b&gt;999</td>"]),
        ("small.tsv", ["<th>amount</th>", "<td>1e5</td>"]),
        ("budget.xlsx", ["<table>", "<td>"]),
        ("tides.ods", ["<table>", "<td>"]),
        ("run.ipynb", ["<h1 id=\"runs\">Runs</h1>", "42"]),
    ] {
        let page = preview.get("d", name);
        assert_eq!(page.status, 200, "{name}: {page:?}");
        for part in parts {
            assert!(page.body.contains(part), "{name}: no {part}: {}", page.body);
        }
        assert!(
            !page.body.contains("<script") && !page.body.contains("<b>"),
            "{name}"
        );
        assert!(preview.get("v", name).body.contains("<iframe"), "{name}");
        assert_eq!(preview.get("p", name).status, 200, "{name}");
    }
    std::fs::write(
        directory.path().join("broken.xlsx"),
        "PK\u{3}\u{4} not a workbook",
    )
    .unwrap();
    let broken = preview.get("d", "broken.xlsx").body;
    assert!(broken.contains("Open the file as it is"), "{broken}");
}
