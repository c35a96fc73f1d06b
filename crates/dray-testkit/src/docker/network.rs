//! The network of an engine that has one: a namespace for the engine with its bridges, and a second one behind the
//! default route that simulates the outside network. Both are removed when the engine ends. Neither is connected to the
//! network of the machine that runs the tests.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A public address in the namespace behind the default route. Servers of a test listen there.
pub const OUTSIDE_ADDRESS: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

/// Creates both namespaces. Arguments: name of the engine's namespace, address outside. Responses reach a bridge only
/// through masquerading, because the outside namespace has no route to private addresses.
pub(super) const CREATE_NAMESPACES: &str = r#"
create_namespaces() {
  for name in "$1" "$1-outside"; do
    ip netns add "$name" && ip -netns "$name" link set lo up || return 1
  done
  ip -netns "$1" -batch - <<LINES && ip -netns "$1-outside" -batch - <<MORE
link add outside type veth peer name engine netns $1-outside
address add 198.18.0.1/30 dev outside
link set outside up
route add default via 198.18.0.2
LINES
address add 198.18.0.2/30 dev engine
link set engine up
address add $2/32 dev lo
MORE
}
"#;

/// The two namespaces of one engine.
#[derive(Debug)]
pub struct Network {
    namespace: String,
}

impl Network {
    /// A name that no other engine of this machine has. The supervisor of the engine makes the namespaces.
    pub(super) fn unique() -> Self {
        // Engines of one process need different names; the process id makes them differ between processes.
        static NETWORK_COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = NETWORK_COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            namespace: format!("dray-engine-{}-{number}", std::process::id()),
        }
    }

    /// The name of the engine's namespace, for `ip netns`.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A program on the engine's machine: it reaches published ports on loopback.
    pub fn machine_command(&self, program: &str) -> Command {
        enter_namespace(&format!("/run/netns/{}", self.namespace), program)
    }

    /// A program in the outside network, where [`OUTSIDE_ADDRESS`] is.
    pub fn outside_command(&self, program: &str) -> Command {
        enter_namespace(&format!("/run/netns/{}-outside", self.namespace), program)
    }
}

/// A program of this machine in the network of another process, for instance of a container.
pub fn command_in_network_of(process_id: u64, program: &str) -> Command {
    enter_namespace(&format!("/proc/{process_id}/ns/net"), program)
}

fn enter_namespace(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={namespace}")).arg(program);
    command
}
