//! The network of a container: loopback alone, and rules that bring every outbound connection to the engine.
//!
//! Invariant: nothing leaves. There is no device but `lo`; the default route leads back over it; TCP to any other
//! address is redirected to the relay, DNS to the responder, and the rest is rejected at once. Both sockets are
//! made here and handed to the engine, which serves them from outside.

use super::protocol::{CONTAINER_ADDRESS, RELAY_PORT, RedirectTool};
use crate::sys;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Command, Stdio};

/// Connections that wait for the relay to accept them.
const BACKLOG: i32 = 1024;

/// What the engine serves for this container.
pub struct Listeners {
    /// Every redirected TCP connection.
    pub relay: OwnedFd,
    /// Every DNS datagram.
    pub responder: OwnedFd,
}

/// Brings the network up. The caller is root of the user namespace that owns this network namespace.
pub fn set_up(redirect: Option<&RedirectTool>) -> io::Result<Listeners> {
    let control = socket(SocketType::DGRAM)?;
    sys::set_interface_up(&control, "lo")?;
    sys::set_interface_address(&control, "lo:0", CONTAINER_ADDRESS)?;
    sys::add_default_route(&control, c"lo")?;
    // Exactly where a redirect leads: an answer from any other address would not be taken for one.
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, RELAY_PORT);
    let relay = socket(SocketType::STREAM)?;
    rustix::net::bind(&relay, &address)?;
    rustix::net::listen(&relay, BACKLOG)?;
    let responder = socket(SocketType::DGRAM)?;
    rustix::net::bind(&responder, &address)?;
    if let Some(tool) = redirect {
        install(tool)?;
    }
    Ok(Listeners { relay, responder })
}

fn socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::INET, kind, flags, None)?)
}

fn install(tool: &RedirectTool) -> io::Result<()> {
    let (mut command, rules) = match tool {
        RedirectTool::Nft(path) => {
            let mut command = Command::new(path);
            command.args(["-f", "-"]);
            (command, nft_rules())
        }
        RedirectTool::IptablesRestore(path) => {
            let mut command = Command::new(path);
            // The lock's usual place belongs to the host.
            command.env("XTABLES_LOCKFILE", "/dev/null");
            (command, iptables_rules())
        }
    };
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(rules.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("the redirect rules were refused ({}): {}", output.status, said.trim())))
}

/// `{CONTAINER_ADDRESS}` is the container's own: a job reaches its own servers by it.
fn nft_rules() -> String {
    format!(
        "table ip ringfence {{
  chain redirected {{
    type nat hook output priority -100; policy accept;
    ip daddr 127.0.0.0/8 accept
    udp dport 53 redirect to :{RELAY_PORT}
    tcp dport 53 redirect to :{RELAY_PORT}
    ip daddr {CONTAINER_ADDRESS} accept
    meta l4proto tcp redirect to :{RELAY_PORT}
  }}
  chain rejected {{
    type filter hook output priority 0; policy accept;
    ip daddr 127.0.0.0/8 accept
    ip daddr {CONTAINER_ADDRESS} accept
    reject with icmp type port-unreachable
  }}
}}
"
    )
}

fn iptables_rules() -> String {
    format!(
        "*nat
-A OUTPUT -d 127.0.0.0/8 -j ACCEPT
-A OUTPUT -p udp --dport 53 -j REDIRECT --to-ports {RELAY_PORT}
-A OUTPUT -p tcp --dport 53 -j REDIRECT --to-ports {RELAY_PORT}
-A OUTPUT -d {CONTAINER_ADDRESS} -j ACCEPT
-A OUTPUT -p tcp -j REDIRECT --to-ports {RELAY_PORT}
COMMIT
*filter
-A OUTPUT -d 127.0.0.0/8 -j ACCEPT
-A OUTPUT -d {CONTAINER_ADDRESS} -j ACCEPT
-A OUTPUT -j REJECT --reject-with icmp-port-unreachable
COMMIT
"
    )
}
