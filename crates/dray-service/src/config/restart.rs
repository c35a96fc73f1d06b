//! Settings that apply only at the next start, while a service applies changes of the others.

/// A restart setting: a field of a section that applies only at the next start. [`restart_settings!`](crate::restart_settings) makes
/// the list of a section.
#[derive(Debug)]
pub struct RestartSetting<S> {
    /// Name of the field.
    pub name: &'static str,
    /// Puts the value of the first section into the second one. Returns whether the values differed.
    pub keep: fn(&S, &mut S) -> bool,
}

/// Lists fields of a section that apply only at the next start: `restart_settings![Config: tenant, proxy.listen]`. The
/// list is what [`Section::restart_settings`](crate::config::Section::restart_settings) returns.
#[macro_export]
macro_rules! restart_settings {
    ($section:ty: $($field:ident $(.$inner:ident)*),+ $(,)?) => {
        &[$($crate::config::RestartSetting::<$section> {
            name: concat!(stringify!($field) $(, ".", stringify!($inner))*),
            keep: |started, later| {
                let differs = started.$field$(.$inner)* != later.$field$(.$inner)*;
                later.$field$(.$inner)*.clone_from(&started.$field$(.$inner)*);
                differs
            },
        }),+]
    };
}
