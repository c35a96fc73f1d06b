//! The test commands: prepare the machine, build everything once, run.
//!
//! The summary of the test runner comes last, so that the end of the log shows the result.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::metadata::CargoMetadata;
use crate::{disk, generate, kubectl, python, required_programs, step, tidy};

/// Seed of property tests in every run, so that a commit has the same result on every machine. `cargo test` and `cargo
/// xtask fuzz` search for new cases.
pub(crate) const PROPERTY_SEED: u64 = 20_260_601;

/// Variables that tests read, name and value.
type Variables = Vec<(String, String)>;

/// Installs missing programs and packages, and returns the environment variables for tests.
pub(crate) fn prepare_environment(root: &Path) -> anyhow::Result<Variables> {
    required_programs::ensure_programs(required_programs::TEST_PROGRAMS)?;
    downloaded_programs(root)
}

/// Downloads the programs of the tests that no package of the machine has, and returns the variable with the path of
/// the Python environment.
fn downloaded_programs(root: &Path) -> anyhow::Result<Variables> {
    kubectl::ensure_kubectl(root)?;
    let python = python::ensure_environment(root)?;
    Ok(vec![(
        "DRAY_TEST_PYTHON".to_owned(),
        python.display().to_string(),
    )])
}

/// Runs the source rules and the checks of generated files, then documentation examples and all tests concurrently. A
/// failure of one does not prevent the others.
pub(crate) fn run_tests(root: &Path, seed: u64, filter: &[String]) -> anyhow::Result<()> {
    disk::check_space(root)?;
    required_programs::ensure_programs(required_programs::TEST_PROGRAMS)?;
    // Packages are downloaded while the compiler uses the processors.
    std::thread::scope(|scope| {
        let environment = scope.spawn(|| downloaded_programs(root));
        check_and_run(root, seed, filter, || {
            environment.join().unwrap_or_else(|panic| {
                std::panic::resume_unwind(panic);
            })
        })
    })
}

/// Checks, builds, and runs the tests with the variables that `environment` returns.
fn check_and_run(
    root: &Path,
    seed: u64,
    filter: &[String],
    environment: impl FnOnce() -> anyhow::Result<Variables>,
) -> anyhow::Result<()> {
    let mut failures = Vec::new();
    let mut record = |check: &str, result: anyhow::Result<()>| {
        if let Err(error) = result {
            eprintln!("{check}: {error:#}");
            failures.push(format!("{check}: {error:#}"));
        }
    };
    if filter.is_empty() {
        record("generated files", generate::generate_contracts(root, true));
        record("source rules", tidy::run_tidy(root));
    }
    // Binaries and tests are built together, because system tests start the binary in the same directory.
    step::cargo_step(root)
        .args(["build", "--workspace", "--bins", "--tests"])
        .run()?;
    let binary = root.join("target/debug/dray");
    if filter.is_empty() {
        record(
            "reference pages",
            generate::generate_pages(root, true, &binary),
        );
    }
    let mut variables = environment()?;
    variables.push(binary_variable(&binary));
    variables.push(("PROPTEST_RNG_SEED".to_owned(), seed.to_string()));
    // The compiler of the examples uses the processors while the first tests wait for servers and leases.
    let (examples, tests) = std::thread::scope(|scope| {
        let examples = filter
            .is_empty()
            .then(|| scope.spawn(|| run_examples(root)));
        let tests = run_all(root, &variables, filter);
        let examples = examples.map(std::thread::ScopedJoinHandle::join);
        let examples = examples.unwrap_or(Ok(Ok(())));
        (
            examples.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            tests,
        )
    });
    record("documentation examples", examples);
    record("tests", tests);
    if !failures.is_empty() {
        bail!("not everything passed:\n{}", failures.join("\n"));
    }
    Ok(())
}

/// Compiles and runs the examples in the documentation: `cargo nextest` runs none.
fn run_examples(root: &Path) -> anyhow::Result<()> {
    step::cargo_step(root)
        .args(["test", "--quiet", "--workspace", "--doc"])
        .run()
}

/// Uses `cargo nextest` if it is installed: it runs tests of all crates concurrently and ends tests that hang.
fn run_all(root: &Path, variables: &Variables, filter: &[String]) -> anyhow::Result<()> {
    let nextest = step::cargo_step(root)
        .args(["nextest", "--version"])
        .succeeds();
    let runner = if nextest {
        step::cargo_step(root)
            .args(["nextest", "run", "--workspace", "--bins", "--tests"])
            .args(["--test-threads", &test_threads().to_string()])
    } else {
        step::cargo_step(root).args([
            "test",
            "--workspace",
            // All failures of one run are reported together.
            "--no-fail-fast",
            "--bins",
            "--tests",
            "--",
        ])
    };
    runner.args(filter).envs(variables).run()
}

