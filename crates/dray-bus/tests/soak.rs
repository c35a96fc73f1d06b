//! Long-running checks of the bus.
