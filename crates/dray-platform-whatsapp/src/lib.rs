//! dray-platform-whatsapp.
