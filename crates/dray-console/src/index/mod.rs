//! The newest events of the tenant, in memory and bounded. The live page, the timelines and the charts read them.
//!
//! The index is rebuilt from the streams after every start. It counts the removed rows, so that a page can show how
//! many are missing.

mod filter;
mod minutes;
mod policy;
mod read;
mod reader;
mod row;
mod sequences;
mod turns;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

pub(crate) use filter::{EVENT_SERVICES, RowFilter};
pub(crate) use minutes::{MINUTES_SHOWN, MinuteCounts};
pub(crate) use reader::follow_events;
pub(crate) use row::{EventRow, EventSource, RowOutcome};

use minutes::MinuteSeries;
use sequences::MinuteSequences;

/// The index of one console.
#[derive(Debug)]
pub(crate) struct EventIndex {
    content: Mutex<IndexContent>,
    /// Id of the newest row; readers wait for its change.
    newest: watch::Sender<u64>,
    max_rows: usize,
}

#[derive(Debug, Default)]
struct IndexContent {
    /// The rows that are kept, oldest first.
    rows: VecDeque<Arc<EventRow>>,
    /// Ids are assigned in order and never reused, so the difference of two ids is a number of rows.
    next_id: u64,
    minutes: MinuteSeries,
    audit: MinuteSequences,
    /// Keys of the turns and calls without an end, with the ids of the rows of their start events.
    open_spans: HashMap<String, u64>,
}

impl IndexContent {
    fn remove_oldest(&mut self) {
        let Some(oldest) = self.rows.pop_front() else {
            return;
        };
        let key = oldest.span.as_ref().map(|span| &span.key);
        if let Some(key) = key.filter(|key| self.open_spans.get(*key) == Some(&oldest.id)) {
            self.open_spans.remove(key);
        }
    }

    /// Ties the end of a turn or a call to the row of its start event. That row is open until the end event comes.
    fn pair_span(&mut self, row: &mut EventRow) {
        let Some(span) = &mut row.span else { return };
        span.is_open = !span.is_end;
        let begin = if span.is_end {
            self.open_spans.remove(&span.key)
        } else {
            // A stream that lost messages is read again: the newer row of the same start event takes the place of the
            // older one.
            self.open_spans.insert(span.key.clone(), row.id)
        };
        let (Some(begin), Some(oldest)) = (begin, self.rows.front()) else {
            return;
        };
        // Ids have no gaps inside the index.
        let position = usize::try_from(begin.saturating_sub(oldest.id)).unwrap_or(usize::MAX);
        let begin = self.rows.get_mut(position).map(Arc::make_mut);
        if let Some(span) = begin.and_then(|begin| begin.span.as_mut()) {
            span.is_open = false;
        }
    }
}

/// Rows of the index and how many are missing before them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct IndexSlice {
    /// The selected rows, oldest first unless the method says otherwise.
    pub(crate) rows: Vec<Arc<EventRow>>,
    /// Rows before these that left the index before they were read, including rows that the filter would reject.
    pub(crate) left_out: u64,
    /// Id of the last row that was examined, even where the filter rejected it.
    pub(crate) read_to: u64,
    /// Keys of turns and calls whose beginning the filter selects, and whose end is an examined row that it rejected.
    pub(crate) ended: Vec<String>,
}

impl EventIndex {
    pub(crate) fn new(max_rows: usize) -> Self {
        Self {
            content: Mutex::default(),
            newest: watch::Sender::new(0),
            // With a limit of zero, no event would ever be shown.
            max_rows: max_rows.max(1),
        }
    }

    /// Adds a row, and removes the oldest one when the index is full.
    pub(crate) fn add(&self, mut row: EventRow) {
        let mut content = self.lock();
        // Ids begin with 1, because 0 stands for "no row yet" in the requests of live pages.
        content.next_id += 1;
        row.id = content.next_id;
        content.minutes.count(&row);
        if content.rows.len() >= self.max_rows {
            content.remove_oldest();
        }
        content.pair_span(&mut row);
        let id = row.id;
        content.rows.push_back(Arc::new(row));
        // The readers are notified after the lock is released, because each woken reader takes the lock.
        drop(content);
        self.newest.send_replace(id);
    }

    /// Notes the place of an audit event in its stream.
    pub(crate) fn note_audit(&self, time_ms: u64, sequence: u64) {
        self.lock().audit.note(time_ms, sequence);
    }

    /// The latest known sequence of the audit stream from which all events since this time can be read.
    pub(crate) fn audit_start(&self, since_ms: u64) -> u64 {
        self.lock().audit.start_of(since_ms)
    }

