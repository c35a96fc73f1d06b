//! PDF files made in the tests.
