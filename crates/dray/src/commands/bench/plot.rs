//! Plots of the times as SVG: two bars for each row, ours and that of the peer.

use std::fmt::Write as _;
use std::path::Path;

use dray_http_server::escape_html;

use super::{BenchGroup, BenchRow};
use crate::outcome::CommandFailure;

const PLOT_WIDTH: u32 = 720;
/// Horizontal position, in pixels, at which bars begin; names of rows are on the left of it.
const BAR_START: u32 = 200;
/// Width of the longest bar, in pixels.
const MAX_BAR_WIDTH: f64 = 360.0;
/// Height of a row, in pixels.
const ROW_HEIGHT: u32 = 56;
/// Height above the first row, in pixels.
const HEAD_HEIGHT: u32 = 44;

/// Writes one file for each group.
pub(super) fn write_plots(directory: &Path, groups: &[BenchGroup]) -> Result<(), CommandFailure> {
    let cannot = || CommandFailure::local(format!("cannot write into {}", directory.display()));
    std::fs::create_dir_all(directory).map_err(cannot())?;
    for group in groups {
        let path = directory.join(format!("{}.svg", file_name(&group.title)));
        std::fs::write(path, plot(group)).map_err(cannot())?;
    }
    Ok(())
}

/// A title in lower case, with a dash for every run of other characters than letters and digits.
fn file_name(title: &str) -> String {
    let words = title.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join("-").to_ascii_lowercase()
}

/// The plot of a group. The longer bar of each row has the whole width: rows differ by factors of thousands, and the
/// ratio within a row is what matters.
fn plot(group: &BenchGroup) -> String {
    let rows = u32::try_from(group.rows.len()).unwrap_or(u32::MAX);
    let height = rows.saturating_mul(ROW_HEIGHT).saturating_add(HEAD_HEIGHT);
    let title = escape_html(&group.title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{PLOT_WIDTH}\" height=\"{height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"13\"><title>{title}</title>\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\
         <text x=\"12\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{title}</text>\n"
    );
    let mut top = HEAD_HEIGHT;
    for row in &group.rows {
        draw_row(&mut svg, top, row);
        top = top.saturating_add(ROW_HEIGHT);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_row(svg: &mut String, top: u32, row: &BenchRow) {
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        svg,
        "<text x=\"12\" y=\"{}\">{}</text>",
        top + 24,
        escape_html(&row.name)
    );
    let peer = row.times.peer.as_ref().map(|peer| (row.peer, peer));
    let bars = [
        (Some(("dray", &row.times.ours)), "#1f6feb"),
        (peer, "#8b949e"),
    ];
    let medians = bars.iter().filter_map(|(bar, _)| {
        let (_, times) = bar.as_ref()?;
        Some(times.as_ref().ok()?.median().as_secs_f64())
    });
    let longest = medians.fold(f64::MIN_POSITIVE, f64::max);
    for (index, (bar, colour)) in (0..).zip(bars) {
        let Some((name, times)) = bar else {
            continue;
        };
        let y = top + 4 + 22 * index;
        let (width, label) = match times {
            Ok(times) => {
                let share = times.median().as_secs_f64() / longest;
                (share * MAX_BAR_WIDTH, super::time_text(times.median()))
            }
            Err(error) => (0.0, error.clone()),
        };
        let _ = writeln!(
            svg,
            "<rect x=\"{BAR_START}\" y=\"{y}\" width=\"{width:.1}\" height=\"18\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            f64::from(BAR_START) + width + 6.0,
            y + 14,
            escape_html(&format!("{name}: {label}"))
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::pair::{PairTimes, RunTimes};
    use super::*;

    #[test]
    fn a_plot_has_a_bar_for_each_program_and_escapes_its_texts() {
        let times = |ms| RunTimes::new(vec![Duration::from_millis(ms)]).unwrap();
        let group = BenchGroup {
            title: "Copy into <docker:web>".to_owned(),
            rows: vec![BenchRow {
                name: "1 KiB".to_owned(),
                peer: "docker cp",
                times: PairTimes {
                    ours: Ok(times(10)),
                    peer: Some(Ok(times(20))),
                },
            }],
        };
        let svg = plot(&group);
        assert!(
            svg.contains("<title>Copy into &lt;docker:web&gt;</title>"),
            "{svg}"
        );
        assert!(
            svg.contains("width=\"180.0\"") && svg.contains("width=\"360.0\""),
            "{svg}"
        );
        assert!(
            svg.contains("dray: 10.0 ms") && svg.contains("docker cp: 20.0 ms"),
            "{svg}"
        );
        assert_eq!(file_name(&group.title), "copy-into-docker-web");
    }
}
