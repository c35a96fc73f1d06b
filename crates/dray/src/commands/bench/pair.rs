//! Times of two programs that do the same task, in turn.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longest time of one run.
const RUN_TIMEOUT: Duration = Duration::from_mins(10);
/// Most characters of an error of a program that are shown.
const MAX_ERROR_CHARACTERS: usize = 200;

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProgramCall {
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
}

/// The calls of a task, one for each run: a copy needs another name each time.
pub(super) type CallsOfRuns = Box<dyn Fn(u32) -> ProgramCall>;

/// The times of the counted runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunTimes {
    /// Sorted, at least one.
    sorted: Vec<Duration>,
}

/// The times of both programs, or why there are none.
#[derive(Debug)]
pub(super) struct PairTimes {
    pub(super) ours: Result<RunTimes, String>,
    /// `None` where no other program does this task.
    pub(super) peer: Option<Result<RunTimes, String>>,
}

impl RunTimes {
    pub(super) fn new(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        (!times.is_empty()).then_some(Self { sorted: times })
    }

    /// The middle time; for an even number of runs, the longer of the two in the middle.
    pub(super) fn median(&self) -> Duration {
        let middle = self.sorted.get(self.sorted.len() / 2);
        middle.copied().unwrap_or_default()
    }

    pub(super) fn to_json(&self) -> Value {
        let bound = |time: Option<&Duration>| time.copied().map(millis);
        json!({
            "median": millis(self.median()),
            "min": bound(self.sorted.first()),
            "max": bound(self.sorted.last()),
        })
    }
}

impl PairTimes {
    /// No times, because this program cannot do the task.
    pub(super) const fn failed(reason: String) -> Self {
        Self {
            ours: Err(reason),
            peer: None,
        }
    }

    /// Median of our program divided by that of the peer; `None` if one of them is missing.
    pub(super) fn ratio(&self) -> Option<f64> {
        let ours = self.ours.as_ref().ok()?.median();
        let peer = self.peer.as_ref()?.as_ref().ok()?.median();
        // A peer that takes no time at all would divide by zero.
        (peer > Duration::ZERO).then(|| ours.as_secs_f64() / peer.as_secs_f64())
    }
}

/// Milliseconds with three digits after the point.
pub(super) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

/// Runs both programs `runs` times and once more before that. The first failure of a program ends its runs.
pub(super) async fn time_pair(
    runs: u32,
    ours: &CallsOfRuns,
    peer: Option<&CallsOfRuns>,
) -> PairTimes {
    let (mut our_times, mut peer_times) = (Ok(Vec::new()), Ok(Vec::new()));
    for run in 0..=runs {
        // The order changes, so that neither always profits from the caches that the other has filled.
        if run % 2 == 0 {
            add_run(&mut our_times, ours, run).await;
        }
        if let Some(peer) = peer {
            add_run(&mut peer_times, peer, run).await;
        }
        if run % 2 == 1 {
            add_run(&mut our_times, ours, run).await;
        }
    }
    let counted = |times: Result<Vec<Duration>, String>| {
        let times = RunTimes::new(times?);
        times.ok_or_else(|| "no run was counted".to_owned())
    };
    PairTimes {
        ours: counted(our_times),
        peer: peer.map(|_| counted(peer_times)),
    }
}

async fn add_run(times: &mut Result<Vec<Duration>, String>, calls: &CallsOfRuns, run: u32) {
    let Ok(known) = times else {
        return;
    };
    match time_call(&calls(run)).await {
        // The first run fills caches.
        Ok(_) if run == 0 => {}
        Ok(time) => known.push(time),
        Err(error) => *times = Err(error),
    }
}

/// The time of a program from its start to its end.
pub(super) async fn time_call(call: &ProgramCall) -> Result<Duration, String> {
    let started = Instant::now();
    run_call(call).await?;
    Ok(started.elapsed())
}

/// Whether a program prints anything but blanks.
///
/// # Errors
/// It fails, or prints nothing.
pub(super) async fn check_output(call: &ProgramCall) -> Result<(), String> {
    let output = run_call(call).await?;
    if output.trim_ascii().is_empty() {
        return Err("dray found no text in it".to_owned());
    }
    Ok(())
}

/// Runs a program to its end, and returns what it printed.
async fn run_call(call: &ProgramCall) -> Result<Vec<u8>, String> {
    let name = call.program.to_string_lossy().into_owned();
    let output = tokio::process::Command::new(&call.program)
        .args(&call.arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(RUN_TIMEOUT, output).await {
        Err(_) => Err(format!(
            "{name} did not end within {} s",
            RUN_TIMEOUT.as_secs()
        )),
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
            Err(format!("{name} is not installed"))
        }
        Ok(Err(error)) => Err(format!("{name} could not be started: {error}")),
        Ok(Ok(output)) if output.status.success() => Ok(output.stdout),
        Ok(Ok(output)) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().find(|line| !line.trim().is_empty());
            let line = line.unwrap_or("it printed no error");
            let line: String = line.chars().take(MAX_ERROR_CHARACTERS).collect();
            Err(format!("{name} failed: {line}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &'static str) -> CallsOfRuns {
        Box::new(move |run| ProgramCall {
            program: "sh".into(),
            arguments: vec![
                "-c".into(),
                script.into(),
                "sh".into(),
                run.to_string().into(),
            ],
        })
    }

    #[tokio::test]
    async fn each_run_counts_but_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("runs");
        let path = log.clone();
        let ours: CallsOfRuns = Box::new(move |run| ProgramCall {
            program: "sh".into(),
            arguments: vec![
                "-c".into(),
                format!("echo {run} >> {}", path.display()).into(),
            ],
        });
        let pair = time_pair(3, &ours, Some(&shell("exit 0"))).await;
        assert_eq!(std::fs::read_to_string(log).unwrap(), "0\n1\n2\n3\n");
        assert_eq!(pair.ours.as_ref().unwrap().sorted.len(), 3);
        assert!(pair.ratio().unwrap() > 0.0);
    }

    #[tokio::test]
    async fn a_failure_ends_the_runs_of_its_program_alone_and_names_the_reason() {
        let missing: CallsOfRuns = Box::new(|_| ProgramCall {
            program: "no-such-program".into(),
            arguments: Vec::new(),
        });
        let pair = time_pair(2, &shell("echo; echo why >&2; exit 3"), Some(&missing)).await;
        assert_eq!(pair.ours.as_ref().unwrap_err(), "sh failed: why");
        let peer = pair.peer.as_ref().unwrap().as_ref();
        assert_eq!(peer.unwrap_err(), "no-such-program is not installed");
        assert_eq!(pair.ratio(), None);
    }

    #[tokio::test]
    async fn a_program_without_output_did_not_do_its_task() {
        let check = async |script| check_output(&shell(script)(0)).await;
        assert_eq!(check("echo text").await, Ok(()));
        let silent = check("echo; echo warning >&2").await;
        assert_eq!(silent.unwrap_err(), "dray found no text in it");
        assert_eq!(
            check("exit 2").await.unwrap_err(),
            "sh failed: it printed no error"
        );
    }

    #[test]
    fn the_median_is_the_middle_of_the_sorted_times() {
        let times = [5, 1, 3].map(Duration::from_millis).to_vec();
        let times = RunTimes::new(times).unwrap();
        assert_eq!(times.median(), Duration::from_millis(3));
        assert_eq!(
            times.to_json(),
            json!({"median": 3.0, "min": 1.0, "max": 5.0})
        );
        assert_eq!(RunTimes::new(Vec::new()), None);
    }
}
