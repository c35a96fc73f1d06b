//! `dray chat` as people and scripts use it: real processes against an agent that misbehaves on purpose.
//! (`cfg(test)` makes Clippy see that helpers are tests too.)

#[cfg(test)]
mod agent;
#[cfg(test)]
mod embedded;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod interruption;
#[cfg(test)]
mod process;
#[cfg(test)]
mod talk;
