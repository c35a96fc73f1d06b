//! Tests of comments on cells.

use super::super::super::office::tests::markdown;
use super::{XLSX, workbook};

#[test]
fn merged_areas_show_their_first_cell_and_comments_with_their_authors_follow_the_table() {
    let content = "<worksheet><sheetData><row r=\"1\"><c r=\"A1\"><v>1</v></c><c r=\"B1\"><v>2</v></c></row><row r=\"2\"><c r=\"A2\"><v>3</v></c><c r=\"B2\"><v>4</v></c></row></sheetData><mergeCells><mergeCell ref=\"A1:A2\"/></mergeCells></worksheet>";
    let bytes = workbook(
        "",
        &[("name=\"S\"", content)],
        "<sst/>",
        &[
            (
                "c.xml",
                "comments",
                "<comments><authors><author>Ada</author><author>Bob</author></authors><commentList><comment ref=\"B2\" authorId=\"1\"><text><r><t>old </t></r><r><t>note</t></r></text></comment><comment ref=\"B1\" authorId=\"0\"><text><t>Ada:\nwritten by Excel</t></text></comment><comment ref=\"A1\"><text><t>[Threaded comment]</t></text></comment></commentList></comments>",
            ),
            (
                "t.xml",
                "threadedComment",
                "<ThreadedComments><threadedComment ref=\"A1\" personId=\"{1}\" id=\"{2}\"><text>really?</text></threadedComment><threadedComment ref=\"A1\" personId=\"{3}\" id=\"{4}\" parentId=\"{2}\"><text>@Ada yes</text><mentions><mention mentionpersonId=\"{1}\" mentionId=\"{5}\" startIndex=\"0\" length=\"4\"/></mentions></threadedComment></ThreadedComments>",
            ),
            (
                "people.xml",
                "other",
                "<personList><person displayName=\"Ann\" id=\"{1}\"/></personList>",
            ),
        ],
    );
    assert_eq!(
        markdown(XLSX, &bytes),
        "## S\n\n| 1 | 2 |\n|---|---|\n|  | 4 |\n\n- A1: Ann: really?\n- A1: @Ada yes\n- B2: Bob: old note\n- B1: Ada:\n  written by Excel\n"
    );
}
