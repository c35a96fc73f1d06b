//! The surface in force. A request takes it once, and ends with the settings with which it began.

use std::sync::Arc;

use axum::extract::FromRef;
use dray_service::ReplaceableValue;

use super::routes::{HttpSurface, SurfaceParts};

/// The surface of requests that begin now. Clones share it.
#[derive(Clone, Debug)]
pub struct CurrentSurface(ReplaceableValue<HttpSurface>);

impl CurrentSurface {
    /// Starts with this surface.
    pub fn new(surface: HttpSurface) -> Self {
        Self(ReplaceableValue::new(surface))
    }

    /// The surface in force now.
    pub fn get(&self) -> Arc<HttpSurface> {
        self.0.get()
    }

    /// Puts other settings in force for later requests.
    pub fn change(&self, parts: SurfaceParts) {
        self.0.replace(self.get().changed(parts));
    }
}

impl FromRef<CurrentSurface> for Arc<HttpSurface> {
    fn from_ref(current: &CurrentSurface) -> Self {
        current.get()
    }
}
