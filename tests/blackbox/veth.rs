//! The veth pair between the two namespaces, and the addresses at its far end, all of which respond.

use crate::machine;
use crate::namespace::NetworkNamespace;

/// The address of the web server that most scenarios use.
pub(crate) const PUBLIC_ADDRESS: &str = "93.184.216.34";
/// The same host over IPv6.
pub(crate) const PUBLIC_ADDRESS_6: &str = "2606:2800:220:1::1";
/// The name server that the binary is configured to use.
pub(crate) const NAME_SERVER: &str = "9.9.9.9";
/// The same name server over IPv6.
pub(crate) const NAME_SERVER_6: &str = "2620:fe::fe";
/// The name server that the system's resolver configuration names.
pub(crate) const SYSTEM_NAME_SERVER: &str = "149.112.112.112";
/// A name server inside a range that a scenario opens.
pub(crate) const INNER_NAME_SERVER: &str = "10.77.0.53";

/// Hardware address of the end in the binary's namespace.
const NEAR_DEVICE: &str = "02:00:00:00:00:01";
/// Hardware address of the end in the namespace of the scripted servers.
const FAR_DEVICE: &str = "02:00:00:00:00:02";

/// A pair of virtual Ethernet devices (veth(4)) between the two namespaces, with a far side on which every address
/// responds.
pub(crate) fn connect(near: &NetworkNamespace, far: &NetworkNamespace) {
    far.ip(&format!(
        "link add far address {FAR_DEVICE} type veth peer name near address {NEAR_DEVICE} netns {}",
        near.name()
    ));
    let settings = "for one in all default near far; do
        for what in ipv4/conf/$one/rp_filter ipv6/conf/$one/accept_dad; do
            test ! -e /proc/sys/net/$what || echo 0 > /proc/sys/net/$what; done; done";
    for side in [near, far] {
        machine::run(side.command("sh").args(["-c", settings]));
    }
    // Neighbours are configured from the start: their discovery would drop or delay the first packets.
    near.ip(&format!(
        "addr add 151.101.1.2/30 dev near
addr add 2a04:4e42:1::2/64 dev near nodad
link set near up
neigh add 151.101.1.1 lladdr {FAR_DEVICE} dev near nud permanent
neigh add 2a04:4e42:1::1 lladdr {FAR_DEVICE} dev near nud permanent
neigh add fe80::1 lladdr {FAR_DEVICE} dev near nud permanent
route add default via 151.101.1.1
route add ::/0 via 2a04:4e42:1::1
"
    ));
    far.ip(&format!(
        "addr add 151.101.1.1/30 dev far
addr add 2a04:4e42:1::1/64 dev far nodad
link set far up
neigh add 151.101.1.2 lladdr {NEAR_DEVICE} dev far nud permanent
neigh add 2a04:4e42:1::2 lladdr {NEAR_DEVICE} dev far nud permanent
neigh add fe80::ff:fe00:1 lladdr {NEAR_DEVICE} dev far nud permanent
addr add fe80::1/64 dev far nodad
addr add {NAME_SERVER}/32 dev lo
addr add {NAME_SERVER_6}/128 dev lo nodad
addr add {SYSTEM_NAME_SERVER}/32 dev lo
addr add {INNER_NAME_SERVER}/32 dev lo
route add local 0.0.0.0/0 dev lo table main
route add local ::/0 dev lo table main
"
    ));
}