    /// Up to `limit` rows behind the row `after` that the filter admits, oldest first.
    pub(crate) fn after(&self, after: u64, filter: &RowFilter, limit: usize) -> IndexSlice {
        let content = self.lock();
        let oldest = content
            .rows
            .front()
            .map_or(content.next_id + 1, |row| row.id);
        let mut slice = IndexSlice {
            left_out: oldest.saturating_sub(after + 1),
            read_to: after.max(oldest.saturating_sub(1)),
            ..IndexSlice::default()
        };
        // Ids have no gaps inside the index, so the position of the first unread row follows from its id.
        let skip = usize::try_from(slice.read_to + 1 - oldest).unwrap_or(usize::MAX);
        for row in content.rows.iter().skip(skip) {
            if slice.rows.len() == limit || slice.ended.len() == limit {
                break;
            }
            // The position is set for rows that the filter rejects too; otherwise the next read would examine them
            // again.
            slice.read_to = row.id;
            if filter.admits(row) {
                slice.rows.push(Arc::clone(row));
            } else if let Some(key) = row.ended_key().filter(|_| filter.admits_beginning_of(row)) {
                slice.ended.push(key.to_owned());
            }
        }
        slice
    }

    /// The newest rows that the filter admits, newest first.
    pub(crate) fn newest(&self, filter: &RowFilter, limit: usize) -> IndexSlice {
        self.newest_before(u64::MAX, limit, |row| filter.admits(row))
    }

    /// The newest rows before a row that are selected, newest first.
    pub(crate) fn newest_before(
        &self,
        before: u64,
        limit: usize,
        is_selected: impl Fn(&EventRow) -> bool,
    ) -> IndexSlice {
        let content = self.lock();
        let rows = content.rows.iter().rev();
        let rows = rows.filter(|row| row.id < before && is_selected(row));
        IndexSlice {
            rows: rows.take(limit).map(Arc::clone).collect(),
            left_out: content.rows.front().map_or(0, |row| row.id - 1),
            read_to: content.next_id,
            ended: Vec::new(),
        }
    }

    /// All rows of an operation and of the traces that it is part of, in the order of their times.
    pub(crate) fn of_operation(&self, operation: &str) -> IndexSlice {
        let content = self.lock();
        let own = |row: &&Arc<EventRow>| row.operation == operation;
        // A fetch for a delivery has its own operation; both share only the trace.
        let traces: Vec<&str> = content
            .rows
            .iter()
            .filter(own)
            .map(|row| row.trace.as_str())
            .filter(|trace| !trace.is_empty())
            .collect();
        let mut rows: Vec<_> = content
            .rows
            .iter()
            .filter(|row| row.operation == operation || traces.contains(&row.trace.as_str()))
            .map(Arc::clone)
            .collect();
        // The two streams are read by two tasks, so the order of the index is not that of the events.
        rows.sort_by_key(|row| (row.time_ms, row.id));
        IndexSlice {
            rows,
            left_out: content.rows.front().map_or(0, |row| row.id - 1),
            read_to: content.next_id,
            ended: Vec::new(),
        }
    }

    /// Counts of the last hour, oldest minute first.
    pub(crate) fn last_hour(&self, now_ms: u64) -> Vec<MinuteCounts> {
        self.lock().minutes.last_hour(now_ms)
    }

