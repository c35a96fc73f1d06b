//! Platform delivery as a process of its own.

fn main() -> std::process::ExitCode {
    dray_service::main::<dray_platform_delivery::PlatformDelivery>()
}
