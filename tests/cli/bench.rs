//! `dray bench`: rows, plots, failures of single rows, and what stays behind.

use serde_json::Value;

use super::CliHome;

/// The rows on standard output, one JSON object in each line.
fn rows(output: &std::process::Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let rows = text.lines().map(serde_json::from_str);
    rows.map(|row| row.unwrap_or_else(|_| panic!("{output:?}")))
        .collect()
}

#[test]
fn copies_are_compared_with_cp_and_plotted_and_no_file_remains() {
    let home = CliHome::new();
    let plots = home.0.path().join("plots");
    let staging = home.0.path().join("tmp");
    std::fs::create_dir(&staging).unwrap();
    let svg = plots.to_str().unwrap();
    let arguments = [
        "bench", "--json", "--size", "1KiB", "--runs", "2", "--svg", svg,
    ];
    let output = home
        .dray(&arguments)
        .env("TMPDIR", &staging)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rows = rows(&output);
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["in, 1.0 KB", "out, 1.0 KB"]);
    for row in &rows {
        assert_eq!(row["peer"], "cp", "{row}");
        let [ours, peer] =
            ["dray_ms", "peer_ms"].map(|times| row[times]["median"].as_f64().unwrap());
        let ratio = row["ratio"].as_f64().unwrap();
        assert!((ratio - ours / peer).abs() < 0.01 * ratio, "{row}");
    }
    let plot = std::fs::read_to_string(plots.join("copy-into-and-out-of-a-local-directory.svg"));
    let plot = plot.unwrap();
    assert_eq!(plot.matches("<rect x=").count(), 4, "{plot}");
    assert_eq!(std::fs::read_dir(&staging).unwrap().count(), 0);
    // A copy that cannot be removed would be named there.
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_row_that_fails_names_the_reason_and_the_other_rows_are_measured() {
    let home = CliHome::new();
    let missing = home.0.path().join("missing.pdf");
    let missing = missing.to_str().unwrap();
    let output = home.run(&[
        "bench",
        "--json",
        "--size",
        "1KiB",
        "--runs",
        "1",
        "--document",
        missing,
    ]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let rows = rows(&output);
    assert_eq!(rows.len(), 3);
    let error = rows[2]["dray_ms"]["error"].as_str().unwrap();
    assert!(error.contains("failed"), "{error}");
    assert!(rows[0]["ratio"].is_number(), "{}", rows[0]);
}

#[test]
fn a_sandbox_that_cannot_be_examined_is_named() {
    let home = CliHome::new();
    let output = home.run(&[
        "bench",
        "--size",
        "1KiB",
        "--runs",
        "1",
        "--sandbox",
        "docker:none",
    ]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("sandbox docker:none"), "{text}");
}