    /// Changes with every new row.
    pub(crate) fn watch_newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, IndexContent> {
        // No method panics between two changes that belong together, so a poisoned content is still consistent.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::row::SpanFacts;
    use super::*;

    pub(super) fn row(operation: &str, time_ms: u64) -> EventRow {
        EventRow {
            operation: operation.to_owned(),
            time_ms,
            ..EventRow::default()
        }
    }

    fn ids(slice: &IndexSlice) -> Vec<u64> {
        slice.rows.iter().map(|row| row.id).collect()
    }

    #[test]
    fn the_index_is_limited_and_counts_removed_rows() {
        let index = EventIndex::new(3);
        for time_ms in 1..=5 {
            index.add(row("o", time_ms));
        }
        let all = RowFilter::default();
        let slice = index.after(0, &all, 10);
        assert_eq!(
            (ids(&slice), slice.left_out, slice.read_to),
            (vec![3, 4, 5], 2, 5)
        );
        let slice = index.after(4, &all, 10);
        assert_eq!((ids(&slice), slice.left_out), (vec![5], 0));
        let slice = index.after(5, &all, 10);
        assert_eq!((ids(&slice), slice.left_out, slice.read_to), (vec![], 0, 5));
        assert_eq!(ids(&index.newest(&all, 2)), [5, 4]);
    }

    #[test]
    fn a_reader_that_continues_after_its_last_row_gets_each_row_once() {
        let index = EventIndex::new(100);
        let all = RowFilter::default();
        let (mut read_ids, mut after) = (Vec::new(), 0);
        for time_ms in 1..=50 {
            index.add(row("o", time_ms));
            if time_ms % 7 == 0 {
                let slice = index.after(after, &all, 3);
                read_ids.extend(ids(&slice));
                after = slice.read_to;
            }
        }
        loop {
            let slice = index.after(after, &all, 3);
            if slice.rows.is_empty() {
                break;
            }
            read_ids.extend(ids(&slice));
            after = slice.read_to;
        }
        assert_eq!(read_ids, (1..=50).collect::<Vec<_>>());
    }

    #[test]
    fn a_read_advances_over_rows_that_the_filter_rejects() {
        let index = EventIndex::new(100);
        for time_ms in 1..=50 {
            let operation = if time_ms == 50 { "selected" } else { "o" };
            index.add(row(operation, time_ms));
        }
        let filter = RowFilter {
            operation: "selected".to_owned(),
            ..RowFilter::default()
        };
        let slice = index.after(0, &filter, 10);
        assert_eq!((ids(&slice), slice.read_to), (vec![50], 50));
    }

    fn span_row(key: &str, is_end: bool) -> EventRow {
        let outcome = if is_end {
            RowOutcome::Done
        } else {
            RowOutcome::Working
        };
        let span = SpanFacts {
            key: key.to_owned(),
            is_end,
            is_open: false,
        };
        EventRow {
            span: Some(span),
            outcome,
            ..row(key, 1)
        }
    }

    #[test]
    fn an_end_that_a_filter_rejects_is_reported_if_it_selects_the_begin() {
        let index = EventIndex::new(10);
        let working = |session: &str| RowFilter {
            outcome: Some(RowOutcome::Working),
            session: session.to_owned(),
            ..RowFilter::default()
        };
        index.add(span_row("a", false));
        index.add(span_row("a/1", false));
        index.add(span_row("a/1", true));
        let slice = index.after(0, &working(""), 10);
        assert_eq!(
            (ids(&slice), slice.ended),
            (vec![1, 2], vec!["a/1".to_owned()])
        );
        index.add(span_row("a", true));
        let slice = index.after(3, &working(""), 10);
        assert_eq!((ids(&slice), slice.read_to), (vec![], 4));
        assert_eq!(slice.ended, ["a"]);
        // A page of another session has no row of a beginning, and a page without a filter gets the row of the end.
        assert_eq!(index.after(3, &working("s"), 10).ended, [""; 0]);
        let slice = index.after(3, &RowFilter::default(), 10);
        assert_eq!((ids(&slice), slice.ended), (vec![4], Vec::new()));
    }

    #[test]
    fn a_read_reports_a_limited_number_of_ends_at_a_time() {
        let index = EventIndex::new(100);
        for number in 0..25 {
            index.add(span_row(&number.to_string(), true));
        }
        let working = RowFilter {
            outcome: Some(RowOutcome::Working),
            ..RowFilter::default()
        };
        let (mut after, mut ended) = (0, Vec::new());
        while after < 25 {
            let slice = index.after(after, &working, 10);
            assert!(slice.ended.len() <= 10, "{slice:?}");
            after = slice.read_to;
            ended.extend(slice.ended);
        }
        assert_eq!(ended.len(), 25);
    }

    #[test]
    fn a_begin_is_open_until_its_end_comes() {
        let index = EventIndex::new(4);
        let open = || {
            let slice = index.newest(&RowFilter::default(), 10);
            let open = slice.rows.iter().filter(|row| row.open_key().is_some());
            open.map(|row| row.operation.clone()).collect::<Vec<_>>()
        };
        index.add(span_row("a", false));
        index.add(span_row("b", false));
        assert_eq!(open(), ["b", "a"]);
        index.add(span_row("a", true));
        assert_eq!(open(), ["b"]);
        // The beginning of `b` leaves the index before its end comes, and does not count as known any more.
        for _ in 0..3 {
            index.add(row("o", 2));
        }
        index.add(span_row("b", true));
        assert_eq!(open(), Vec::<String>::new());
        assert!(index.lock().open_spans.is_empty());
        // A stream that is read again from its beginning has each event again.
        index.add(span_row("c", false));
        index.add(span_row("c", false));
        assert_eq!(open(), ["c"]);
        index.add(span_row("c", true));
        assert_eq!(open(), Vec::<String>::new());
    }

    #[test]
    fn an_operation_has_the_rows_of_its_traces_by_time() {
        let index = EventIndex::new(100);
        let traced = |operation: &str, time_ms, trace: &str| EventRow {
            trace: trace.to_owned(),
            ..row(operation, time_ms)
        };
        index.add(traced("fetch", 30, "t1"));
        index.add(traced("send", 10, "t1"));
        index.add(traced("other", 20, "t2"));
        index.add(row("untraced", 5));
        let operations = |operation: &str| {
            let slice = index.of_operation(operation);
            let rows = slice.rows.iter();
            rows.map(|row| row.operation.clone()).collect::<Vec<_>>()
        };
        assert_eq!(operations("fetch"), ["send", "fetch"]);
        assert_eq!(operations("untraced"), ["untraced"]);
        assert_eq!(operations("absent"), Vec::<String>::new());
    }
}
