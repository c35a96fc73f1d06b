//! The state of one check: three failures in a row close it, one success opens it.

/// Consecutive failures that do not close an open gate.
const MAX_TOLERATED_FAILURES: u8 = 2;

/// State of one check. It starts closed until the first success.
#[derive(Clone, Debug)]
pub(crate) struct ReadinessGate {
    open: bool,
    failures: u8,
    reason: String,
}

impl Default for ReadinessGate {
    fn default() -> Self {
        Self {
            open: false,
            failures: 0,
            reason: "not checked yet".to_owned(),
        }
    }
}

impl ReadinessGate {
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// The reason why it is closed; `None` while it is open.
    pub(crate) fn failure(&self) -> Option<&str> {
        (!self.open).then_some(self.reason.as_str())
    }

    pub(crate) fn record(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => {
                self.open = true;
                self.failures = 0;
            }
            Err(reason) => {
                self.failures = self.failures.saturating_add(1);
                self.reason = reason;
                // `&=` and not `=`: failures alone never open it.
                self.open &= self.failures <= MAX_TOLERATED_FAILURES;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds results (`+` success, `-` failure) and writes down after each whether the gate is open (`o`) or not.
    fn check(results: &str, expected: &str) {
        let mut gate = ReadinessGate::default();
        let mut states = String::new();
        for result in results.chars() {
            gate.record(if result == '+' {
                Ok(())
            } else {
                Err("down".to_owned())
            });
            states.push(if gate.is_open() { 'o' } else { 'x' });
        }
        assert_eq!(states, expected, "{results}");
    }

    #[test]
    fn three_failures_close_and_one_success_opens() {
        check("+--+---+", "ooooooxo");
        check("+-+-+-+-", "oooooooo");
        check("---", "xxx");
        check("-+", "xo");
    }

    #[test]
    fn the_reason_is_the_last_one() {
        let mut gate = ReadinessGate::default();
        assert_eq!(gate.failure(), Some("not checked yet"));
        gate.record(Ok(()));
        assert_eq!(gate.failure(), None);
        for reason in ["a", "b", "c"] {
            gate.record(Err(reason.to_owned()));
        }
        assert_eq!(gate.failure(), Some("c"));
    }
}