/// Number of concurrent tests: two per processor, because most of them wait for their own server or process.
fn test_threads() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get) * 2
}

/// The fault tests that need minutes, of `program` or else of the debug build.
pub(crate) fn run_soak(
    root: &Path,
    rounds: Option<u64>,
    seed: Option<u64>,
    program: Option<&Path>,
    filter: &[String],
) -> anyhow::Result<()> {
    let program = program.map(absolute_program).transpose()?;
    let mut variables = prepare_environment(root)?;
    for (name, number) in [("DRAY_SOAK_ROUNDS", rounds), ("DRAY_SOAK_SEED", seed)] {
        // Variables, because arguments after `--` are names of tests.
        variables.extend(number.map(|number| (name.to_owned(), number.to_string())));
    }
    let binary = if let Some(program) = program {
        program
    } else {
        step::cargo_step(root)
            .args(["build", "--package", "dray"])
            .run()?;
        root.join("target/debug/dray")
    };
    run_serially(root, "soak", &binary, &variables, filter)
}

/// The path of a program for tests, which run in another directory than this command.
fn absolute_program(program: &Path) -> anyhow::Result<PathBuf> {
    let path = program.canonicalize();
    let path = path.with_context(|| format!("cannot test {}", program.display()))?;
    if !path.is_file() {
        bail!("cannot test {}: it is not a file", program.display());
    }
    Ok(path)
}

/// The black-box suite of the release binary.
pub(crate) fn run_blackbox(root: &Path, filter: &[String]) -> anyhow::Result<()> {
    required_programs::ensure_programs(required_programs::BLACKBOX_PROGRAMS)?;
    let variables = prepare_environment(root)?;
    step::cargo_step(root)
        .args(["build", "--release", "--package", "dray"])
        .run()?;
    let binary = root.join("target/release/dray");
    run_serially(root, "blackbox", &binary, &variables, filter)
}

/// Runs every test binary of this name, which is behind a feature of the same name, one test at a time. The filter is a list
/// of parts of names.
///
/// # Errors
/// A test failed, or no test has a name that the filter selects.
fn run_serially(
    root: &Path,
    name: &str,
    binary: &Path,
    variables: &Variables,
    filter: &[String],
) -> anyhow::Result<()> {
    let packages = CargoMetadata::read(root)?.with_test(name);
    if packages.is_empty() {
        bail!("no package has a test binary called `{name}`");
    }
    let mut failures = Vec::new();
    let mut is_any_selected = false;
    for package in packages {
        let tests = |arguments: &[&str]| {
            step::cargo_step(root)
                .args(["test", "--package", &package, "--test", name])
                .args(["--features", name, "--"])
                .args(arguments)
                .args(filter)
                .envs(variables)
                .envs(&[binary_variable(binary)])
        };
        let listed = tests(&["--list"]).output()?;
        if test_names(&listed).is_empty() {
            continue;
        }
        is_any_selected = true;
        // One at a time, because these tests kill and pause processes, change clocks, or count packets of the complete
        // machine.
        let tested = tests(&["--test-threads", "1"]).run();
        // The tests of the other packages take long, and say more together than one after another.
        if let Err(error) = tested {
            failures.push(format!("{package}: {error:#}"));
        }
    }
    if !is_any_selected {
        bail!(
            "no test of `{name}` has `{}` in its name",
            filter.join("` or `")
        );
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

/// Names of the tests in the output of `--list`.
fn test_names(listed: &str) -> Vec<&str> {
    listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .collect()
}

/// The path at which tests find the program under test.
fn binary_variable(binary: &Path) -> (String, String) {
    ("DRAY_BINARY".to_owned(), binary.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_selects_no_test_is_seen_in_the_list() {
        let listed = "kills::of_services: test\ntimes: benchmark\n\n1 test, 1 benchmark\n";
        assert_eq!(test_names(listed), ["kills::of_services"]);
        assert!(test_names("0 tests, 0 benchmarks\n").is_empty());
    }

    #[test]
    fn a_program_to_test_is_a_file_and_found_from_every_directory() {
        let path = absolute_program(Path::new("src/suite.rs")).unwrap();
        assert!(path.is_absolute() && path.ends_with("xtask/src/suite.rs"));
        let error = |path: &str| format!("{:#}", absolute_program(Path::new(path)).unwrap_err());
        assert_eq!(error("src"), "cannot test src: it is not a file");
        assert!(error("missing").starts_with("cannot test missing: "));
    }
}
