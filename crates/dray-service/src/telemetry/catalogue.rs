//! Lists the instruments of a process, for the reference page of metrics.
//!
//! An [`InstrumentCatalogue`] is a meter that measures nothing and records the instruments that are created with it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::metrics::{
    AsyncInstrumentBuilder, Counter, Gauge, Histogram, HistogramBuilder, InstrumentBuilder,
    InstrumentProvider, Meter, ObservableCounter, ObservableGauge, ObservableUpDownCounter,
    UpDownCounter,
};

/// Remembers every instrument that is created on its meter.
#[derive(Clone, Debug, Default)]
pub struct InstrumentCatalogue {
    instruments: Arc<Mutex<Vec<Instrument>>>,
}

/// One instrument of the reference page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instrument {
    /// Name as created; Prometheus shows it under the same name.
    pub name: String,
    /// `counter`, `gauge`, `up/down counter` or `histogram`.
    pub kind: &'static str,
    /// The measured quantity, with its unit and labels.
    pub description: String,
}

impl InstrumentCatalogue {
    /// Starts with an empty catalogue.
    pub fn new() -> Self {
        Self::default()
    }

    /// A meter that records each instrument that is created on it.
    pub fn meter(&self) -> Meter {
        Meter::new(Arc::new(self.clone()))
    }

    /// The instruments that were created, sorted by name, without repetitions.
    pub fn instruments(&self) -> Vec<Instrument> {
        let mut instruments = self
            .instruments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        instruments.sort();
        // Two components may create the same instrument.
        instruments.dedup();
        instruments
    }

    fn record(&self, kind: &'static str, name: &str, description: Option<&Cow<'static, str>>) {
        let description = description.map(Cow::to_string).unwrap_or_default();
        self.instruments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Instrument {
                name: name.to_string(),
                kind,
                description,
            });
    }
}

macro_rules! record_instruments {
    ($($method:ident: $builder:ty => $instrument:ty, $kind:literal;)+) => {
        impl InstrumentProvider for InstrumentCatalogue {
            $(fn $method(&self, builder: $builder) -> $instrument {
                self.record($kind, &builder.name, builder.description.as_ref());
                NoopInstruments.$method(builder)
            })+
        }
    };
}

record_instruments! {
    u64_counter: InstrumentBuilder<'_, Counter<u64>> => Counter<u64>, "counter";
    f64_counter: InstrumentBuilder<'_, Counter<f64>> => Counter<f64>, "counter";
    i64_up_down_counter: InstrumentBuilder<'_, UpDownCounter<i64>> => UpDownCounter<i64>, "up/down counter";
    f64_up_down_counter: InstrumentBuilder<'_, UpDownCounter<f64>> => UpDownCounter<f64>, "up/down counter";
    u64_gauge: InstrumentBuilder<'_, Gauge<u64>> => Gauge<u64>, "gauge";
    f64_gauge: InstrumentBuilder<'_, Gauge<f64>> => Gauge<f64>, "gauge";
    i64_gauge: InstrumentBuilder<'_, Gauge<i64>> => Gauge<i64>, "gauge";
    u64_histogram: HistogramBuilder<'_, Histogram<u64>> => Histogram<u64>, "histogram";
    f64_histogram: HistogramBuilder<'_, Histogram<f64>> => Histogram<f64>, "histogram";
    u64_observable_counter: AsyncInstrumentBuilder<'_, ObservableCounter<u64>, u64> => ObservableCounter<u64>, "counter";
    f64_observable_counter: AsyncInstrumentBuilder<'_, ObservableCounter<f64>, f64> => ObservableCounter<f64>, "counter";
    u64_observable_gauge: AsyncInstrumentBuilder<'_, ObservableGauge<u64>, u64> => ObservableGauge<u64>, "gauge";
    f64_observable_gauge: AsyncInstrumentBuilder<'_, ObservableGauge<f64>, f64> => ObservableGauge<f64>, "gauge";
    i64_observable_gauge: AsyncInstrumentBuilder<'_, ObservableGauge<i64>, i64> => ObservableGauge<i64>, "gauge";
    i64_observable_up_down_counter:
        AsyncInstrumentBuilder<'_, ObservableUpDownCounter<i64>, i64> => ObservableUpDownCounter<i64>, "up/down counter";
    f64_observable_up_down_counter:
        AsyncInstrumentBuilder<'_, ObservableUpDownCounter<f64>, f64> => ObservableUpDownCounter<f64>, "up/down counter";
}

/// Creates instruments that measure nothing: every method of the trait has a default that does nothing.
struct NoopInstruments;

impl InstrumentProvider for NoopInstruments {}

/// The name of a group of instruments, and the function that creates them.
pub type InstrumentGroup<'a> = (&'a str, fn(&Meter));

/// Writes the Markdown of `docs/metrics.md`: one table for each group, which has the instruments of one component.
pub fn metrics_reference(groups: &[InstrumentGroup<'_>]) -> String {
    let mut page = String::from(METRICS_PAGE_HEAD);
    for (name, create) in groups {
        let catalogue = InstrumentCatalogue::new();
        create(&catalogue.meter());
        let instruments = catalogue.instruments();
        if instruments.is_empty() {
            continue;
        }
        let _ = write!(
            page,
            "\n## {name}\n\n| metric | kind | meaning |\n|---|---|---|\n"
        );
        for Instrument {
            name,
            kind,
            description,
        } in instruments
        {
            let _ = writeln!(
                page,
                "| `{name}` | {kind} | {} |",
                description.replace('|', "\\|")
            );
        }
    }
    page
}

const METRICS_PAGE_HEAD: &str = "# Metrics

This page is generated (`cargo xtask generate`); the text comes from the code.

Every process serves its metrics at `/metrics` in the Prometheus text format, and sends the same ones to the OTLP
endpoint when one is configured. Labels come from closed sets; none holds a URL, an id or a message.
";
