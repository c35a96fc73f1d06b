//! Tests with files of common libraries, in `tests/documents/corpus/office`.

use super::{DOCX, ODP, ODT, PPTX, markdown};

/// Reads one of these files.
pub(super) fn file(name: &str) -> Vec<u8> {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/documents/corpus/office/"
    );
    std::fs::read(format!("{directory}{name}")).unwrap()
}

#[test]
fn a_document_of_python_docx() {
    assert_eq!(
        markdown(DOCX, &file("harbour.docx")),
        "# Harbour report\n\n# Arrivals\n\nThree ships came in **late**, one *early*.\n\n\
         - Grain\n- Timber\n1. Weigh\n2. Store\n\n\
         | Ship | Cargo | Tons |\n|---|---|---|\n| Anna<br>Berta | Grain | 120 |\n|  | Timber | 80\\|90 |\n\n\
         Größe, naïve, 数字, عدد.\n"
    );
}

#[test]
fn a_workbook_of_openpyxl() {
    assert_eq!(
        markdown(
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            &file("budget.xlsx")
        ),
        "## Budget\n\n| Item | Share | Due | At | Sum |\n|---|---|---|---|---|\n\
         | Rope | 12.5% | 2031-03-14 | 2031-03-14 09:30:00 | 1000000000000000000000 |\n\
         | Tar | 50.0% | 2031-04-01 | 09:30:00 | =SUM(B2:B3) |\n\
         | Sail | 30.0% |  | 27:30:00 | TRUE |\n\
         |  |  |  |  |  |\n\
         | merged |  |  |  |  |\n\n- A2: Ben: Ask Ada\n\n\
         ## Notes (hidden)\n\n| far |\n|---|\n\n## Empty\n\n_(empty sheet)_\n"
    );
}

#[test]
fn a_deck_of_python_pptx() {
    assert_eq!(
        markdown(PPTX, &file("plan.pptx")),
        "## Slide 1\n\n### Plan\n\n- First\n  - Detail\n\n> Notes: Speak slowly\n\n\
         ## Slide 2\n\nabove\n\n| Port | Depth |\n|---|---|\n| North | 12 |\n\nbelow\n\n\
         |  | Ships |\n|---|---|\n| Q1 | 3 |\n| Q2 | 4.5 |\n"
    );
}

#[test]
fn documents_of_odfpy() {
    assert_eq!(
        markdown(ODT, &file("log.odt")),
        "# Log\n\nWind **north** at noon.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| c | d |\n"
    );
    assert_eq!(
        markdown(ODP, &file("deck.odp")),
        "## Slide 1\n\nfirst\n\nsecond\n"
    );
    assert_eq!(
        markdown(
            "application/vnd.oasis.opendocument.spreadsheet",
            &file("tides.ods")
        ),
        "## Tides\n\n| Hour | Level |\n|---|---|\n| 6 | 25% |\n"
    );
}

#[test]
fn a_workbook_of_xlwt() {
    assert_eq!(
        markdown("application/vnd.ms-excel", &file("old.xls")),
        "## Old\n\n| Name | Share | Day |\n|---|---|---|\n| Größe | 12.5% | 2031-03-14 |\n| =1+1 |  |  |\n\n\
         ## Gone (hidden)\n\n| TRUE |\n|---|\n"
    );
}

#[test]
fn a_book() {
    assert_eq!(
        markdown("application/epub+zip", &file("day.epub")),
        "# Dawn\n\nThe *first* light.\n\n# Noon\n\n- heat\n"
    );
}
